import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from scripts import audit
from scripts.package import without_local_links

from tailbatch import __version__

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_and_the_sdist_install_and_work():
    script = [sys.executable, ROOT / "scripts" / "package.py"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tailbatch-.*\.whl: tried without the extra cli$", done.stdout, re.MULTILINE)
    assert re.search(r"^tailbatch-.*\.whl: installed and tried$", done.stdout, re.MULTILINE)
    assert re.search(r"^tailbatch-.*\.tar\.gz: installed and tried$", done.stdout, re.MULTILINE)

    for kind in ("whl", r"tar\.gz"):
        same = rf"^tailbatch-.*\.{kind}: built twice with the same bytes, SHA-256 [0-9a-f]{{64}}$"
        assert re.search(same, done.stdout, re.MULTILINE)
    [materials] = (ROOT / "dist").glob("*.cdx.json")
    listed = json.loads(materials.read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == "tailbatch"
    assert listed["metadata"]["component"]["version"] == __version__
    assert {"numpy", "torch", "safetensors"} <= {one["name"] for one in listed["components"]}
    assert "file:" not in materials.read_text()


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/tailbatch/__init__.py"
    # Other programs read the citation file and cannot look the version up.
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_links_to_files_of_the_machine_are_left_out_of_the_bill_of_materials():
    here, there = {"url": "file:///tmp/a.whl"}, {"url": "https://example.org"}
    listed = {"components": [{"name": "a", "externalReferences": [here, there]}]}
    assert without_local_links(listed) == {
        "components": [{"name": "a", "externalReferences": [there]}]
    }


def package(name, *flaws, **more):
    vulns = [{"id": flaw, "fix_versions": ["2.0"], "description": ""} for flaw in flaws]
    return {"name": name, "version": "1.0", **({} if more else {"vulns": vulns}), **more}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([package("a"), package("b")], 0, "NONE FOUND: 2 packages were looked up, none has a known"),
        ([package("a", "PYSEC-1"), package("b")], 1, "a 1.0: PYSEC-1, fixed in 2.0\nFOUND: 1 known"),
        ([package("a", "PYSEC-1"), package("b", skip_reason="unknown")], 1,
         "NOT CHECKED: b (unknown)\nFOUND: 1 known vulnerabilities in 2 packages"),
        ([package("a"), package("b", skip_reason="unknown")], 2,
         "NOT CHECKED: b (unknown)\nNOT CHECKED: only 1 of 2 packages were looked up"),
        ([package("a", skip_reason="not found")], 2, "gave no answer, so nothing is known about"),
        ([], 2, "there are no packages"),
        (None, 2, "(ConnectionError: no route). Try again with network access"),
    ],
)  # fmt: skip
def test_the_audit_tells_none_found_from_found_and_from_not_checked(packages, code, said, capsys):
    answer = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    stand_in = (
        f"import sys; print({answer!r}); print('ConnectionError: no route', file=sys.stderr); "
        "sys.exit(1)"  # pip-audit exits with 1 both for a vulnerability and for a failure
    )
    assert audit.main([sys.executable, "-c", stand_in]) == code
    assert said in capsys.readouterr().out


def test_an_audit_that_cannot_start_is_not_a_clean_one(capsys):
    assert audit.main([sys.executable, "-m", "no_such_module"]) == 2
    assert "NOT CHECKED" in capsys.readouterr().out


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_for(name, extras, seen):
    """Collect the installed distributions that `name` with these extras needs, recursively."""
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
            name, version = line.split("==")  # exact versions only
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
    folders = {str(ROOT), str(ROOT.parent), str(Path.home()), os.environ.get("TAILBATCH_DATA")}
    # Many files name a folder such as / or /tmp for good reasons.
    words = [re.escape(folder) for folder in folders if folder and folder not in ("/", "/tmp")]
    pattern = re.compile(rf"(?<![\w.])({'|'.join(words)})(?=[/\s\"'`:)]|$)")
    hits = [
        f"{name}: {hit[0]}" for name, text in committed_text() for hit in pattern.finditer(text)
    ]
    assert not hits
