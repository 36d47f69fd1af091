"""The tutorial's pictures show its own commands: `make screenshots` retakes them."""

import html
import re
from pathlib import Path

import pytest
from PIL import Image

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)
PICTURES = re.findall(r"!\[.*?\]\(screenshots/(.*?)\)", TUTORIAL)


def words(text):
    return text.replace("\\\n", " ").replace("\\ ", " ").split()


@pytest.mark.parametrize("picture", [name for name in PICTURES if name.endswith(".svg")])
def test_a_terminal_shows_the_command_above_it(picture):
    above = TUTORIAL[: TUTORIAL.index(f"screenshots/{picture}")]
    command = COMMAND.findall(above)[-1]
    svg = (DOCS / "screenshots" / picture).read_text()
    shown = [html.unescape(line) for line in re.findall(r"<text[^>]*>([^<]*)", svg)]
    text = " ".join(shown).replace("\xa0", " ")
    assert " ".join(words(text)).startswith(" ".join(["$", *words(command)]))


def test_the_report_is_of_the_comparison_above_it():
    (command,) = [
        line for line in COMMAND.findall(TUTORIAL) if line.startswith("tailbatch compare")
    ]
    with Image.open(DOCS / "screenshots" / "report.png") as picture:
        assert words(picture.info["Comment"]) == ["$", *words(command)]


def test_every_picture_is_shown():
    kept = {path.name for path in (DOCS / "screenshots").iterdir()}
    assert kept == set(PICTURES)
