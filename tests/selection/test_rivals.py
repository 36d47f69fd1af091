"""Other published strategies: the contract, their formulas, and the exact distribution of batches."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import mutual_info_score

from contracts.selector_contract import WholeSelectorContract
from selection.reference import low_score_law, ordered_batches, p_value
from selection.test_selectors import LossDrivenContract, labels
from tailbatch.errors import SelectionError
from tailbatch.selection import (
    BoundarySelector,
    ClassAwareSelector,
    CoverageSelector,
    D2ACESelector,
    Geometric,
    RecencySelector,
    UncertaintySelector,
    make_selector,
)
from tailbatch.selection.rivals import predictions
from tailbatch.selection.rivals.label_first import _class_aware_probabilities
from tailbatch.selection.rivals.predictions import _uncertainty_law
from tailbatch.testing.selector_contract import N, _drain

Y = np.array(
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool
)


def features(n):
    return np.stack([np.arange(n) % 7, np.arange(n) % 5], axis=1).astype(float)


# ---- the contract ------------------------------------------------------------------------------


class TestClassAware(WholeSelectorContract):
    def make(self, n=N, **settings):
        return ClassAwareSelector(labels(n), **{"batch_size": 5, **settings})


class TestClassAwareCorrected(WholeSelectorContract):
    repeats = True

    def make(self, n=N, **settings):
        return ClassAwareSelector(labels(n), corrected=True, **{"batch_size": 5, **settings})


class TestCoverage(WholeSelectorContract):
    def make(self, n=N, **settings):
        return CoverageSelector(labels(n), positives=1, **{"batch_size": 5, **settings})


class PerLabelContract(WholeSelectorContract):
    """What strategies that read predictions off the losses promise besides."""

    per_label = True

    def test_losses_averaged_over_labels_are_refused(self):
        selector = self.make()
        next(iterator := iter(selector))
        message = rf"{selector.strategy} needs the loss of each label, shape \(5, 3\)"
        self.refused(selector, message, np.ones(5))
        self.refused(selector, message, np.ones((5, 2)))
        del iterator

    @pytest.mark.parametrize("pressure", [0.5, np.nan, "16", None])
    def test_unusable_pressures_say_so(self, pressure):
        with pytest.raises(SelectionError, match="selection_pressure must be"):
            self.make(selection_pressure=pressure)


class TestBoundary(PerLabelContract, LossDrivenContract):
    def make(self, n=N, **settings):
        return BoundarySelector(labels(n), **{"batch_size": 5, **settings})


class TestRecency(PerLabelContract):
    history_bytes = 2 * 3 + 1

    def make(self, n=N, **settings):
        return RecencySelector(labels(n), **{"batch_size": 5, "epochs": 5, **settings})


class TestRecencyCorrected(TestRecency):
    repeats = True

    def make(self, n=N, **settings):
        return super().make(n, corrected=True, **settings)


class TestUncertainty(PerLabelContract):
    history_bytes = 2 * 3 * 5 + 1

    def make(self, n=N, **settings):
        return UncertaintySelector(labels(n), **{"batch_size": 5, "epochs": 5, **settings})


class TestD2ACE(PerLabelContract):
    history_bytes = 2 * 3 * 6 + 1

    def make(self, n=N, **settings):
        options = {"batch_size": 5, "epochs": 5, **settings}
        return D2ACESelector(labels(n), features(n), **options)


class TestD2ACECorrected(TestD2ACE):
    repeats = True

    def make(self, n=N, **settings):
        return super().make(n, corrected=True, **settings)


# ---- class_aware -------------------------------------------------------------------------------


def label_sequences(q, size):
    """All equally likely beginnings of a shuffled cycle of q labels."""
    rounds = [()]
    for _ in range(-(-size // q)):
        rounds = [before + order for before in rounds for order in permutations(range(q))]
    return [each[:size] for each in rounds]


def class_aware_batches(Y, floor, size):
    n = len(Y)
    law = _class_aware_probabilities(Y, floor)
    without = [i for i in range(n) if not Y[i].any()]
    known = [j for j in range(Y.shape[1]) if Y[:, j].any()]
    share = floor * len(without) / n
    chances = Counter()
    sequences = label_sequences(len(known), size)
    for sequence in sequences:
        batches = {(): 1.0}
        for place in sequence:
            longer = Counter()
            carriers = [i for i in range(n) if Y[i, known[place]]]
            for batch, chance in batches.items():
                for rows, part in ((without, share), (carriers, 1 - share)):
                    left = [i for i in rows if i not in batch]
                    weights = {i: 1.0 for i in left}
                    if not left:
                        weights = {i: law[i] for i in range(n) if i not in batch}
                    for i, weight in weights.items():
                        longer[(*batch, i)] += chance * part * weight / sum(weights.values())
            batches = longer
        for batch, chance in batches.items():
            chances[batch] += chance / len(sequences)
    return chances


def first_batches(selector, count):
    return Counter(
        tuple(selector._draw(selector.batch_size, epoch, 0).tolist()) for epoch in range(count)
    )


@pytest.mark.parametrize("floor", [1.0, 0.3])
@pytest.mark.parametrize("size", [2, 4])
def test_class_aware_batches_follow_their_definition(size, floor):
    selector = ClassAwareSelector(Y, batch_size=size, floor=floor)
    chances = class_aware_batches(Y, floor, size)
    assert p_value(first_batches(selector, 6000), chances) > 1e-6
    firsts = Counter()
    for batch, chance in chances.items():
        firsts[batch[0]] += chance
    np.testing.assert_allclose(selector.probabilities(), [firsts[i] for i in range(6)])


def test_every_label_comes_equally_often():
    Y = np.repeat(np.eye(4, dtype=bool), [200, 50, 10, 5], axis=0)
    selector = ClassAwareSelector(Y, batch_size=8)
    batches = list(selector)[:-1]
    assert all(Y[batch].sum(axis=0).tolist() == [2, 2, 2, 2] for batch in batches)


def test_the_cycle_continues_from_batch_to_batch():
    Y = np.repeat(np.eye(5, dtype=bool), 100, axis=0)
    drawn = np.concatenate(list(ClassAwareSelector(Y, batch_size=3))[:5])
    assert Y[drawn].sum(axis=0).tolist() == [3, 3, 3, 3, 3]


# ---- coverage ----------------------------------------------------------------------------------


def coverage_batches(Y, weights, covered, positives, size):
    n = len(Y)
    known = [j for j in range(Y.shape[1]) if Y[:, j].any()]
    chances = Counter()

    def spread(batch, chance, todo):
        if len(batch) == size:
            chances[batch] += chance
            return
        rows = [i for i in range(n) if i not in batch]
        if todo:
            label = known[todo[0]]
            left = [i for i in rows if Y[i, label]]
            if Y[list(batch), label].sum() >= positives or not left:
                spread(batch, chance, todo[1:])
                return
            rows = left
        for i in rows:
            spread((*batch, i), chance * weights[i] / weights[rows].sum(), todo)

    sequences = label_sequences(len(known), covered)
    for sequence in sequences:
        spread((), 1 / len(sequences), sequence)
    return chances


@pytest.mark.parametrize(
    ("covered", "positives", "power"), [(1, 1, 0.0), (2, 1, 1.0), (1, 2, 0.5), (3, 1, 0.0)]
)
def test_covering_batches_follow_their_definition(covered, positives, power):
    selector = CoverageSelector(
        Y, batch_size=4, labels_per_batch=covered, positives=positives, power=power
    )
    weights = np.array([1, 1.5, 1.5, 1, 3, 1]) ** power
    chances = coverage_batches(Y, weights, covered, positives, 4)
    assert p_value(first_batches(selector, 6000), chances) > 1e-6


def test_every_covered_label_has_its_positives_or_all_it_has():
    rng = np.random.default_rng(0)
    Y = rng.random((300, 12)) < np.linspace(0.003, 0.3, 12)
    selector = CoverageSelector(sparse.csr_array(Y), batch_size=32, positives=3, labels_per_batch=8)
    wanted = np.minimum(Y.sum(axis=0), 3)
    batches = list(selector)[:-1]
    reached = np.array([(Y[batch].sum(axis=0) >= wanted) for batch in batches])
    assert (reached.sum(axis=1) >= 8).all()
    assert reached.any(axis=0).all(), "labels take turns"


# ---- recency and boundary ----------------------------------------------------------------------


def entropy(p):
    return 0.0 if p in (0, 1) else -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


def test_recency_follows_the_last_decisions():
    rng = np.random.default_rng(1)
    n, q, window = 12, 3, 4
    Y = rng.random((n, q)) < 0.5
    selector = RecencySelector(Y, batch_size=5, window=window, selection_pressure=16)
    decisions = [[[] for _ in range(q)] for _ in range(n)]
    for _ in range(6):
        for index in selector:
            p = rng.random((len(index), q))
            selector.observe(-np.log(np.where(Y[index], p, 1 - p)))
            for row, i in zip(p, index, strict=True):
                for j in range(q):
                    decisions[i][j] = [*decisions[i][j], row[j] >= 0.5][-window:]
            certainty = [
                1 - np.mean([entropy(np.mean(d)) for d in of_labels]) if of_labels[0] else np.nan
                for of_labels in decisions
            ]
            expected = low_score_law(certainty, 16, largest=1.0)
            np.testing.assert_allclose(selector.probabilities(), expected, rtol=1e-9)


def test_boundary_prefers_what_is_near_one_half():
    Y = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool)
    p = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.6], [0.0, 0.5]])
    with np.errstate(divide="ignore"):
        losses = -np.log(np.where(Y, p, 1 - p))
    selector = BoundarySelector(Y, batch_size=4, initial_losses=losses, selection_pressure=16)
    expected = low_score_law(np.abs(p - 0.5).mean(axis=1), 16)
    np.testing.assert_allclose(selector.probabilities(), expected)


# ---- uncertainty and d2ace ---------------------------------------------------------------------


class Remembered:
    """The predictions of all samples, as lists, and what the papers make of them."""

    def __init__(self, Y, window=5):
        self.Y, self.window = Y, window
        self.history = [[] for _ in Y]
        self.flips = np.zeros(Y.shape)

    def add(self, index, p):
        for i, row in zip(index, p, strict=True):
            row = np.float16(row).astype(float)
            if self.history[i]:
                change = np.abs(row - self.history[i][-1])
                self.flips[i] = np.float16(0.7 * change + 0.3 * self.flips[i])
            self.history[i].append(row)

    def uncertainty(self):
        u = np.zeros(self.Y.shape)
        for i, rows in enumerate(self.history):
            rows = rows[-self.window :]
            changes = [np.abs(b - a) for a, b in pairwise(rows)]
            change = np.mean(changes, axis=0) if changes else 0.0
            u[i] = 0.5 * change + 0.5 * np.array([entropy(p) for p in rows[-1]])
        return u

    def hardness(self):
        latest = np.array([rows[-1] for rows in self.history])
        return np.abs(latest - self.Y) * (1 - self.flips)


def trained(selector, Y, epochs):
    """Let a selector see random doubt, beside the reference."""
    reference = Remembered(Y)
    rng = np.random.default_rng(2)
    for _ in range(epochs):
        for index in selector:
            p = rng.beta(0.7, 0.7, (len(index), Y.shape[1])).clip(1e-6, 1 - 1e-6)
            p = np.float16(p).astype(float).clip(1e-6, 1 - 1e-3)
            selector.observe(-np.log(np.where(Y[index], p, 1 - p)))
            reference.add(index, p)
    return reference


def test_uncertainty_is_the_papers_and_its_correlations_drop_out():
    rng = np.random.default_rng(3)
    Y = rng.random((40, 4)) < 0.4
    selector = UncertaintySelector(Y, batch_size=40, selection_pressure=8)
    reference = trained(selector, Y, epochs=7)
    u = reference.uncertainty()
    levels = np.minimum((u * 5).astype(int), 4)
    information = np.array(
        [[mutual_info_score(levels[:, a], levels[:, b]) for b in range(4)] for a in range(4)]
    )
    np.fill_diagonal(information, 1.0)
    information /= information.sum(axis=1, keepdims=True)
    w = (u @ information).sum(axis=1)
    np.testing.assert_allclose(selector._scores(), w, rtol=1e-3)
    np.testing.assert_allclose(selector._scores(), u.sum(axis=1), rtol=1e-3)


@pytest.mark.parametrize("pressure", [1, 8, 100])
def test_the_law_of_uncertainty_is_its_definition(pressure):
    scores = [3.0, 1.0, np.nan, 2.0, 1.3, 2.9]
    known = [s for s in scores if not np.isnan(s)]
    low, high = min(known), max(known)
    w = [1.0 if np.isnan(s) else (s - low) / (high - low) for s in scores]
    expected = low_score_law([1 - each for each in w], pressure, largest=1.0)
    np.testing.assert_allclose(_uncertainty_law(np.array(scores), pressure), expected)
    for same in (np.full(3, np.nan), np.full(3, 0.5)):
        np.testing.assert_allclose(_uncertainty_law(same, pressure), 1 / 3)


def test_batches_follow_the_probabilities_of_their_epoch():
    rng = np.random.default_rng(4)
    Y = rng.random((6, 3)) < 0.5
    selector = UncertaintySelector(Y, batch_size=3, selection_pressure=8)
    trained(selector, Y, epochs=3)
    selector._start_epoch(3)
    drawn = Counter(tuple(selector._draw(3, 3, number).tolist()) for number in range(3000))
    assert p_value(drawn, ordered_batches(selector.probabilities(), 3)) > 1e-6


def d2ace_scores(m, Y, context):
    n, q = Y.shape
    v = [np.exp(0.5 * m[:, j].mean() + 0.5 * m[:, j].std()) for j in range(q)]
    masked = m * Y
    C = np.zeros((q, q))
    for a in range(q):
        for b in range(q):
            sizes = np.linalg.norm(masked[:, a]) * np.linalg.norm(masked[:, b])
            C[a, b] = masked[:, a] @ masked[:, b] / sizes if sizes else 0.0
    C = [row / row.sum() if row.sum() else row for row in C]
    scores = np.zeros(n)
    for i in range(n):
        for j in range(q):
            S = sum(context[i, k] * C[j][k] for k in range(q))
            scores[i] += v[j] * m[i, j] + Y[i, j] * v[j] * m[i, j] * S
    return scores


def test_d2ace_scores_and_probabilities_are_the_papers():
    rng = np.random.default_rng(5)
    Y = rng.random((30, 4)) < [0.5, 0.3, 0.1, 0.0]
    X = rng.random((30, 2))
    selector = D2ACESelector(Y, X, batch_size=7, epochs=9, k=3)
    reference = trained(selector, Y, epochs=9)
    assert all(reference.history), "every sample was drawn"
    context = np.zeros(Y.shape)
    for i in range(30):
        near = np.argsort(((X - X[i]) ** 2).sum(axis=1))[:4]  # itself and three others
        context[i] = Y[near].any(axis=0)
    u, h = reference.uncertainty(), reference.hardness()
    by_u, by_h = d2ace_scores(u, Y, context), d2ace_scores(h, Y, context)
    np.testing.assert_allclose(selector._scores(selector._uncertainty), by_u, rtol=2e-3)
    np.testing.assert_allclose(selector._scores(selector._hardness), by_h, rtol=2e-3)
    exact = [selector._scores(metric) for metric in (selector._uncertainty, selector._hardness)]
    for epoch, beta, pressure in [(0, 0.7, 8), (3, 0.5, 8 ** (5 / 8)), (6, 0.3, 8 ** (2 / 8))]:
        assert selector.beta(epoch) == pytest.approx(beta)
        p_u, p_h = (_uncertainty_law(scores, pressure) for scores in exact)
        np.testing.assert_allclose(selector._renewed(epoch), beta * p_u + (1 - beta) * p_h)


def test_a_window_holds_float16_and_says_when_it_does_not_fit(monkeypatch):
    selector = UncertaintySelector(Y, batch_size=2, selection_pressure=2)
    _drain(selector, lambda index, step: np.full((len(index), 4), 0.3))
    assert np.asarray(selector.state_dict()["predictions"]).dtype == np.float16
    monkeypatch.setattr(predictions, "_physical_memory", lambda: 100.0)
    for kind, options in (
        (UncertaintySelector, {}),
        (RecencySelector, {"window": 3}),
    ):
        large = np.ones((40, 4), dtype=bool)
        with pytest.raises(
            SelectionError, match=r"GB of predictions, and this machine has .*: use "
        ):
            kind(large, batch_size=2, selection_pressure=2, **options)


# ---- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("class_aware", {"floor": 0}, "floor must be above 0 and at most 1, got 0"),
        ("class_aware", {"floor": "1"}, "floor must be above 0"),
        ("class_aware", {"selection_pressure": 4}, "class_aware has no selection_pressure"),
        ("coverage", {"positives": 0}, "positives must be a whole number from 1, got 0"),
        ("coverage", {"labels_per_batch": 4}, "more than the 3 labels that have rows"),
        ("coverage", {"labels_per_batch": 3, "positives": 2}, "need a batch of 6 rows"),
        ("coverage", {"labels_per_batch": 2}, "rows without labels would never be drawn"),
        ("coverage", {"power": -1}, "power must be finite and >= 0"),
        ("coverage", {"corrected": True}, "coverage has no importance weights"),
        ("recency", {"window": 16}, "window must be at most 15, got 16"),
        ("recency", {"window": 0}, "window must be a whole number from 1"),
        ("recency", {"initial_losses": 0}, "unknown option of recency 'initial_losses'"),
        ("recency", {"epochs": None}, "needs the number of epochs: give epochs="),
        ("uncertainty", {"window": 1}, "window must be a whole number from 2, got 1"),
        ("uncertainty", {"epochs": None}, "needs the number of epochs: give epochs="),
        ("d2ace", {"X": None}, r"d2ace needs the features of the training rows"),
        ("d2ace", {"X": np.ones((3, 2))}, "X must have one row for each of the 6 samples"),
        ("d2ace", {"k": 0}, "k must be a whole number from 1"),
        ("d2ace", {"beta_end": 2}, r"beta_end must lie in \[0, 1\], got 2"),
        (
            "d2ace",
            {"epochs": None, "selection_pressure": 4},
            "beta_start and beta_end differ, which needs the number of epochs",
        ),
    ],
)
def test_unusable_options_say_so(strategy, options, message):
    given = {"X": np.arange(12.0).reshape(6, 2), "epochs": 5, "batch_size": 4, **options}
    with pytest.raises(SelectionError, match=message):
        make_selector(strategy, Y, warm_up_epochs=0, **given)


@pytest.mark.parametrize("strategy", ["class_aware", "coverage"])
def test_labels_without_any_row_are_refused(strategy):
    with pytest.raises(SelectionError, match="Y has no positive label"):
        make_selector(strategy, np.zeros((4, 2), dtype=bool))


def test_the_pressure_falls_as_in_the_papers():
    selector = make_selector("recency", Y, warm_up_epochs=1, epochs=4, batch_size=6)
    assert selector._schedule == Geometric(100, 1)
    assert make_selector("uncertainty", Y, epochs=100).warm_up_epochs == 10
