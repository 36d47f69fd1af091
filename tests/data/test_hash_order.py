"""That nothing read from a file depends on the order of Python's sets, which differs from run to run."""

import json
import os
import subprocess
import sys

import pytest

from tailbatch.data import load_dataset

_READ = """
import sys
from tailbatch.data import load_dataset
data = load_dataset(sys.argv[1], labels="tags")
print(data.feature_names, data.label_names, dict(data.columns.taken), data.digest, sep="\\n")
"""


def _read(path, hash_seed):
    return subprocess.run(
        [sys.executable, "-c", _READ, str(path)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    ).stdout


@pytest.fixture
def json_lines(tmp_path):
    """Seven columns and more texts than are looked at: half of two words."""
    rows = [
        {"length": k, "height": k * k % 7, "width": k % 5, "color": "rgb"[k % 3], "size": k % 11}
        | {"subject": f"w{k} said" + " so" * (k % 2), "tags": ["a", "b"][: 1 + k % 2]}
        | {"late": k % 2}
        for k in range(2500)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_columns_are_the_same_with_every_hash_seed(json_lines):
    assert len({_read(json_lines, seed) for seed in ("0", "1", "2", "3")}) == 1


def test_columns_of_json_lines_come_in_the_order_of_the_records(json_lines):
    taken = load_dataset(json_lines, labels="tags").columns.taken
    assert list(taken) == ["length", "height", "width", "color", "size", "subject", "late"]
