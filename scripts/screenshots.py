"""Retake the tutorial's screenshots: run its snippets, and capture the terminal and the report.

``make screenshots`` writes docs/screenshots. It needs Chromium, as `chromium` on the path or in the
environment variable CHROMIUM.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.md"
PICTURES = ROOT / "docs" / "screenshots"
TERMINALS = {"datasets describe": "describe", "compare": "compare"}
COLUMNS = 100
SNIPPET = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_tutorial(folder: Path) -> dict[str, str]:
    """Run every snippet in a folder; return the output of each command, by command line."""
    variables = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "OMP_NUM_THREADS": "1"}
    program = Path(sys.executable).with_name("tailbatch")
    tickets = str(ROOT / "examples" / "tickets.py")
    subprocess.run([sys.executable, tickets], cwd=folder, check=True, env=variables)
    outputs = {}
    for language, text in SNIPPET.findall(TUTORIAL.read_text()):
        if language == "python":
            subprocess.run([sys.executable, "-c", text], cwd=folder, check=True, env=variables)
            continue
        # A backslash continues a command on the next line.
        for line in re.findall(r"^\$ ((?:.*\\\n)*.*)", text, re.MULTILINE):
            arguments = [str(program), *shlex.split(line.replace("\\\n", " "))[1:]]
            completed = subprocess.run(
                arguments, cwd=folder, check=True, env=variables, capture_output=True, text=True
            )
            outputs[line] = completed.stdout
    return outputs


def terminal(line: str, output: str) -> str:
    """Return a command and its output as an SVG that loads no font from the network."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {line}", style="bold"))
    console.print(Text.from_ansi(output.rstrip()))
    svg = console.export_svg(title="", theme=MONOKAI, unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg.replace("Fira Code", "DejaVu Sans Mono"), flags=re.MULTILINE)


def report(page: Path, picture: Path, line: str) -> None:
    """Save the first screen of a report as a browser shows it, with the command that made its runs."""
    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        # A container has no sandbox; the page is our own.
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1200, "height": 900})
        view.goto(page.as_uri())
        shot = view.screenshot()
        browser.close()
    # Text and lines need few colors; this takes a third of the space.
    facts = PngImagePlugin.PngInfo()
    facts.add_text("Comment", f"$ {line}")
    image = Image.open(io.BytesIO(shot)).convert("RGB").quantize(64)
    image.save(picture, optimize=True, pnginfo=facts)


def main() -> None:
    """Run the tutorial in a temporary folder and capture it."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outputs = run_tutorial(folder)
        for line, output in outputs.items():
            for start, picture in TERMINALS.items():
                if line.startswith(f"tailbatch {start}"):
                    (PICTURES / f"{picture}.svg").write_text(terminal(line, output))
        compared = next(line for line in outputs if line.startswith("tailbatch compare"))
        report(folder / "report.html", PICTURES / "report.png", compared)


if __name__ == "__main__":
    main()
