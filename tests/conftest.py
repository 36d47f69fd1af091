"""Shared fixtures: the folder of the real benchmark files, if there is one."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, and no clock: a busy machine is not a wrong result.
settings.register_profile(
    "tailbatch",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tailbatch")


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """Folder of the real benchmark files, from ``TAILBATCH_DATA``."""
    folder = os.environ.get("TAILBATCH_DATA")
    if not folder:
        pytest.skip("TAILBATCH_DATA is not set: the real benchmark files are not here")
    return Path(folder)


@pytest.fixture(autouse=True)
def usual_log_levels() -> None:
    """Reset the log levels for each test: a command sets them for its process, which here is ours."""
    for name in ("tailbatch", "tailbatch.data", "tailbatch.estimator"):
        logging.getLogger(name).setLevel(logging.NOTSET)
