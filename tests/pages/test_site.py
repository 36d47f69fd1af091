"""The site that `make docs` builds: complete, and nothing loaded from the network."""

import importlib
import os
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOMS = (
    "data",
    "errors",
    "estimator",
    "imbalance",
    "losses",
    "metrics",
    "models",
    "results",
    "selection",
    "stats",
    "study",
    "training",
)


def public_names(module):
    """Return the public names of a module: those it lists, or else those it defines."""
    return getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


@pytest.fixture(scope="module")
def site():
    folder = os.environ.get("TAILBATCH_SITE")
    if not folder:
        pytest.skip("TAILBATCH_SITE is not set: `make docs` builds the site and tests it")
    return Path(folder)


class Loaded(HTMLParser):
    """Collects what a page loads; links that a reader may follow do not count."""

    def __init__(self):
        super().__init__()
        self.targets = []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag in {"script", "img", "iframe", "source", "video", "audio", "object", "embed"}:
            self.targets += [values.get("src"), values.get("data"), values.get("srcset")]
        elif tag == "link" and values.get("rel") not in {"canonical", "next", "prev"}:
            self.targets.append(values.get("href"))


def test_pages_load_nothing_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        here = [target for target in loaded.targets if target and not target.startswith("data:")]
        assert here, "every page has its style"
        outside = [target for target in here if re.match(r"(https?:)?//", target)]
        assert not outside, f"{page} loads {outside}"
        for target in here:
            path = page.parent / target.partition("?")[0].partition("#")[0]
            assert path.exists() or page.name == "404.html", f"{page} loads {target}"


@pytest.mark.parametrize("kind", ["*.css", "*.svg"])
def test_styles_and_pictures_load_nothing_from_the_network(site, kind):
    files = list(site.rglob(kind))
    assert files
    for path in files:
        text = path.read_text()
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", text), path
        assert not re.search(r"@import|xlink:href=\"http", text), path


def test_every_public_name_is_in_the_reference(site):
    names = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    documented = {line.split()[0] for line in names.splitlines()}
    for room in ROOMS:
        module = importlib.import_module(f"tailbatch.{room}")
        public = {f"tailbatch.{room}.{name}" for name in public_names(module)}
        assert public
        assert not public - documented


def test_every_command_is_on_the_page_of_commands(site):
    text = (site / "commands.html").read_text()
    for command in ("fit", "predict", "evaluate", "compare", "report", "study run", "datasets get"):
        assert f"tailbatch {command}" in text
    assert "[bold]" not in text


def test_names_in_backticks_lead_to_the_reference(site):
    text = (site / "own_loop.html").read_text()
    assert "reference/errors.html#tailbatch.errors.StaleSelectionError" in text


def test_pages_from_elsewhere_in_the_repository_link_to_pages_of_the_site(site):
    strategies = (site / "strategies.html").read_text()
    assert 'href="reproduction.html#is-it-more-than-speed"' in strategies
    for page in site.rglob("*.html"):
        shown = re.findall(r"<code>(?:\.\./)*docs/[^<]*\.md</code>\)", page.read_text())
        assert not shown, f"{page.name} names pages it could link to: {shown}"
