"""Large numbers of samples, records and rows; `make slow` prints the cost."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from load import work
from tailbatch.results import RunSpec
from tailbatch.study.sources import Forecast

TESTS = Path(__file__).parents[1]
LIMIT_MB = 12_000


@pytest.fixture
def measured(capsys):
    """Return a function that does a job in a separate process, and prints and returns its figures."""

    def run(job, size):
        command = [sys.executable, str(TESTS / "load" / "work.py"), job, str(size)]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True
        )
        figures = json.loads(done.stdout)
        with capsys.disabled():
            print(f"\n{job} {size:,}: {figures}")  # noqa: T201 - the figures are asked for
        return figures

    return run


@pytest.mark.slow
def test_ten_thousand_batches_of_a_hundred_million_samples_add_no_memory(measured):
    figures = measured("selector", 10**8)
    assert figures["batches"] == 10_000
    assert figures["growth_mb"] < 5
    assert figures["batches_peak_mb"] < 2_000  # two numbers per sample and little else


@pytest.mark.slow
def test_fifty_thousand_records_take_ten_times_what_five_thousand_do(measured):
    few, many = measured("store", 5_000), measured("store", 50_000)
    for count in ("has", "done", "skipped", "rows"):
        assert many[count] == 50_000
    for step in ("has", "done", "resume", "frame"):
        # Python reads a few files, too, when something is first used.
        assert many[f"{step}_reads"] <= 10 * few[f"{step}_reads"] + 1_000, step
        # CPU time; reading every record for each query would take a hundred times as long.
        assert many[f"{step}_seconds"] < 50 * few[f"{step}_seconds"] + 10, step
    assert many["frame_peak_mb"] < 2_000


@pytest.mark.slow
def test_a_million_sparse_rows_with_two_hundred_labels_train_within_twelve_gigabytes(measured):
    figures = measured("dataset", 10**6)
    assert figures["minority_labels"] > 50
    assert figures["epoch_peak_mb"] < LIMIT_MB
    assert 0 < figures["macro_auc"] < 1


def test_small_versions():
    assert work.selector(100_000, batches=1_000)["growth_mb"] < 5
    figures = work.store(100)
    assert [figures[name] for name in ("has", "done", "skipped", "rows")] == [100] * 4
    assert 0 < work.dataset(2_000)["macro_auc"] < 1


def test_a_forecast_does_not_slow_down_with_the_runs_done():
    specs = [RunSpec(dataset="mine", dataset_digest="", seed=seed) for seed in range(5_000)]
    forecast = Forecast({})
    began = time.process_time()
    for spec in specs:
        forecast.learn(spec, 2.0)
    assert forecast.seconds(specs) == pytest.approx(2.0 * len(specs))
    assert time.process_time() - began < 30  # CPU seconds; recomputing all averages took minutes
