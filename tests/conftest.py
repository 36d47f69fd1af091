"""Shared fixtures: where the real benchmark files lie, if they are here at all."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """Folder of the real benchmark files, from ``TAILBATCH_DATA``."""
    folder = os.environ.get("TAILBATCH_DATA")
    if not folder:
        pytest.skip("TAILBATCH_DATA is not set: the real benchmark files are not here")
    return Path(folder)
