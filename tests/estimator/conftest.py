"""What several tests of the estimator need."""

import pytest


@pytest.fixture
def card_of(tmp_path):
    """Return a function that saves a classifier and returns the card that lies beside it."""

    def read(classifier):
        classifier.save(tmp_path / "card")
        return (tmp_path / "card" / "README.md").read_text(encoding="utf-8")

    return read
