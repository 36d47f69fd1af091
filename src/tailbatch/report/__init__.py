"""Facts and results as tables and figures for people; needs no torch."""

from tailbatch.errors import require_installed

require_installed("jinja2", "matplotlib", "pandas", extra="cli")
