import numpy as np
import pytest
from scipy import sparse

from tailbatch.data.dataset import MultiLabelDataset
from tailbatch.report.description import describe


def dataset(X, Y, **names):
    return MultiLabelDataset.from_arrays(np.asarray(X, dtype=float), Y, **names)


@pytest.fixture
def six_rows():
    """Positives 4, 2, 1 and 0; one empty row; a constant and a repeated row of features."""
    Y = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    X = [[7, 0], [7, 1], [7, 2], [7, 3], [7, 4], [7, 3]]
    return dataset(X, Y, name="six", label_names=["a", "b", "c", "d"], feature_names=["k", "v"])


def test_facts_worked_out_by_hand(six_rows):
    facts = describe(six_rows)
    assert (facts.n_samples, facts.n_features, facts.n_labels) == (6, 2, 4)
    assert facts.label_cardinality == pytest.approx(8 / 6)
    assert facts.label_density == pytest.approx(8 / 24)
    assert facts.mean_imbalance_ratio == pytest.approx((1 + 5 / 2 + 5) / 3)
    assert facts.distinct_label_sets == 4
    assert facts.feature_density == pytest.approx(11 / 12)
    assert facts.n_minority_labels == 0  # none has five positives but the commonest
    assert facts.minority_row_share == 0
    assert facts.digest == six_rows.digest


def test_rare_labels_and_their_rows():
    facts = describe(dataset(np.eye(100), np.arange(100)[:, None] < [80, 60, 10, 8, 1]))
    assert [label.is_minority for label in facts.labels] == [False, False, True, True, False]
    assert (facts.n_minority_labels, facts.minority_row_share) == (2, 0.1)


def test_labels_come_commonest_first(six_rows):
    labels = describe(six_rows).labels
    assert [(label.name, label.positives, label.is_minority) for label in labels] == [
        ("a", 5, False),
        ("b", 2, False),
        ("c", 1, False),
        ("d", 0, False),
    ]
    assert labels[1].share == pytest.approx(2 / 6)
    assert labels[1].imbalance_ratio == pytest.approx(2.5)
    assert labels[3].imbalance_ratio == np.inf


def test_cooccurrence_is_the_share_of_the_rows_with_the_first_label(six_rows):
    together = describe(six_rows).cooccurrence
    assert together.names == ("a", "b", "c", "d")
    assert together.share[0] == pytest.approx((1, 2 / 5, 1 / 5, 0))
    assert together.share[2] == pytest.approx((1, 1, 1, 0))
    assert together.share[3] == pytest.approx((0, 0, 0, 0))


def test_every_oddity_has_its_sentence(six_rows):
    assert describe(six_rows).warnings == (
        "1 label has no positive: d",
        "1 label has a single positive: c",
        "1 row has no label",
        "1 row has the same features as an earlier row",
        "1 feature has the same value in every row: k",
    )


def test_twins_with_other_labels_are_counted():
    facts = describe(dataset([[1], [1], [2], [2], [2]], [[1], [0], [1], [1], [1]]))
    assert (
        "3 rows have the same features as an earlier row; "
        "1 of these groups disagree in their labels" in facts.warnings
    )


def test_minus_zero_is_zero():
    facts = describe(dataset([[0.0], [-0.0]], [[1, 0], [1, 0]]))
    assert "1 row has the same features as an earlier row" in facts.warnings


def test_a_label_in_every_row_is_odd():
    facts = describe(dataset([[1], [2]], [[1, 0], [1, 1]]))
    assert "1 label has no negative: label_0" in facts.warnings


def test_long_lists_of_names_are_cut():
    facts = describe(dataset(np.arange(3)[:, None], np.eye(3, 9, dtype=bool)))
    assert "6 labels have no positive: label_3, label_4, label_5, label_6, label_7 and 1 more" in (
        facts.warnings
    )


def test_a_clean_dataset_has_no_warnings():
    Y = [[1, 0], [1, 1], [1, 1], [0, 1]]
    assert describe(dataset([[1], [2], [3], [4]], Y)).warnings == ()


def test_the_readers_notices_are_passed_on():
    data = MultiLabelDataset("x", np.eye(2), np.eye(2, dtype=bool), ("a", "b"), ("c", "d"), ("!",))
    assert describe(data).warnings[0] == "!"


def test_storage_makes_no_difference(six_rows):
    stored = MultiLabelDataset.from_arrays(
        sparse.csr_array(six_rows.X),
        six_rows.Y,
        name="six",
        label_names=six_rows.label_names,
        feature_names=six_rows.feature_names,
    )
    dense, csr = vars(describe(six_rows)), vars(describe(stored))
    assert csr.pop("feature_storage") == "sparse"
    assert dense.pop("feature_storage") == "dense"
    assert csr == dense


def test_many_labels_are_counted_sparse():
    rows = np.arange(1500)
    Y = sparse.csr_array((np.ones(1500, dtype=bool), (rows, rows)))
    facts = describe(MultiLabelDataset.from_arrays(rows[:, None], Y))
    assert facts.n_labels == facts.distinct_label_sets == 1500


def test_labels_without_features_can_be_described():
    facts = describe(dataset(np.empty((3, 0)), [[1, 0], [1, 1], [0, 1]]))
    assert facts.n_features == 0
    assert facts.feature_density == 0
    assert facts.warnings == ()
