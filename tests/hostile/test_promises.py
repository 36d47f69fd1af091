"""The counts on the page of promises are those of the code."""

import re
from pathlib import Path

import pytest
from fuzzing.targets import TARGETS

from hostile import test_any_bytes, test_commands
from patience import HUNG
from selection.test_any_order import CASES
from tailbatch.selection import STRATEGIES

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "promises.md").read_text().split())


def files_in(folder):
    return sum(path.is_file() for path in (ROOT / "fuzzing" / folder).rglob("*"))


@pytest.mark.parametrize(
    "sentence",
    [
        f"every corpus and regression file of {len(TARGETS)} targets",
        f"mutations of each of the {files_in('corpus')} corpus files",
        f"{len(test_any_bytes.FILES)} small files that once took",
        f"{len(test_commands.COMMANDS)} commands on {len(test_commands.FILES)} files",
        f"Fixed so far: {files_in('regressions')} regression files",
        f"{100 * len(CASES):,} walks over {len(STRATEGIES)} strategies and "
        f"{len(CASES) - len(STRATEGIES)} variants",
        f"Time limits are {HUNG} s",
    ],
)
def test_the_page_has_the_count_of_the_code(sentence):
    assert sentence in PAGE


def test_the_fuzz_table_has_a_row_for_each_target():
    table = PAGE.partition("| reader | inputs |")[2].partition("Fixed so far")[0]
    assert re.findall(r"\| ([a-z]+) \| (?:[\d,]+|not run) \|", table) == list(TARGETS)
