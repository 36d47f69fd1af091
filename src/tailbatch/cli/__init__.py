"""The command line: arguments in, one call, text out."""

from tailbatch.cli.app import main

__all__ = ["main"]
