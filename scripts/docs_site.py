"""What the site shows beside the pages in docs/; mkdocs calls these functions while it builds.

Generated on the way: the pictures, the page of commands, pages of the repository that live outside
docs/, and the links from a name in backticks to its place in the reference.
"""

import importlib
import posixpath
import re
from pathlib import Path

import typer
from docs_pictures import PICTURES, drawn
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from tailbatch.cli.app import app

ROOT = Path(__file__).parent.parent

ROOMS = (
    "tailbatch.data",
    "tailbatch.imbalance",
    "tailbatch.losses",
    "tailbatch.losses.formulas",
    "tailbatch.selection",
    "tailbatch.models",
    "tailbatch.metrics",
    "tailbatch.stats",
    "tailbatch.results",
    "tailbatch.training",
    "tailbatch.estimator",
    "tailbatch.study",
    "tailbatch.errors",
    "tailbatch.report.page",
    "tailbatch.integrations.pytorch",
    "tailbatch.integrations.distributed",
    "tailbatch.integrations.lightning",
    "tailbatch.integrations.huggingface",
    "tailbatch.integrations.ray",
    "tailbatch.integrations.tensorboard",
)

# Pages and scripts of the repository, and where the site shows them.
OUTSIDE = {
    "benchmarks/README.md": "benchmarks.md",
    "src/tailbatch/selection/README.md": "strategies.md",
    "src/tailbatch/models/README.md": "models.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
} | {
    f"examples/{path.name}": f"examples/{path.stem}.md"
    for path in sorted((ROOT / "examples").glob("*.py"))
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated to the files of docs/."""
    made: dict[str, str | bytes] = {"commands.md": commands()}
    made |= {page: outside_page(source) for source, page in OUTSIDE.items()}
    made |= {f"pictures/{name}.svg": drawn(name) for name in PICTURES}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def outside_page(source: str) -> str:
    """Return a page of the repository as it is, and a script as a page."""
    text = (ROOT / source).read_text()
    if source.endswith(".md"):
        return text
    return f"# {source}\n\n```python\n{text}```\n"


def commands() -> str:
    """Return the page of all commands, from their help texts."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tailbatch")
    text = re.sub(r"\[/?bold\]", "**", text)
    # Examples are indented by two spaces in a help text; here they are code.
    examples = re.compile(r"(?:^  \S.*\n\n?)+", re.MULTILINE)
    text = examples.sub(lambda match: f"```bash\n{_lines(match[0])}\n```\n\n", text)
    return text.replace("# `tailbatch`", "# Commands", 1)


def _lines(block: str) -> str:
    return "\n".join(line.strip() for line in block.splitlines() if line.strip())


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository at their pages here; without a page, name the file."""
    here = page.file.src_uri
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = (_with_links_moved(text, here) for text in parts[::2])  # the others are code
    return "".join(parts)


def _with_links_moved(markdown: str, page: str) -> str:
    sources = {place: source for source, place in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def moved(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        place = OUTSIDE.get(target)
        if target == "README.md":
            place = "index.md"
        elif target.startswith("docs/"):
            place = target.removeprefix("docs/")
        if place is None:
            return f"{text} (`{target}`)" if text != target else f"`{target}`"
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"

    # Links to files: no image, no address, no place on the same page.
    return re.sub(r"(?<!!)\[([^\]\[]+)\]\(([^):#\s]+)(#[^)\s]*)?\)", moved, markdown)


def public_names() -> dict[str, str]:
    """Return where each public name is documented; names that two rooms share are left out."""
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == room
        ]
        for name in names:
            found.setdefault(name, []).append(f"{room}.{name}")
    return {name: places[0] for name, places in found.items() if len(places) == 1}


PUBLIC = public_names()


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link names in backticks to the reference, outside code blocks, headings and links."""
    kept = re.compile(r"(<(pre|a|h[1-6]|autoref)\b.*?</\2>)", re.DOTALL)
    parts = kept.split(html)
    # Three parts a match: the text before it, the match, and its tag.
    for place in range(0, len(parts), 3):
        parts[place] = re.sub(r"<code>([A-Za-z_.]+)(\(\))?</code>", _linked, parts[place])
    del parts[2::3]
    return "".join(parts)


def _ambiguous(name: str) -> bool:
    """Tell whether a bare name may mean something else: a command, another library's class."""
    return (name.isalpha() and name.islower()) or name in ("Callback", "Trainer")


def _linked(match: re.Match[str]) -> str:
    owner, _, name = match[1].rpartition(".")
    if owner in PUBLIC:  # a member, such as Selector.observe
        place = f"{PUBLIC[owner]}.{name}"
    elif name in PUBLIC and (owner or not _ambiguous(name)):
        place = PUBLIC[name]
    else:
        return match[0]
    return f'<autoref identifier="{place}" optional>{match[0]}</autoref>'
