"""The core without the extra `cli`: training loops work, everything else says what to install."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailbatch import cli
from tailbatch.data import MultiLabelDataset, save_npz

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "files"
BLOCKED = ("typer", "rich", "jinja2", "matplotlib", "pandas", "pooch", "requests", "defusedxml")
PROLOGUE = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {BLOCKED}:
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def without_extra(code, *arguments):
    """Run code in a separate interpreter that cannot import the packages of the extra."""
    command = [sys.executable, "-c", PROLOGUE + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check(code, *arguments):
    done = without_extra(code, *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", BLOCKED)
def test_the_packages_of_the_extra_are_out_of_reach(name):
    assert f"No module named {name!r}" in without_extra(f"import {name}").stderr


def test_the_extra_is_declared_once_and_the_core_is_small():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [need.partition(">=")[0] for need in project["dependencies"]]
    core = ["numpy", "safetensors", "scikit-learn", "scipy", "threadpoolctl", "torch"]
    assert names == core
    extra = {need.partition(">=")[0] for need in project["optional-dependencies"]["cli"]}
    assert extra == set(BLOCKED) - {"pooch"} == set(cli._EXTRA)
    for name in ("test", "docs"):
        assert any("tailbatch[cli" in need for need in project["optional-dependencies"][name])


def test_a_training_loop():
    check("""
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset
import tailbatch
from tailbatch import load_dataset, make_selector
from tailbatch.integrations.pytorch import IndexedDataset, SelectiveLoader
from tailbatch.models import make_model

data = load_dataset("debtags").take(range(200))
x, y = torch.from_numpy(data.X.toarray()).float(), torch.from_numpy(data.Y).float()
rows = IndexedDataset(TensorDataset(x, y))
model = make_model("mlp", data, seed=0)
for strategy in ("random", "uniform", "balanced", "hard", "adaptive", "chain", "minority"):
    selector = make_selector(strategy, data.Y, X=data.X, batch_size=32, warm_up_epochs=1)
    for _ in range(2):
        for index, (x, y) in SelectiveLoader(rows, selector):
            losses = binary_cross_entropy_with_logits(model(x), y, reduction="none")
            selector.observe(losses, index)
    assert selector.epoch == 2
""")


def test_the_classifier_from_fit_to_load(tmp_path):
    check(
        """
import numpy as np
from tailbatch import TailbatchClassifier
from tailbatch.metrics import evaluate

X = np.random.default_rng(0).random((80, 4))
Y = X[:, :3] > 0.6
fitted = TailbatchClassifier(epochs=3, warm_up_epochs=1, thresholds="tuned", random_state=0)
scores = fitted.fit(X, Y).predict_proba(X)
fitted.save(sys.argv[1])
again = TailbatchClassifier.load(sys.argv[1])
assert (again.predict_proba(X) == scores).all()
assert again.predict(X).shape == Y.shape
evaluate(Y, scores)
""",
        tmp_path,
    )


def test_files_that_need_no_table(tmp_path):
    rows = MultiLabelDataset.from_arrays(np.eye(4), np.eye(4, 2, dtype=bool))
    save_npz(rows, tmp_path / "rows.npz")
    (tmp_path / "rows.svm").write_text("0,1 1:0.5 3:1\n1 2:1\n")
    check(
        """
from tailbatch import load_dataset
for path in sys.argv[1:]:
    assert load_dataset(path).n_labels == 2, path
assert load_dataset("debtags").n_samples > 1000
""",
        tmp_path / "rows.npz",
        tmp_path / "rows.svm",
        FILES / "meka.arff",
    )


def test_a_run_of_a_study(tmp_path):
    check(
        """
from tailbatch import load_dataset
from tailbatch.results import ResultStore, RunSpec, TrainingPlan
from tailbatch.study import run

digest = load_dataset("debtags").digest
plan = TrainingPlan(epochs=1, warm_up_epochs=1)
record, arrays = run(RunSpec(dataset="debtags", dataset_digest=digest, plan=plan))
store = ResultStore(sys.argv[1])
store.add(record, arrays)
assert [kept.test for kept in store.records()] == [record.test]
""",
        tmp_path,
    )


@pytest.mark.parametrize(
    ("code", "package", "extra"),
    [
        ("load_dataset(CSV, labels='tag_')", "pandas", "cli"),
        ("load_dataset(PARQUET, labels='tag_')", "pandas", "parquet"),
        ("load_dataset(MULAN)", "defusedxml", "cli"),
        ("load_dataset('yeast')", "requests", "cli"),
        ("ResultStore('.').frame()", "pandas", "cli"),
        ("import tailbatch.report", "jinja2", "cli"),
        ("from tailbatch.report.page import write_report", "jinja2", "cli"),
        ("from tailbatch.data.tables import read_frame; read_frame(CSV)", "pandas", "cli"),
    ],
)  # fmt: skip
def test_the_rest_says_what_to_install(code, package, extra, tmp_path, monkeypatch):
    monkeypatch.delenv("TAILBATCH_DATA", raising=False)
    monkeypatch.setenv("TAILBATCH_CACHE", str(tmp_path))
    frame = pd.DataFrame({"length": [1.0, 2.0], "tag_a": [0, 1]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    files = {"CSV": tmp_path / "a.csv", "PARQUET": tmp_path / "a.parquet"}
    files["MULAN"] = FILES / "fruit.arff"
    places = "\n".join(f"{name} = Path({str(path)!r})" for name, path in files.items())
    done = without_extra(f"""
from pathlib import Path
from tailbatch import load_dataset
from tailbatch.errors import MissingExtraError
from tailbatch.results import ResultStore
{places}
try:
    {code}
except MissingExtraError as error:
    print(error)
""")
    said = f'{package} is not installed; run: pip install "tailbatch[{extra}]"\n'
    assert (done.stdout, done.stderr) == (said, "")


@pytest.mark.parametrize("arguments", [[], ["--version"], ["datasets", "list"]])
def test_the_command_line_ends_in_one_line(arguments):
    code = "from tailbatch.cli import main\nmain()"
    done = without_extra(code, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.endswith(' is not installed; run: pip install "tailbatch[cli]"\n')
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
