"""The page on what selection adds follows from the committed records."""

from reproduction.selection import __main__ as evidence


def test_the_page_follows_from_the_records():
    page = evidence.page(evidence.by_budget())
    assert page == evidence.PAGE.read_text(), "run `python -m reproduction.selection`"


def test_every_budget_compares_all_strategies_on_all_datasets():
    for runs in evidence.by_budget().values():
        counted = runs.groupby(["data", "learner"])["arm"].nunique()
        assert counted.nunique() == 1
