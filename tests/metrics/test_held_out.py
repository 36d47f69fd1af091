"""Rules on held-out scores: calibration, thresholds for an objective, intervals."""

import numpy as np
import pytest
from scipy.special import expit

from tailbatch.errors import DataError
from tailbatch.metrics import (
    Calibration,
    cross_tuned_f,
    decide,
    expected_calibration_error,
    f_by_label,
    f_intervals,
    parse_objective,
    thresholds_for,
    tune_thresholds,
)


@pytest.fixture
def case():
    """Return labels drawn with known probabilities, and their logits, (3000, 4)."""
    rng = np.random.default_rng(0)
    logits = rng.normal([-3.0, -2.0, -1.0, -5.0], 2.0, size=(3000, 4))
    return rng.random(logits.shape) < expit(logits), logits


def test_a_distorted_logit_is_found_again(case):
    Y, logits = case
    distorted = (logits + np.array([1.0, -0.5, 0.0, 0.3])) / 0.5
    found = Calibration.fit(Y, distorted)
    assert found.slope == pytest.approx(0.5, rel=0.1)
    assert found.offsets[:3] == pytest.approx([-1.0, 0.5, 0.0], abs=0.25)
    before, after = (expected_calibration_error(Y, expit(z)) for z in (distorted, found(distorted)))
    assert after < before / 5


def test_right_probabilities_stay(case):
    Y, logits = case
    found = Calibration.fit(Y, logits)
    assert found.slope == pytest.approx(1, abs=0.1)
    assert np.abs(found.offsets).max() < 0.3


def test_the_offset_of_a_label_with_few_positives_stays_near_the_common_one(case):
    Y, logits = case
    few = np.column_stack([Y, np.arange(3000) == 0])
    z = np.column_stack([logits, np.full(3000, 2.0)])
    z[:, 4] = -2.0  # claims 350 positives, has one
    full = Calibration.fit(few[:, [4]], z[:, [4]])
    shrunk = Calibration.fit(few[:60], z[:60])
    assert full.offsets[0] < shrunk.offsets[4] <= 0.5


def test_no_fit_turns_the_order_around():
    z = np.linspace(-3, 3, 50)[:, None]
    assert Calibration.fit(z < 0, z).slope > 0
    assert np.isfinite(Calibration.fit(np.zeros((50, 1), bool), z).offsets).all()
    assert np.isfinite(Calibration.fit(np.ones((50, 1), bool), z).offsets).all()


def test_cells_that_nobody_knows_do_not_count(case):
    Y, logits = case
    known = np.arange(len(Y))[:, None] < np.full(4, 2000)
    spoiled = np.where(known, Y, ~Y)
    one, other = Calibration.fit(spoiled, logits, known), Calibration.fit(Y[:2000], logits[:2000])
    assert one.slope == pytest.approx(other.slope, abs=1e-4)
    assert one.offsets == pytest.approx(other.offsets, abs=1e-3)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_precision_and_recall_are_kept_where_positives_are_many(case, level):
    Y, logits = case
    p = expit(logits)
    precise = decide(p, thresholds_for(Y, p, f"precision>={level}"))
    found = decide(p, thresholds_for(Y, p, f"recall>={level}"))
    hits = (Y & precise).sum(0)[:3] / precise.sum(0)[:3]
    assert (hits >= level - 0.05).all()
    assert ((Y & found).sum(0) / Y.sum(0) >= level - 0.05)[:3].all()
    assert ((Y & found).sum(0) / Y.sum(0) <= level + 0.1)[:3].all()


def test_f1_is_the_shrunken_rule(case):
    Y, logits = case
    p = expit(logits)
    assert np.array_equal(thresholds_for(Y, p), tune_thresholds(Y, p))


def test_labels_without_positives_go_by_their_probabilities():
    p = np.full((40, 1), 0.05)
    Y = np.zeros((40, 1), dtype=bool)
    nothing = thresholds_for(Y, p, "precision>=0.9")
    assert not decide(p, nothing).any()
    assert decide(p, thresholds_for(Y, p, "recall>=0.9")).all()


@pytest.mark.parametrize("wrong", ["f2", "precision", "recall>=1.5", "recall>=0", 0.9, None])
def test_other_objectives_are_refused(wrong):
    with pytest.raises(DataError, match='objective must be "f1"'):
        parse_objective(wrong)


def test_the_interval_is_that_of_drawing_rows_anew(case):
    Y, logits = case
    decided = logits > -0.5
    low, high = f_intervals(Y, decided)
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(400):
        f = []
        for j in range(4):
            rows = np.concatenate(
                [rng.choice(np.flatnonzero(Y[:, j] == v), (Y[:, j] == v).sum()) for v in (0, 1)]
            )
            f.append(f_by_label(Y[rows][:, [j]], decided[rows][:, [j]])[0])
        drawn.append(f)
    expected = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert np.array([low, high]) == pytest.approx(expected, abs=0.03)
    assert np.isnan(f_intervals(np.zeros((5, 1), bool), np.zeros((5, 1), bool))).all()


def test_cross_tuned_decisions_use_the_thresholds_of_the_other_parts(case):
    Y, logits = case
    p, part = expit(logits), np.arange(len(Y)) % 3
    decided, f = cross_tuned_f(Y, p, part)
    limits = tune_thresholds(Y[part != 1], p[part != 1])
    assert np.array_equal(decided[part == 1], p[part == 1] > limits)
    assert f == pytest.approx(f_by_label(Y, decided))
    assert f.mean() <= f_by_label(Y, decide(p, tune_thresholds(Y, p))).mean() + 0.01
