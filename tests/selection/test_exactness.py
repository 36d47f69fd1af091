"""Every strategy, by every way it has of drawing, follows its law: ordered batches of 3 out of 6."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from selection.reference import (
    LOSSES,
    adaptive_law,
    low_score_law,
    ordered_batches,
    ordered_chains,
    p_value,
    rank_law,
)
from tailbatch.selection import (
    AdaptiveSelector,
    BalancedSelector,
    BoundarySelector,
    ChainSelector,
    HardSelector,
    MinoritySelector,
    RandomSelector,
    UniformSelector,
    chain,
    drawing,
)

N, B = 6, 3
PRESSURES = [1, 2, 16, 64, 1000]
Y = np.array(
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool
)
WEIGHTS = np.array([1.0, 1.5, 1.0, 2.0, 1.0, 0.5])


@pytest.fixture(params=["enumerate", "propose", "both"])
def way(request, monkeypatch):
    """How a batch is drawn; the sizes of these tests would only ever enumerate."""
    if request.param != "enumerate":
        monkeypatch.setattr(drawing, "ENUMERATE_UP_TO", 0)
        monkeypatch.setattr(drawing, "PATIENCE", 10**9 if request.param == "propose" else 1)
    return request.param


def drawn_batches(selector, count):
    """Count ordered batches straight from the draw: no batch changes a loss here."""
    selector._start_epoch(0)
    size = selector.batch_size
    return Counter(tuple(selector._draw(size, 0, number).tolist()) for number in range(count))


def hard(losses, pressure):
    selector = HardSelector(N, batch_size=B, selection_pressure=pressure, initial_losses=losses)
    return selector, ordered_batches(rank_law(losses, pressure), B)


def minority(losses, pressure):
    # Two labels, each row has one; the loss of the absent one must not matter.
    labels = np.array([[1, 0]] * 4 + [[0, 1]] * 2, dtype=bool)
    per_label = np.where(labels, np.array(losses)[:, None], 5.0)
    selector = MinoritySelector(
        labels, batch_size=B, selection_pressure=pressure, initial_losses=per_label
    )
    scores = np.array(losses) * np.sqrt([1, 1, 1, 1, 2, 2])
    return selector, ordered_batches(rank_law(scores, pressure), B)


def adaptive(losses, pressure):
    selector = AdaptiveSelector(
        WEIGHTS, batch_size=B, selection_pressure=pressure, initial_losses=losses
    )
    return selector, ordered_batches(adaptive_law(WEIGHTS * losses, pressure), B)


def capped(losses, pressure):
    selector = AdaptiveSelector(
        1.0,
        n_samples=N,
        batch_size=B,
        selection_pressure=pressure,
        initial_losses=losses,
        cap_quantile=0.5,
    )
    cap = np.nanquantile(losses, 0.5)
    return selector, ordered_batches(adaptive_law(losses, pressure, cap), B)


def boundary(losses, pressure):
    labels = np.arange(N)[:, None] % 2 == 0
    selector = BoundarySelector(
        labels,
        batch_size=B,
        selection_pressure=pressure,
        initial_losses=np.array(losses)[:, None],
    )
    # |p - 0.5| is the same for a positive and a negative of equal loss.
    return selector, ordered_batches(
        low_score_law(np.abs(np.exp(-np.array(losses)) - 0.5), pressure), B
    )


STRATEGIES = {
    "hard": hard,
    "minority": minority,
    "adaptive": adaptive,
    "capped": capped,
    "boundary": boundary,
}


def check(selector, chances, count):
    assert p_value(drawn_batches(selector, count), chances) > 1e-6


def rotating():
    """All strategies and pressures, with the loss kinds taking turns."""
    kinds = list(LOSSES)
    return [
        (strategy, pressure, kinds[(place + place // len(kinds)) % len(kinds)])
        for place, (strategy, pressure) in enumerate(product(STRATEGIES, PRESSURES))
    ]


@pytest.mark.parametrize(("strategy", "pressure", "kind"), rotating())
def test_batches_follow_the_law(strategy, pressure, kind, way):
    check(*STRATEGIES[strategy](LOSSES[kind], pressure), count=2000)


@pytest.mark.parametrize("way", ["propose"], indirect=True)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_follow_the_law_at_full_size(strategy, way):
    check(*STRATEGIES[strategy](LOSSES["some_unseen"], 16), count=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["enumerate", "propose"], indirect=True)
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("pressure", PRESSURES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_follow_the_law_everywhere(strategy, pressure, kind, way):
    check(*STRATEGIES[strategy](LOSSES[kind], pressure), count=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["propose"], indirect=True)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_million_draws_follow_the_law(strategy, way):
    check(*STRATEGIES[strategy](LOSSES["heavy_tailed"], 16), count=1_000_000 // B)


# ---- strategies without losses -----------------------------------------------------------------


def test_uniform_batches_are_uniform(way):
    check(UniformSelector(N, batch_size=B), ordered_batches(np.full(N, 1 / N), B), count=10_000)


def test_balanced_batches_follow_their_weights(way):
    # C = (3, 2, 1, 1), so IRLbl = (1, 1.5, 3, 3); the last row has no label.
    weights = np.sqrt([1, 1.5, 1.5, 3, 3, 1])
    selector = BalancedSelector(Y, batch_size=B)
    check(selector, ordered_batches(weights / weights.sum(), B), count=10_000)


def test_shuffled_epochs_are_uniform_and_cover_everything():
    selector = RandomSelector(N, batch_size=B)
    halves = Counter()
    for _ in range(4000):
        first, second = (tuple(batch.tolist()) for batch in selector)
        assert set(first) | set(second) == set(range(N))
        halves.update([first, second])
    assert p_value(halves, ordered_batches(np.full(N, 1 / N), B)) > 1e-6


# ---- chain -------------------------------------------------------------------------------------


@pytest.fixture(params=["unions", "columns", "enumerate", "impatient"])
def chain_way(request, monkeypatch):
    """Ready-made unions, columns drawn one by one, rows written down at once or after failures."""
    monkeypatch.setattr(drawing, "ENUMERATE_UP_TO", 0)
    if request.param != "enumerate":
        monkeypatch.setattr(chain, "_SMALLEST_BLOCK", 2)
        monkeypatch.setattr(chain, "_LARGEST_BLOCK", 2)
        monkeypatch.setattr(chain, "PROPOSE_ABOVE", 0)
    if request.param in ("columns", "impatient"):
        monkeypatch.setattr(chain, "UNION_ENTRIES", 0)
    monkeypatch.setattr(chain, "PATIENCE", 1 if request.param == "impatient" else 4)
    return request.param


def chained(losses, pressure, labels=Y, size=B):
    selector = ChainSelector(
        WEIGHTS, labels, batch_size=size, selection_pressure=pressure, initial_losses=losses
    )
    return selector, ordered_chains(adaptive_law(WEIGHTS * losses, pressure), labels, size)


@pytest.mark.parametrize(("pressure", "kind"), list(zip(PRESSURES, LOSSES, strict=False)))
def test_chains_follow_their_rules(pressure, kind, chain_way):
    check(*chained(LOSSES[kind], pressure), count=2000)


@pytest.mark.parametrize(
    "labels",
    [
        np.eye(6, dtype=bool),  # nothing co-occurs: L_c is the label itself, and D_c runs empty
        np.ones((6, 2), dtype=bool),  # everything follows everything
        np.zeros((6, 2), dtype=bool),  # nobody has a label
        np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=bool),
    ],
    ids=["apart", "together", "unlabeled", "mixed"],
)
def test_chains_follow_their_rules_for_other_labels(labels, chain_way):
    check(*chained(LOSSES["uniform"], 16, labels), count=2000)


def test_long_chains_follow_their_rules(chain_way):
    # Five of six rows: labels come up again, and what was drawn for them before is used up.
    check(*chained(LOSSES["uniform"], 4, size=5), count=3000)


@pytest.mark.slow
@pytest.mark.parametrize("chain_way", ["unions", "columns"], indirect=True)
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("pressure", PRESSURES)
def test_chains_follow_their_rules_everywhere(pressure, kind, chain_way):
    check(*chained(LOSSES[kind], pressure), count=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("chain_way", ["unions"], indirect=True)
def test_a_million_chained_draws_follow_their_rules(chain_way):
    check(*chained(LOSSES["heavy_tailed"], 16), count=1_000_000 // B)
