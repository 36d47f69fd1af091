"""The command line: arguments in, one call, text out."""

import sys

from tailbatch.errors import MissingExtraError, require_installed

__all__ = ["main"]

_EXTRA = ("defusedxml", "jinja2", "matplotlib", "pandas", "requests", "rich", "typer")


def main() -> None:
    """Run the command line; if its packages are missing, print one line that says what to install."""
    try:
        require_installed(*_EXTRA, extra="cli")
    except MissingExtraError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(2)
    from tailbatch.cli import app

    app.main()
