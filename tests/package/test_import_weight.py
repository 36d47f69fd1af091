"""Which modules an import loads: more reliable than timing on a busy machine."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "scipy", "sklearn", "pandas", "matplotlib", "pooch", "requests")


def loaded(code):
    """Return which heavy packages a fresh interpreter has loaded after `code`."""
    report = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_importing_the_package_loads_nothing_heavy():
    assert loaded("import tailbatch") == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["datasets", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments):
    code = f"""
import sys
from tailbatch.cli import main
sys.argv = ["tailbatch", *{arguments}]
try:
    main()
except SystemExit:
    pass"""
    assert loaded(code) == "[]"


@pytest.mark.parametrize("module", ["data", "report", "report.figures", "selection", "imbalance"])
def test_rooms_below_the_models_load_no_torch(module):
    assert "torch" not in loaded(f"import tailbatch.{module}")
