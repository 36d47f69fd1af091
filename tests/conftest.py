"""Shared fixtures: where the real benchmark files lie, if they are here at all."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """Folder of the real benchmark files, from ``TAILBATCH_DATA``."""
    folder = os.environ.get("TAILBATCH_DATA")
    if not folder:
        pytest.skip("TAILBATCH_DATA is not set: the real benchmark files are not here")
    return Path(folder)


@pytest.fixture(autouse=True)
def own_log_levels() -> Iterator[None]:
    """Give each test the usual log levels: a command sets them for its process, which here is ours."""
    loggers = [logging.getLogger(name) for name in ("tailbatch", "tailbatch.data")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
