"""The page on what selection adds follows from the committed records."""

from reproduction.few_epochs import page as evidence


def test_the_page_follows_from_the_records():
    assert evidence.page() == evidence.PAGE.read_text(), "run `python -m reproduction.few_epochs`"


def test_every_placeholder_is_filled():
    assert evidence.page().count("<!--") == 1  # who wrote it


def test_every_budget_compares_all_strategies_on_all_datasets():
    for runs in evidence.budgets().values():
        counted = runs.groupby(["data", "learner"])["arm"].nunique()
        assert counted.nunique() == 1
