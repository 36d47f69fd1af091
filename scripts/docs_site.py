"""mkdocs hooks: what the site shows in addition to the pages in docs/.

They generate the pictures, the page of commands, the pages of the repository that are outside docs/, and
the links from names in backticks to the reference.
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
    "tailbatch.integrations.lightning",
    "tailbatch.integrations.huggingface",
    "tailbatch.integrations.ray",
    "tailbatch.integrations.tensorboard",
)

# Pages and scripts outside docs/, and their names on the site.
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
    """Add the generated pages and pictures to the files of docs/."""
    generated: dict[str, str | bytes] = {"commands.md": commands()}
    generated |= {page: outside_page(source) for source, page in OUTSIDE.items()}
    generated |= {f"pictures/{name}.svg": drawn(name) for name in PICTURES}
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def outside_page(source: str) -> str:
    """Return a Markdown page unchanged, and a script as a page."""
    text = (ROOT / source).read_text()
    if source.endswith(".md"):
        return text
    return f"# {source}\n\n```python\n{text}```\n"


def commands() -> str:
    """Return the page of all commands, from their help texts."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="tailbatch")
    text = re.sub(r"\[/?bold\]", "**", text)
    # Help texts indent examples by two spaces; here they become code.
    examples = re.compile(r"(?:^  \S.*\n\n?)+", re.MULTILINE)
    text = examples.sub(lambda match: f"```bash\n{_lines(match[0])}\n```\n\n", text)
    return text.replace("# `tailbatch`", "# Commands", 1)


def _lines(block: str) -> str:
    return "\n".join(line.strip() for line in block.splitlines() if line.strip())


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository at their pages; without a page, name the file."""
    here = page.file.src_uri
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = (_with_links_moved(text, here) for text in parts[::2])  # the others are code
    return "".join(parts)


def _with_links_moved(markdown: str, page: str) -> str:
    sources = {page_name: source for source, page_name in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def moved(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        shown_as = OUTSIDE.get(target)
        if target == "README.md":
            shown_as = "index.md"
        elif target.startswith("docs/"):
            shown_as = target.removeprefix("docs/")
        if shown_as is None:
            return f"{text} (`{target}`)" if text != target else f"`{target}`"
        return f"[{text}]({posixpath.relpath(shown_as, posixpath.dirname(page) or '.')}{anchor})"

    # Links to files only: no images, URLs or anchors on the same page.
    return re.sub(r"(?<!!)\[([^\]\[]+)\]\(([^):#\s]+)(#[^)\s]*)?\)", moved, markdown)


def public_names() -> dict[str, str]:
    """Return where each public name is documented; names that two modules share are left out."""
    documented: dict[str, list[str]] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == room
        ]
        for name in names:
            documented.setdefault(name, []).append(f"{room}.{name}")
    return {name: targets[0] for name, targets in documented.items() if len(targets) == 1}


PUBLIC = public_names()


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link names in backticks to the reference, outside code blocks, headings and links."""
    kept = re.compile(r"(<(pre|a|h[1-6]|autoref)\b.*?</\2>)", re.DOTALL)
    parts = kept.split(html)
    # Three parts per match: the text before it, the match, and its tag.
    for i in range(0, len(parts), 3):
        parts[i] = re.sub(r"<code>([A-Za-z_.]+)(\(\))?</code>", _linked, parts[i])
    del parts[2::3]
    return "".join(parts)


def _ambiguous(name: str) -> bool:
    """Return whether a bare name may mean something else: a command, another library's class."""
    return (name.isalpha() and name.islower()) or name in ("Callback", "Trainer")


def _linked(match: re.Match[str]) -> str:
    owner, _, name = match[1].rpartition(".")
    if owner in PUBLIC:  # a member, such as Selector.observe
        target = f"{PUBLIC[owner]}.{name}"
    elif name in PUBLIC and (owner or not _ambiguous(name)):
        target = PUBLIC[name]
    else:
        return match[0]
    return f'<autoref identifier="{target}" optional>{match[0]}</autoref>'
