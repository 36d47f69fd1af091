import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailbatch import __version__
from tailbatch.cli import app as app_module
from tailbatch.cli import main
from tailbatch.errors import DataError


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the command line: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tailbatch", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def failing(monkeypatch):
    """Return a function that makes the command `list` raise."""

    def fail_with(error):
        def command():
            raise error

        group = next(g for g in app_module.app.registered_groups if g.name == "datasets")
        info = next(c for c in group.typer_instance.registered_commands if c.name == "list")
        monkeypatch.setattr(info, "callback", command)

    return fail_with


def test_help_teaches_by_example(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "tailbatch datasets describe debtags" in out
    assert run("-h")[1] == out


def test_the_help_begins_as_the_readme_does(run):
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert re.search(r"\*\*(.*)\*\*", text)[1] in " ".join(run("--help")[1].split())


def test_version(run):
    assert run("--version") == (0, f"tailbatch {__version__}\n", "")


def test_no_command_shows_the_help(run):
    code, out, err = run()
    assert code == 2
    assert "Usage: tailbatch" in out + err


def test_an_unknown_command_is_the_users_mistake(run):
    code, _, err = run("datasets", "lst")
    assert code == 2
    assert "Did you mean 'list'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["study", "export", "--store", "s"],
            "No such option: --store (see tailbatch study export",
        ),
        (["fit", "t.csv", "--seed", "x"], "Invalid value for '--seed': "),
        (["fit", "t.csv", "--seed"], "Option '--seed' requires an argument"),
        (["fit"], "Missing argument 'data' (see tailbatch fit --help)"),
    ],
)
def test_a_command_that_cannot_be_read_is_answered_in_one_line(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"Error: {message}")
    assert "--help)" in err


def test_a_users_mistake_is_one_sentence(run, failing):
    failing(DataError("the file is odd; write it anew"))
    assert run("datasets", "list") == (2, "", "Error: the file is odd; write it anew\n")


def test_a_message_cannot_steer_the_terminal(run, failing):
    failing(DataError("label \x1b[2J"))
    assert run("datasets", "list")[2] == "Error: label \\x1b[2J\n"


def test_a_path_the_system_refuses_is_the_users_mistake(run, failing):
    failing(PermissionError(13, "Permission denied", "secret.arff"))
    assert run("datasets", "list") == (2, "", "Error: secret.arff: Permission denied\n")


def test_a_mistake_of_ours_says_how_to_see_more(run, failing):
    failing(ZeroDivisionError("oops"))
    assert run("datasets", "list") == (
        1,
        "",
        "Error: unexpected ZeroDivisionError: oops (add --debug to see where)\n",
    )


@pytest.mark.parametrize(
    "arguments", [("--debug", "datasets", "list"), ("datasets", "list", "--debug")]
)
def test_debug_shows_the_traceback_wherever_it_stands(monkeypatch, failing, arguments):
    failing(DataError("odd"))
    monkeypatch.setattr(sys, "argv", ["tailbatch", *arguments])
    with pytest.raises(DataError, match="odd"):
        main()


def test_an_interrupt_ends_quietly_with_130(run, failing):
    failing(KeyboardInterrupt())
    code, out, err = run("datasets", "list")
    assert code == 130
    assert "Traceback" not in out + err


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m tailbatch datasets list --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[\n  {\n    "
    assert done.stderr == ""
