"""Helpers of the selection room, on small numbers."""

import numpy as np
from scipy import sparse

from tailbatch.selection import Constant, Geometric
from tailbatch.selection.importance import _checked_positive_weights, _prior_norms
from tailbatch.selection.inputs import _Efficiency, _in_fixed_order, _label_cells, _last_of_each
from tailbatch.selection.loss_driven import _as_schedule
from tailbatch.selection.rarity import _rarity
from tailbatch.selection.shown import _as_html, _as_lines


def test_cells_of_labels_are_alike_dense_and_sparse():
    Y = np.array([[True, False], [True, True]])
    for labels in (Y, sparse.csr_array(Y)):
        row, label = _label_cells(labels, np.array([1, 0]))
        assert (row.tolist(), label.tolist()) == ([0, 0, 1], [0, 1, 0])


def test_values_in_order_are_not_copied():
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert _in_fixed_order(rows) is rows
    assert _in_fixed_order(rows.T).flags.c_contiguous


def test_the_last_occurrence_of_each_sample():
    assert _last_of_each(np.array([5, 2, 5])).tolist() == [1, 2]


def test_schedules_of_numbers_pairs_and_labels():
    Y = np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)
    assert _as_schedule(4) == Constant(4.0)
    assert _as_schedule("imbalance", Y) == Constant(1.5)
    assert _as_schedule((64, 1)) == Geometric(64, 1)


def test_rarity_is_that_of_the_rarest_label():
    Y = np.array([[True, True], [True, False], [False, False]])
    assert _rarity(Y, power=1.0).tolist() == [2, 1, 1]


def test_norms_of_a_model_that_knows_the_prior():
    Y = np.array([[1, 0], [0, 0], [0, 1], [0, 0]], dtype=bool)
    assert _prior_norms(Y, np.array([3.0, 1.0])).round(3).tolist() == [1.521, 0.559, 0.901, 0.559]


def test_positive_weights_become_floats():
    weights = _checked_positive_weights([1, 3], 2)
    assert weights.dtype == np.float64
    assert weights.tolist() == [1, 3]


def test_efficiency_compares_second_moments():
    efficiency = _Efficiency(batches=10)
    efficiency.add(np.array([4.0, 1.0]), np.array([0.25, 1.0]))
    assert (efficiency.gain, efficiency.heaviest_share) == (1.25, 0.8)


def test_rows_of_names_and_values():
    lines = _as_lines([("epoch", "1"), ("effective samples", "8")], "Fine.")
    assert lines == "epoch               1\neffective samples   8\nFine."
    html = "<table><tr><th style='text-align:left'>a</th><td>&lt;1</td></tr></table>"
    assert _as_html([("a", "<1")]) == html
