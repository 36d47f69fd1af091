"""The page's table of the default estimator follows from the committed records."""

import json
from pathlib import Path

import pandas as pd
from benchmarks.default_estimator import RECORDS, table

PAGE = Path(__file__).parent.parent / "docs" / "training.md"


def test_the_table_follows_from_the_records():
    shown = table(pd.DataFrame(json.loads(RECORDS.read_text())))
    assert shown in PAGE.read_text(), "run `python -m benchmarks.default_estimator`"
