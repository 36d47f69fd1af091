"""Every snippet of the README and the guide runs, or is checked as far as possible without running.

- ``python`` blocks run, in the order of their page. A ``text`` block right below one is what it prints.
- ``console`` blocks run in between: each ``$ tailbatch ...`` must succeed and print the output below it,
  if any (``...`` matches anything, as in a doctest).
- ``bash`` blocks, and those without a language, need something a test lacks, such as a cluster or days.
  Their commands, options, make targets and extras must exist.
"""

import doctest
import pkgutil
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from scripts.docs_pictures import BY_LABEL, drawn

import tailbatch
from tailbatch import __version__
from tailbatch.cli import main
from tailbatch.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "src").rglob("README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
GUIDE = [page for page in PAGES if page.parent != ROOT / "docs" / "reference"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OUTPUT = re.compile(r"```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Not run: other languages, and a recipe with its own test (tests/integrations/test_recipes.py).
OTHERS = {"bibtex", "py", "text", "toml"}


def name_of(page):
    return page.relative_to(ROOT).with_suffix("").as_posix()


def blocks(page):
    """Yield the language, the text and the line of each fenced block."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 1
        joined = match[2].replace("\\\n", " ") if match[1] in ("console", "bash", "") else match[2]
        yield match[1], joined, line


@pytest.fixture
def readers_files(tmp_path, monkeypatch):
    """Work in a folder with the files that the pages name: mine, new, test and tickets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    X = rng.random((40, 3)).round(3)
    Y = (X[:, :2] + rng.normal(0, 0.2, (40, 2)) > 0.5).astype(int)
    columns = "size,weight,age,topic_art,topic_sports"
    rows = [",".join(map(str, (*x, *y))) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    for name in ("mine", "new", "test"):
        Path(f"{name}.csv").write_text("\n".join([columns, *rows]))
    attributes = [f"@attribute {name} numeric" for name in columns.split(",")[:3]]
    attributes += [f"@attribute {name} {{0,1}}" for name in columns.split(",")[3:]]
    runpy.run_path(str(ROOT / "examples" / "tickets.py"))["write"](tmp_path)
    head = "\n".join(["@relation 'mine: -C -2'", *attributes, "@data"])
    Path("mine.arff").write_text("\n".join([head, *rows]))


@pytest.fixture
def shell(monkeypatch, capsys):
    """Return a function that runs one line of a console block and returns its standard output."""

    def run(line):
        program, *arguments = shlex.split(line)
        assert program == "tailbatch", f"only tailbatch runs here: {line}"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert not caught.value.code, f"{line}\n{out}{err}"
        return out

    return run


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_the_snippets_of_a_page_run(page, readers_files, shell, capsys):
    names = {"__name__": "page"}
    for language, text, line in blocks(page):
        if language == "python":
            capsys.readouterr()
            # Compiled with the page's line numbers, so that a failure points into the page.
            exec(compile("\n" * line + text, str(page), "exec"), names)
            if expected := OUTPUT.match(page.read_text().partition(text)[2]):
                printed = capsys.readouterr().out
                assert doctest.OutputChecker().check_output(expected[1], printed, LOOSELY), printed
        elif language == "console":
            for command, expected in COMMAND.findall(text):
                got = shell(command)
                fits = doctest.OutputChecker().check_output(expected, got, LOOSELY)
                assert fits or not expected, f"{page.name}, line {line}: {command}\n{got}"
        elif language in ("bash", ""):
            for command in text.splitlines():
                check_command(command)
        else:
            assert language in OTHERS, f"{page.name}, line {line}: say what is in this block"


def check_command(line):
    """Fail if a command line names a command, option, target or extra that does not exist."""
    program, *arguments = shlex.split(line, comments=True) or [""]
    if program == "torchrun":
        arguments = arguments[arguments.index("tailbatch") + 1 :]
    if program in ("tailbatch", "torchrun"):
        parse(typer.main.get_command(app), arguments)
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets), line
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", line)))
        assert arguments[0] == "install"
        assert set(extras) <= set(project["optional-dependencies"]), line
        assert set(re.findall(r"tailbatch-([\d.]+)-py3", line)) <= {__version__}, line
    else:
        raise AssertionError(f"no check for this command: {line}")


def parse(command, arguments):
    """Parse arguments as the program would, without running it."""
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


def test_a_mistyped_option_is_noticed():
    check_command("tailbatch compare mine.csv --epochs 50  # as before")
    with pytest.raises(Exception, match="epoch"):
        check_command("tailbatch compare mine.csv --epochz 50")
    with pytest.raises(AssertionError):
        check_command("make sandwich")


def generated():
    """Return the paths in docs/ of the pages and pictures that the site generates."""
    scripts = ROOT / "scripts"
    pictures = re.findall(
        r"^def (\w+)\(\) -> Figure", (scripts / "docs_pictures.py").read_text(), re.M
    )
    return {"commands.md", *(f"pictures/{name}.svg" for name in pictures)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    made = {ROOT / "docs" / path for path in generated()}
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            path = page.parent / target
            assert path.exists() or path.resolve() in made, f"{page.name} links to {target}"


def test_each_promise_names_tests_that_exist():
    text = (ROOT / "docs" / "promises.md").read_text()
    named = set(re.findall(r"`((?:src|tests|scripts|fuzzing)/[\w./]+)`", text))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert not re.findall(r"`\w+\.py`", text), "name a test with its folder"
    sections = re.findall(r"^## \d\..*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert len(sections) == 5
    assert all("/test_" in section for section in sections)


def test_the_map_of_the_rooms_is_the_one_that_is_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    rows = re.findall(r"^\| \d+ \| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    rooms = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    assert rooms == [set(layer.split(" | ")) for layer in layers if layer != "__main__"]


def test_the_walk_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## From a file to a report")[1]
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", text.split("\n## ")[0])
    assert len(named) > 12
    for name in named:
        assert pkgutil.resolve_name(f"tailbatch.{name}"), name


def test_the_files_to_touch_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## What to touch")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+(?:/|\.py|\.md|\.js))`", text)
    assert len(named) > 12
    folders = (ROOT, ROOT / "src" / "tailbatch")
    assert [path for path in named if not any((f / path).exists() for f in folders)] == []


def test_one_sentence_says_everywhere_what_this_is():
    said = re.search(r"\*\*(.*)\.\*\*", (ROOT / "README.md").read_text())[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["description"] == said
    assert f"**{said}.**" in (ROOT / "docs" / "index.md").read_text()
    assert f"site_description: {said}\n" in (ROOT / "mkdocs.yml").read_text()
    assert tailbatch.__doc__.startswith(f"{said}.\n")


def test_the_picture_and_the_numbers_of_the_readme_follow_from_what_was_measured():
    measured = pd.read_csv(BY_LABEL)
    assert BY_LABEL.with_suffix(".svg").read_bytes() == drawn("by_label")
    assert measured["rows"].is_monotonic_increasing
    rarer = measured[: len(measured) // 2]
    gain = [
        part["TailbatchClassifier()"].mean() / part["logistic"].mean() - 1
        for part in (rarer, measured)
    ]
    text = (ROOT / "README.md").read_text()
    assert f"**{gain[0]:.0%} higher**" in text
    assert f"{gain[1]:.0%} higher over all labels" in " ".join(text.split())
