"""The paper's facts about labels and neighborhoods, with numbers worked out by hand.

Six rows on a line, at 0, 1, 2, 3, 10 and 11, with three labels:

    row     x    a  b  c
    0       0    1  1  0
    1       1    1  1  0
    2       2    1  0  1
    3       3    1  0  0
    4      10    0  1  0
    5      11    1  0  0

Counts are a: 5, b: 3, c: 1.
"""

import numpy as np
import pytest

from tailbatch.imbalance import (
    imbalance_ratio,
    label_cardinality,
    label_cooccurrence,
    label_density,
    local_imbalance,
    local_imbalance_share,
    mean_imbalance_ratio,
    minority_labels,
    nearest_neighbors,
    selection_weights,
)

X = np.array([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0]])
Y = np.array(
    [[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0]],
    dtype=bool,
)


def test_cardinality_and_density():
    assert label_cardinality(Y) == 9 / 6
    assert label_density(Y) == 9 / 18


def test_equation_1_imbalance_ratio_and_its_mean():
    assert imbalance_ratio(Y).tolist() == [5 / 5, 5 / 3, 5 / 1]
    assert mean_imbalance_ratio(Y) == pytest.approx((1 + 5 / 3 + 5) / 3)  # 2.556


def test_minority_labels_exceed_the_mean():
    assert minority_labels(Y).tolist() == [False, False, True]


def test_the_two_nearest_neighbors():
    # Row 1 lies between 0 and 2, row 2 between 1 and 3: equal distances, lower index first.
    expected = [[1, 2], [0, 2], [1, 3], [2, 1], [5, 3], [4, 3]]
    assert nearest_neighbors(X, np.arange(6), k=2).tolist() == expected


def test_equation_2_local_imbalance():
    # Label a: rows 0 to 3 have neighbors that all carry it; row 5 has row 4, which does not.
    # Label b: row 0 has neighbor 1 with and 2 without it, row 1 has 0 with and 2 without,
    # row 4 has 5 and 3, both without. Label c: row 2 is alone.
    expected = [[0, 0.5, 0], [0, 0.5, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0], [0.5, 0, 0]]
    assert local_imbalance(X, Y, k=2).tolist() == expected


def test_equation_4_local_imbalance_share():
    # Column b without its noise (row 4) sums to 1; column c has nothing but noise.
    expected = [[0, 0.5, 0], [0, 0.5, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert local_imbalance_share(local_imbalance(X, Y, k=2)).tolist() == expected


def test_selection_weights_add_the_shares_of_minority_labels():
    assert selection_weights(X, Y, k=2).tolist() == [1] * 6  # c is noise, a and b no minority
    # With label c on row 3 too: counts 5, 3, 2, MeanIR (1 + 5/3 + 5/2) / 3 = 1.72, so c alone is
    # minority. Row 2 has neighbors 1 and 3: half share c. Row 3 has 2 and 1: half. Shares 1/2.
    more = Y.copy()
    more[3, 2] = True
    assert selection_weights(X, more, k=2).tolist() == [1, 1, 1.5, 1.5, 1, 1]


def test_label_cooccurrence_is_the_mean_of_both_conditional_probabilities():
    # a and b meet in rows 0 and 1: (2/5 + 2/3) / 2; a and c in row 2: (1/5 + 1/1) / 2.
    ab, ac = (2 / 5 + 2 / 3) / 2, (1 / 5 + 1) / 2
    assert label_cooccurrence(Y) == pytest.approx(np.array([[0, ab, ac], [ab, 0, 0], [ac, 0, 0]]))
