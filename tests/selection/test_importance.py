"""Importance sampling: its law, its weights, its sums, and that it leaves the goal alone."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import chi2
from torch.nn.functional import binary_cross_entropy_with_logits

from selection.reference import LOSSES, adaptive_law, p_value, rank_law
from tailbatch.errors import SelectionError
from tailbatch.imbalance import positive_weights
from tailbatch.selection import (
    AdaptiveSelector,
    BalancedSelector,
    HardSelector,
    ImportanceSelector,
    Linear,
    MinoritySelector,
    UniformSelector,
    make_selector,
)
from tailbatch.selection.drawing import (
    StaticLaw,
    _BatchStreams,
    _SumTable,
)
from tailbatch.selection.importance import _gradient_norms, _prior_norms, _systematic_sample
from tailbatch.testing.selector_contract import _drain, _same_state, _take_weights

Y = np.array(
    [[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]], dtype=bool
)
N = len(Y)


def naive_norms(errors, weights):
    """g_i = sqrt(sum_j (a_ij e_ij)^2), cell by cell."""
    return np.array(
        [
            sum(((w if y else 1) * e) ** 2 for y, e, w in zip(*row, weights, strict=True)) ** 0.5
            for row in zip(Y, errors, strict=True)
        ]
    )


def naive_prior(weights):
    share = Y.sum(axis=0) / N
    prior = weights * share / (1 - share + weights * share)
    return naive_norms(np.abs(prior - Y), weights)


def law_of(norms, mix):
    return (1 - mix) * norms / norms.sum() + mix / len(norms)


# ---- the law -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [0, 2.5, 40]])
@pytest.mark.parametrize("mix", [0.05, 0.3, 1])
def test_the_prior_law_is_the_formula(weights, mix):
    own = positive_weights(Y) if weights is None else np.array(weights, float)
    for labels in (Y, sparse.csr_array(Y)):
        selector = ImportanceSelector(labels, batch_size=2, positive_weights=weights, mix=mix)
        expected = law_of(naive_prior(own), mix)
        np.testing.assert_allclose(selector.probabilities(), expected, rtol=1e-9)


def test_the_gradient_law_follows_the_losses():
    selector = ImportanceSelector(Y, batch_size=N, score="gradient", seed=3)
    weights = positive_weights(Y)
    losses = np.random.default_rng(0).exponential(size=(N, 3))
    index = next(iter(selector))
    selector.mean(losses[index])
    selector.observe(losses[index])
    norms = naive_prior(weights)
    seen = np.unique(index)
    norms[seen] = naive_norms(1 - np.exp(-losses), weights)[seen]
    assert len(seen) < N, "some samples are still at the prior"
    np.testing.assert_allclose(selector.probabilities(), law_of(norms, 0.3), rtol=1e-9)


def test_norms_are_those_of_autograd():
    logits = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    weights, y = np.array([0.5, 3.0, 10.0]), torch.tensor(Y, dtype=torch.float64)
    plain = binary_cross_entropy_with_logits(logits, y, reduction="none")
    objective = binary_cross_entropy_with_logits(
        logits, y, pos_weight=torch.tensor(weights), reduction="sum"
    )
    (gradient,) = torch.autograd.grad(objective, logits)
    expected = gradient.norm(dim=1).numpy()
    np.testing.assert_allclose(
        _gradient_norms(plain.detach().numpy(), *Y.nonzero(), weights), expected
    )


def test_the_prior_is_where_the_weighted_loss_has_its_minimum():
    weights = np.array([0.5, 3.0, 10.0])
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([bias], max_iter=200, tolerance_grad=1e-12, tolerance_change=0)
    y = torch.tensor(Y, dtype=torch.float64)

    def closure():
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(
            bias.expand(N, 3), y, pos_weight=torch.tensor(weights)
        )
        loss.backward()
        return loss

    optimizer.step(closure)
    errors = (bias.sigmoid() - y).abs().detach().numpy()
    np.testing.assert_allclose(_prior_norms(Y, weights), naive_norms(errors, weights), rtol=1e-5)


def independent(law, size):
    """Chance of each ordered batch of independent draws."""
    return {
        batch: float(np.prod(law[list(batch)])) for batch in product(range(len(law)), repeat=size)
    }


def check_draws(selector, law, count, size=2):
    selector._start_epoch(0)
    drawn = Counter(tuple(selector._draw(size, 0, k).tolist()) for k in range(count))
    assert p_value(drawn, independent(law, size)) > 1e-6
    index = np.arange(len(law))
    np.testing.assert_allclose(selector._importance(index, 0), 1 / (len(law) ** 2 * law), rtol=1e-8)


@pytest.mark.parametrize("mix", [0.05, 0.3, 1])
def test_independent_draws_follow_the_law(mix):
    selector = ImportanceSelector(Y, batch_size=2, draws="independent", mix=mix)
    check_draws(selector, law_of(naive_prior(positive_weights(Y)), mix), 5000)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("pressure", [1, 2, 16, 1000])
def test_corrected_draws_follow_the_laws_of_their_strategies(kind, pressure):
    losses = np.array(LOSSES[kind])
    settings = {"selection_pressure": pressure, "batch_size": 2, "corrected": True}
    hard = HardSelector(6, initial_losses=losses, **settings)
    check_draws(hard, rank_law(losses, pressure), 2000)
    adaptive = AdaptiveSelector(1.0, n_samples=6, initial_losses=losses, **settings)
    check_draws(adaptive, adaptive_law(losses, pressure), 2000)
    labels = np.array([[1, 0]] * 4 + [[0, 1]] * 2, dtype=bool)
    per_label = np.where(labels, losses[:, None], 5.0)
    minority = MinoritySelector(labels, initial_losses=per_label, **settings)
    check_draws(minority, rank_law(losses * np.sqrt([1, 1, 1, 1, 2, 2]), pressure), 2000)


def test_balanced_corrected_draws_follow_their_weights():
    weights = np.sqrt([1, 1, 5, 1, 5, 1, 1])
    law = weights / weights.sum()
    check_draws(BalancedSelector(Y, batch_size=2, corrected=True), law, 5000)
    check_draws(UniformSelector(N, batch_size=2, corrected=True), np.full(N, 1 / N), 5000)


def test_a_law_that_hardly_accepts_is_written_down():
    class Stubborn(StaticLaw):
        def propose(self, pairs, pressure):
            return super().propose(pairs[:0], pressure)

    law = Stubborn(np.array([1.0, 3.0]))
    draws = law.draw_independent(4000, 1.0, _BatchStreams(0).at(0, 0))
    assert np.mean(draws) == pytest.approx(0.75, abs=0.03)


# ---- systematic epochs -------------------------------------------------------------------------


def test_a_systematic_epoch_rounds_down_or_up_and_is_right_on_average():
    selector = ImportanceSelector(Y, batch_size=3, mix=0.2)
    expected = N * selector.probabilities()
    counts = []
    for _ in range(4000):
        drawn = [i for index in selector for i in (_take_weights(selector), index)[1].tolist()]
        counts.append(np.bincount(drawn, minlength=N))
        assert len(drawn) == N
    counts = np.array(counts)
    assert (counts >= np.floor(expected)).all()
    assert (counts <= np.ceil(expected)).all()
    share = expected - np.floor(expected)
    deviation = np.sqrt(share * (1 - share) / len(counts))
    assert (np.abs(counts.mean(axis=0) - expected) < 5 * deviation + 1e-12).all()


def test_every_place_of_a_systematic_epoch_follows_the_law():
    selector = ImportanceSelector(Y, batch_size=1)
    law, places = selector.probabilities(), np.zeros((N, N))
    epochs = 3000
    for _ in range(epochs):
        for place, index in enumerate(selector):
            _take_weights(selector)
            places[place, index[0]] += 1
    statistic = ((places - epochs * law) ** 2 / (epochs * law)).sum(axis=1)
    assert (chi2.sf(statistic, N - 1) > 1e-6).all()


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=60), st.floats(0, 1, exclude_max=True))
def test_a_systematic_sample_has_n_draws(values, start):
    times = np.array(values) * (len(values) / np.sum(values))
    drawn = _systematic_sample(times.__getitem__, len(times), start)
    counts = np.bincount(drawn, minlength=len(times))
    assert len(drawn) == len(times)
    assert (np.diff(drawn) >= 0).all()
    assert (np.abs(counts - times) < 1 + 1e-9).all()


def test_mix_one_is_a_plain_shuffle():
    selector = ImportanceSelector(Y, batch_size=3, mix=1)
    for index in selector:
        assert selector.importance_weights().tolist() == [1 / len(index)] * len(index)
    batches = _drain(selector, lambda index, step: np.ones(len(index)))
    assert sorted(np.concatenate(batches)) == list(range(N))


def test_annealing_ends_on_shuffled_epochs():
    selector = make_selector("importance", Y, batch_size=3, mix=Linear(0.2, 1), epochs=3)
    pressures = []
    for _ in range(4):
        pressures.append(selector.diagnostics().effective_pressure)
        _drain(selector, lambda index, step: np.ones(len(index)))
    assert pressures[0] > pressures[1] > pressures[2] == pytest.approx(1) == pressures[3]


# ---- sums --------------------------------------------------------------------------------------


def test_a_table_finds_what_lies_at_each_place():
    rng = np.random.default_rng(0)
    for n in (1, 63, 64, 65, 5000, 70_000):
        values = rng.integers(0, 9, n)
        values[rng.integers(n)] = 1
        table = _SumTable(values)
        assert table.total == values.sum()
        places = rng.integers(0, table.total, 50)
        naive = np.searchsorted(np.cumsum(values), places, side="right")
        assert table.find(places).tolist() == naive.tolist()


def observations(count, n=300_000, batch=1000):
    rng = np.random.default_rng(1)
    most = 2 ** _SumTable.bits(n)
    values = rng.integers(0, most, n)
    table = _SumTable(values.copy())
    for _ in range(count // batch):
        index = rng.choice(n, batch, replace=False)
        new = (rng.random(batch) ** 8 * most).astype(np.int64)
        values[index] = new
        table.change(index, new)
    anew = _SumTable(values)
    assert table.total == sum(values.tolist()), "in Python's own whole numbers"
    for kept, fresh in zip([*table._levels, table._top], [*anew._levels, anew._top], strict=True):
        assert np.array_equal(kept, fresh)


def test_sums_stay_exact():
    observations(200_000)


@pytest.mark.slow
def test_sums_stay_exact_after_ten_million_observations():
    observations(10_000_000)


def test_adaptive_keeps_its_total_exactly():
    rng = np.random.default_rng(2)
    settings = {"batch_size": 50, "corrected": True, "selection_pressure": 64}
    selector = AdaptiveSelector(1.0, n_samples=2000, **settings)
    for _ in range(5):
        for index in selector:
            selector.importance_weights()
            selector.observe(rng.exponential(size=len(index)))
    kept = selector._law.chances(np.arange(2000), 64)
    fresh = AdaptiveSelector(1.0, n_samples=2000, **settings)
    fresh.load_state_dict(selector.state_dict())
    assert np.array_equal(kept, fresh._law.chances(np.arange(2000), 64))
    np.testing.assert_allclose(kept, selector.probabilities(), rtol=1e-9)


def test_one_huge_norm_is_drawn_as_often_as_it_should():
    n, b = 100_000, 4096
    labels = sparse.csr_array(([True], ([7], [0])), shape=(n, 2))
    selector = ImportanceSelector(
        labels, batch_size=b, draws="independent", positive_weights=[1e8, 1], mix=0.5
    )
    p = selector.probabilities()
    assert p[7] > 0.2
    assert p[7] / np.delete(p, 7).mean() > 1e4
    index = next(iter(selector))
    assert (index == 7).mean() == pytest.approx(p[7], abs=5 * np.sqrt(p[7] / b))
    assert selector.importance_weights().max() <= 1 / (0.5 * b) + 1e-12


# ---- nothing but the speed changes -------------------------------------------------------------


STRATEGIES = {
    "systematic": lambda Y, **s: ImportanceSelector(Y, **s),
    "independent": lambda Y, **s: ImportanceSelector(Y, draws="independent", **s),
    "gradient": lambda Y, **s: ImportanceSelector(Y, score="gradient", **s),
    "balanced": lambda Y, **s: BalancedSelector(Y, power=1, corrected=True, **s),
    "hard": lambda Y, **s: HardSelector(len(Y), corrected=True, **s),
    "adaptive": lambda Y, **s: AdaptiveSelector(1.0, n_samples=len(Y), corrected=True, **s),
    "minority": lambda Y, **s: MinoritySelector(Y, corrected=True, **s),
}


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)
def test_mean_loss_and_mean_gradient_are_those_of_all_samples(make):
    rng = np.random.default_rng(0)
    n, q, b = 300, 6, 20
    X = torch.tensor(rng.standard_normal((n, 8)), dtype=torch.float64)
    labels = rng.random((n, q)) < [0.5, 0.3, 0.2, 0.05, 0.02, 0.02]
    y = torch.tensor(labels, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, q)
        ).double()
    weights = torch.tensor(positive_weights(labels))
    parameters = list(model.parameters())

    def losses(index, weighted):
        return binary_cross_entropy_with_logits(
            model(X[index]), y[index], reduction="none", pos_weight=weights if weighted else None
        )

    def flat(loss):
        return torch.cat([g.ravel() for g in torch.autograd.grad(loss, parameters)])

    whole = losses(slice(None), True).mean()
    truth = torch.cat([flat(whole), whole.detach()[None]])
    selector, estimates = make(labels, batch_size=b, seed=1), []
    for _ in range(80):
        for index in selector:
            loss = selector.mean(losses(index, True))
            estimates.append(torch.cat([flat(loss), loss.detach()[None]]))
            selector.observe(losses(index, False).detach())
    estimates = torch.stack(estimates)
    # Batches of a systematic epoch are not independent, which only makes their mean better.
    error = estimates.std(dim=0) / len(estimates) ** 0.5
    z = (estimates.mean(dim=0) - truth) / error
    assert z.abs().max() < 5
    assert abs(estimates[:, -1].mean() / whole - 1) < 0.02


def test_without_the_weights_the_mean_would_be_wrong():
    losses = np.linspace(0, 2, 200)
    selector = HardSelector(200, batch_size=20, corrected=True, initial_losses=losses)
    plain, weighted = [], []
    for _ in range(50):
        for index in selector:
            plain.append(losses[index].mean())
            weighted.append(selector.mean(losses[index]))
            selector.observe(losses[index])
    assert np.mean(plain) > 1.2 * losses.mean()
    assert np.mean(weighted) == pytest.approx(losses.mean(), rel=0.02)


def test_a_softened_correction_lies_between():
    losses = np.where(Y[:, 2], 5.0, 1.0)
    means = {}
    for beta in (0, 0.5, 1):
        selector = ImportanceSelector(Y, batch_size=N, beta=beta)
        values = []
        for _ in range(2000):
            for index in selector:
                values.append(selector.mean(losses[index]))
                if beta < 1:
                    assert selector.importance_weights().sum() == pytest.approx(1)
        means[beta] = np.mean(values)
    assert means[0] > 1.05 * means[0.5] > 1.05 * losses.mean()
    assert means[1] == pytest.approx(losses.mean(), rel=0.02)


# ---- mean --------------------------------------------------------------------------------------


def test_mean_is_the_plain_mean_where_nothing_is_corrected():
    losses = torch.rand(4, 3, requires_grad=True)
    for selector in (
        HardSelector(8, batch_size=4),
        HardSelector(8, batch_size=4, warm_up_epochs=3),
    ):
        next(iter(selector))
        for values in (losses, losses.mean(1), losses.detach().numpy(), losses.detach().double()):
            assert selector.mean(values) == values.mean()
        assert selector.mean(losses).requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_mean_of_tensors_keeps_graph_and_kind(dtype):
    selector = ImportanceSelector(Y, batch_size=4)
    next(iter(selector))
    weights = selector.importance_weights()
    losses = torch.rand(4, 3, dtype=dtype, requires_grad=True)
    loss = selector.mean(losses)
    assert loss.dtype == dtype
    assert loss.shape == ()
    loss.backward()
    expected = torch.tensor(weights)[:, None].expand(4, 3) / 3
    torch.testing.assert_close(losses.grad.double(), expected, rtol=0.01, atol=1e-3)
    per_sample = losses.detach().double().mean(1).numpy()
    assert loss.item() == pytest.approx(per_sample @ weights, rel=0.02)
    assert selector.mean(per_sample.tolist()) == pytest.approx(per_sample @ weights)


@pytest.mark.parametrize("losses", [torch.tensor(0.5), torch.ones(3), torch.ones(4, 2, 2)])
def test_losses_that_are_averaged_already_are_refused(losses):
    selector = ImportanceSelector(Y, batch_size=4)
    next(iter(selector))
    with pytest.raises(SelectionError, match=r"losses must have shape \(4,\).*reduction"):
        selector.mean(losses)


def test_a_loop_that_never_uses_the_weights_is_told_what_to_write():
    told = r"write loss = selector\.mean\(losses\.sum\(1\)\) in place of .*, before observe"
    for options in ({}, {"score": "gradient"}):
        selector = ImportanceSelector(Y, batch_size=2, **options)
        iterator = iter(selector)
        index = next(iterator)
        before = selector.state_dict()
        with pytest.raises(SelectionError, match=told):
            selector.observe(np.ones((2, 3)))
        assert _same_state(before, selector.state_dict())
        selector.mean(np.ones(2))
        selector.observe(np.ones((2, 3)), index)
    with pytest.raises(SelectionError, match=told):
        for _ in ImportanceSelector(Y, batch_size=2):
            pass
    with pytest.raises(SelectionError, match=told):
        for _ in BalancedSelector(Y, batch_size=2, corrected=True):
            pass


def test_with_a_lag_mean_weighs_the_oldest_batch_once():
    selector = ImportanceSelector(Y, batch_size=3, max_lag=2)
    iterator = iter(selector)
    first, second = next(iterator), next(iterator)
    oldest = selector.mean(np.ones(3))
    with pytest.raises(
        SelectionError, match=r"call observe\(losses\) after each step, or .* index="
    ):
        selector.mean(np.ones(3))
    for index in (second, first):
        weights = selector.importance_weights(index)
        assert selector.mean(np.ones(3), index) == pytest.approx(weights.sum())
    assert selector.mean(np.ones(3), first) == oldest
    selector.observe(np.ones(3))
    assert selector.importance_weights().tolist() == selector.importance_weights(second).tolist()
    assert len(next(iterator)) == 1


# ---- settings ----------------------------------------------------------------------------------


class Loss:
    def __init__(self, weights):
        self.positive_weights = weights


def test_positive_weights_come_as_arrays_or_from_a_loss():
    weights = torch.tensor([2.0, 3.0, 4.0])
    expected = ImportanceSelector(Y, batch_size=2, positive_weights=weights).probabilities()
    for given_ in (weights.tolist(), weights.numpy(), Loss(weights), Loss([2, 3, 4])):
        same = ImportanceSelector(Y, batch_size=2, positive_weights=given_).probabilities()
        assert np.array_equal(same, expected)
    plain = ImportanceSelector(Y, batch_size=2, positive_weights=Loss(None)).probabilities()
    ones = ImportanceSelector(Y, batch_size=2, positive_weights=[1, 1, 1]).probabilities()
    assert np.array_equal(plain, ones)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"mix": mix}, "mix must be above 0 and at most 1, got")
            for mix in (0, -0.1, 1.01, float("nan"), float("inf"), "0.3", None, Linear(0, 1))
        ),
        ({"mix": Linear(0.3, 1), "epochs": None}, "needs the number of epochs: give epochs="),
        *(
            ({"beta": beta}, r"beta must lie in \[0, 1\], got")
            for beta in (-0.1, 1.1, float("nan"), "1", None)
        ),
        ({"positive_weights": [1, 2]}, r"one number for each of the 3 labels.*got shape \(2,\)"),
        ({"positive_weights": 2.0}, r"one number for each of the 3 labels.*got shape \(\)"),
        ({"positive_weights": np.ones((3, 3))}, "one number for each of the 3 labels"),
        ({"positive_weights": "bce"}, "one number for each of the 3 labels"),
        ({"positive_weights": object()}, "got a object"),
        ({"positive_weights": [1, -1, 1]}, "finite and >= 0, got -1 for label 1"),
        ({"positive_weights": [1, 1, float("nan")]}, "finite and >= 0, got nan for label 2"),
        ({"positive_weights": Loss([1, -1, 1])}, "finite and >= 0, got -1 for label 1"),
        ({"score": "loss"}, "score must be 'prior' or 'gradient', got 'loss'"),
        ({"draws": "random"}, "draws must be 'systematic' or 'independent', got 'random'"),
        ({"score": "gradient", "draws": "systematic"}, "plans a whole epoch"),
        ({"epochs": 0}, "epochs must be a whole number from 1"),
    ],
)
def test_unusable_settings_say_so(settings, message):
    with pytest.raises(SelectionError, match=message):
        ImportanceSelector(Y, batch_size=2, **{"epochs": 4, **settings})


def test_labels_without_any_positive_are_refused():
    with pytest.raises(SelectionError, match="no positive label, so there is nothing to prefer"):
        make_selector("importance", np.zeros((4, 2)))


def test_a_single_label_without_positives_counts_for_nothing():
    wider = np.column_stack([Y, np.zeros(N, bool)])
    p = ImportanceSelector(wider, batch_size=2).probabilities()
    np.testing.assert_allclose(p, ImportanceSelector(Y, batch_size=2).probabilities(), rtol=1e-9)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"mix": 0.5}, "mix 0.3, this selector has 0.5"),
        ({"mix": Linear(0.3, 1), "epochs": 5}, r"mix 0.3, this selector has Linear\(start=0.3"),
        ({"beta": 0.5}, "beta 1, this selector has 0.5"),
        ({"score": "gradient"}, "score prior, this selector has gradient"),
        ({"draws": "independent"}, "draws systematic, this selector has independent"),
        ({"positive_weights": [1, 2, 3]}, "positive_weights 3 values, digest"),
    ],
)
def test_a_state_of_other_settings_is_refused(other, message):
    saved = ImportanceSelector(Y, batch_size=2)
    _drain(saved, lambda index, step: np.ones((len(index), 3)))
    selector = ImportanceSelector(Y, batch_size=2, **other)
    _drain(selector, lambda index, step: np.ones((len(index), 3)))
    before = selector.state_dict()
    with pytest.raises(SelectionError, match=message):
        selector.load_state_dict(saved.state_dict())
    assert _same_state(before, selector.state_dict())


def test_a_state_of_uncorrected_draws_is_refused():
    saved = HardSelector(8, batch_size=2)
    selector = HardSelector(8, batch_size=2, corrected=True)
    with pytest.raises(SelectionError, match="corrected False, this selector has True"):
        selector.load_state_dict(saved.state_dict())


def test_a_state_with_scores_beyond_their_bound_is_refused():
    selector = ImportanceSelector(Y, batch_size=2, score="gradient")
    state = selector.state_dict()
    for scores in (np.full(N, 2**61), np.full(N, -1), np.ones(N - 1, int), np.ones(N)):
        with pytest.raises(SelectionError, match="the saved state's 'scores'"):
            selector.load_state_dict({**state, "scores": scores})
    assert _same_state(state, selector.state_dict())


def test_no_warm_up_unless_asked_for():
    assert make_selector("importance", Y).warm_up_epochs == 0
    assert make_selector("importance", Y, warm_up_epochs=2).warm_up_epochs == 2
    assert make_selector("hard", Y).warm_up_epochs == 3


# ---- diagnostics -------------------------------------------------------------------------------


def measured(make, sizes, labels, epochs=6):
    """Run a loop in which sample i would move the model by `sizes[i]`, and look."""
    losses = -np.log1p(-sizes)
    selector = make(labels)
    for _ in range(epochs):
        for index in selector:
            selector.mean(losses[index])
            selector.observe(losses[index])
    return selector, selector.diagnostics()


def test_the_gain_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    n = 4000
    labels = np.column_stack([np.ones(n, bool), rng.random(n) < 0.05])
    sizes = np.where(labels[:, 1], 0.9, 0.05)
    selector, report = measured(
        lambda Y: BalancedSelector(Y, power=1, batch_size=128, corrected=True), sizes, labels
    )
    p = selector.probabilities()
    exact = np.mean(sizes**2) / np.sum(sizes**2 / (n**2 * p))
    assert report.gain == pytest.approx(exact, rel=0.05)
    assert report.effective_batch_size == pytest.approx(128 * exact, rel=0.05)
    assert exact > 2
    assert report.verdict.startswith("Selection pays: 128 drawn are worth")
    assert 1 / 128 < report.heaviest_share < 0.1


def test_selection_that_costs_says_so():
    n = 4000
    labels = np.column_stack([np.ones(n, bool), np.arange(n) % 20 == 0])
    _, report = measured(
        lambda Y: BalancedSelector(Y, power=1, batch_size=128, corrected=True),
        np.where(labels[:, 1], 0.05, 0.5),
        labels,
    )
    assert report.verdict.startswith("Selection costs: 128 drawn are worth")
    _, report = measured(
        lambda Y: UniformSelector(n, batch_size=128, corrected=True), np.full(n, 0.5), labels
    )
    assert report.verdict.startswith("Selection changes little: 128 drawn are worth 128")


def test_nothing_is_measured_where_nothing_can_be():
    for selector in (
        HardSelector(8, batch_size=4),
        ImportanceSelector(Y, batch_size=4),
        ImportanceSelector(Y, batch_size=4, beta=0.5),
    ):
        if selector.strategy == "hard" or selector.softened:
            _drain(selector, lambda index, step: np.ones(len(index)))
        report = selector.diagnostics()
        assert (report.gain, report.effective_batch_size, report.verdict) == (None, None, "")


def test_diagnostics_print_as_a_table_in_terminal_and_notebook():
    selector = ImportanceSelector(Y, batch_size=4)
    _drain(selector, lambda index, step: np.ones((len(index), 3)))
    report = selector.diagnostics()
    lines = repr(report).splitlines()
    assert lines[0] == "epoch               1, 0 batches drawn"
    assert lines[-1] == report.verdict != ""
    assert any(line.startswith("effective batch     ") for line in lines)
    assert any(line.startswith("heaviest draw       ") for line in lines)
    page = report._repr_html_()
    assert page.count("<tr>") == len(report.rows())
    assert report.verdict in page
