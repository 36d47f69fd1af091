"""Print docs/paper/replication.md as a PDF: ``make paper`` writes build/replication.pdf.

It needs Chromium, as `chromium` on the path or in the environment variable CHROMIUM.
"""

import os
import shutil
import sys
from pathlib import Path

import markdown
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "docs" / "paper" / "replication.md"
PRINTED = ROOT / "build" / "replication.pdf"
STYLE = """
body { font: 10.5pt/1.4 "DejaVu Serif", Georgia, serif; }
h1 { font-size: 17pt; line-height: 1.2; } h2 { font-size: 12.5pt; margin: 1.2em 0 0.3em; }
table { border-collapse: collapse; font-size: 8pt; width: 100%; break-inside: avoid; }
td, th { border-bottom: 0.5pt solid #999; padding: 2pt 4pt; text-align: right; }
td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; } p { margin: 0.5em 0; }
"""


def main() -> None:
    """Turn the page into HTML beside its pictures, and print that."""
    body = markdown.markdown(PAPER.read_text(), extensions=["tables"])
    PRINTED.parent.mkdir(exist_ok=True)
    page = PAPER.with_suffix(".print.html")  # beside the source, so that pictures are found
    page.write_text(f"<meta charset='utf-8'><style>{STYLE}</style>{body}")
    try:
        with sync_playwright() as playwright:
            # A container has no sandbox; the page is our own.
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
                args=["--no-sandbox"],
            )
            view = browser.new_page()
            view.goto(page.as_uri())
            margin = {"top": "20mm", "bottom": "20mm", "left": "20mm", "right": "20mm"}
            view.pdf(path=PRINTED, format="A4", margin=margin)
            browser.close()
    finally:
        page.unlink()
    sys.stdout.write(f"written: {PRINTED.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
