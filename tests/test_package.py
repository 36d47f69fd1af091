import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_and_the_sdist_install_and_work():
    script = [sys.executable, ROOT / "scripts" / "package.py"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tailbatch-.*\.whl: installed and tried$", done.stdout, re.MULTILINE)
    assert re.search(r"^tailbatch-.*\.tar\.gz: installed and tried$", done.stdout, re.MULTILINE)


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_for(name, extras, seen):
    """Collect the installed distributions that `name` with these extras needs, and theirs."""
    packaging = pytest.importorskip("packaging.requirements")
    for line in metadata.requires(name) or []:
        need = packaging.Requirement(line)
        wanted = [need.marker is None or need.marker.evaluate({"extra": e}) for e in extras]
        key = canonical(need.name), frozenset(need.extras)
        if any(wanted) and key not in seen:
            seen.add(key)
            installed_for(need.name, need.extras or {""}, seen)


def test_all_that_development_installs_is_pinned():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version = line.split("==")  # nothing but exact versions
            pins[canonical(name)] = version
    seen = set()
    installed_for("tailbatch", {"", "dev"}, seen)
    needed = {name for name, _ in seen} - {"tailbatch", "setuptools"}
    assert len(needed) > 50
    assert needed <= pins.keys()
    off = {
        name: metadata.version(name)
        for name in needed
        if metadata.version(name).partition("+")[0] != pins[name]
    }
    assert not off, "the environment differs from constraints.txt; run make test"


def committed_text():
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            yield name, content.decode("utf-8", errors="replace")


def test_no_file_names_a_folder_of_the_machine_it_was_written_on():
    places = {str(ROOT), str(ROOT.parent), str(Path.home()), os.environ.get("TAILBATCH_DATA")}
    # A folder such as / or /tmp stands in many files for good reasons.
    words = [re.escape(place) for place in places if place and place not in ("/", "/tmp")]
    pattern = re.compile(rf"(?<![\w.])({'|'.join(words)})(?=[/\s\"'`:)]|$)")
    found = [
        f"{name}: {hit[0]}" for name, text in committed_text() for hit in pattern.finditer(text)
    ]
    assert not found
