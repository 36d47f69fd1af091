import numpy as np
import pytest
import torch

from tailbatch.models import MLP, Ensemble, SparseLinear, make_model
from tailbatch.results import TrainingPlan
from tailbatch.testing.model_contract import toy_dataset
from tailbatch.training.optimizers import DECAY_EVERY, AdamMini, make_optimizer


def naive_steps(weight, gradients, axes, *, lr, decay, betas=(0.9, 0.999), eps=1e-12):
    """Adam-mini as it is written down, in double precision."""
    first, second = betas
    m, v = np.zeros_like(weight), 0.0
    for t, gradient in enumerate(gradients, start=1):
        m = first * m + (1 - first) * gradient
        v = second * v + (1 - second) * (gradient**2).mean(axis=axes, keepdims=True)
        weight = weight * (1 - lr * decay)
        weight = weight - lr * (m / (1 - first**t)) / (np.sqrt(v / (1 - second**t)) + eps)
    return weight


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 5), (1,)), ((3, 5), (0,)), ((2, 4, 3), (1,)), ((4,), ())]
)
def test_steps_follow_the_formula(shape, axes):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), rng.normal(size=(7, *shape))
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = AdamMini([{"params": [weight], "moment_axes": [axes]}], lr=0.1, weight_decay=0.3)
    for gradient in gradients:
        weight.grad = torch.from_numpy(gradient)
        optimizer.step()
    expected = naive_steps(start, gradients, axes, lr=0.1, decay=0.3)
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12)


def test_a_single_input_makes_it_adamw():
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.normal(size=(4, 1)))
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (
        AdamMini([ours], lr=0.1, weight_decay=0.1, eps=1e-8),
        torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1),
    )
    for _ in range(5):
        gradient = torch.from_numpy(rng.normal(size=(4, 1)))
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_weights_into_one_unit_share_a_moment_whatever_their_layout():
    model = MLP(6, 3, hidden=[4])
    optimizer = make_optimizer(TrainingPlan(optimizer="adam_mini"), model)
    x, y = torch.rand(5, 6), torch.ones(5, 3)
    model.step(x, y).objective.backward()
    optimizer.step()
    first, last = model.body[0], model.classifier
    assert isinstance(first, SparseLinear)  # (in, out) in memory
    assert optimizer.state[first.weight]["exp_avg_sq"].shape == (1, 4)
    assert optimizer.state[last.weight]["exp_avg_sq"].shape == (3, 1)
    assert optimizer.state[last.bias]["exp_avg_sq"].shape == (3,)


def test_members_of_an_ensemble_have_moments_of_their_own():
    model = Ensemble(6, 3, members=2, hidden=4)
    optimizer = make_optimizer(TrainingPlan(optimizer="adam_mini"), model)
    model.step(torch.rand(5, 6), torch.ones(5, 3)).objective.backward()
    optimizer.step()
    assert optimizer.state[model.output]["exp_avg_sq"].shape == (2, 1, 3)


def test_units_without_a_gradient_stay_finite():
    toy = toy_dataset(40)
    model = make_model("ensemble", toy, members=1, hidden=2)
    with torch.no_grad():
        model.body.bias.fill_(-1e3)  # no hidden unit is ever active
    optimizer = make_optimizer(TrainingPlan(optimizer="adam_mini", lr=0.1), model)
    for _ in range(3):
        optimizer.zero_grad()
        x, y = torch.from_numpy(toy.X).float(), torch.from_numpy(toy.Y).float()
        model.step(x, y).objective.backward()
        optimizer.step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def sparse(gradient):
    """A gradient that has only the rows with values."""
    rows = np.flatnonzero(gradient.any(axis=1))
    index, values = torch.from_numpy(rows)[None], torch.from_numpy(gradient[rows])
    return torch.sparse_coo_tensor(index, values, gradient.shape, check_invariants=True)


def sparse_trials(*, steps, decay):
    """Rows of weights before and after steps with sparse gradients, and the gradients."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(9, 4))
    gradients = rng.normal(size=(steps, 9, 4)) * (rng.random((steps, 9, 1)) < 0.3)
    gradients[:, 0] = 0  # no batch has it
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = AdamMini([{"params": [weight], "moment_axes": [(0,)]}], lr=0.1, weight_decay=decay)
    for gradient in gradients:
        weight.grad = sparse(gradient)
        optimizer.step()
    return start, gradients, weight.detach().numpy()


def test_sparse_gradients_take_the_steps_of_dense_ones_without_momentum():
    start, gradients, ended = sparse_trials(steps=20, decay=0.0)
    expected = naive_steps(start, gradients, (0,), lr=0.1, decay=0.0, betas=(0.0, 0.999))
    np.testing.assert_allclose(ended, expected, rtol=1e-12)


def test_weights_with_sparse_gradients_decay_in_full_after_some_steps():
    start, gradients, ended = sparse_trials(steps=DECAY_EVERY, decay=0.03)
    np.testing.assert_allclose(ended[0], start[0] * (1 - 0.1 * 0.03) ** DECAY_EVERY, rtol=1e-6)
    expected = naive_steps(start, gradients, (0,), lr=0.1, decay=0.03, betas=(0.0, 0.999))
    moved = np.abs(expected - start).max()
    np.testing.assert_allclose(ended, expected, atol=0.1 * 0.03 * DECAY_EVERY * moved)


def test_sparse_gradients_that_were_added_up_count_as_their_sum():
    gradient = np.ones((3, 2))
    once, twice = (torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.float64)) for _ in range(2))
    once.grad, twice.grad = sparse(2 * gradient), sparse(gradient) + sparse(gradient)
    optimizer = AdamMini([{"params": [once, twice], "moment_axes": [(0,), (0,)]}], lr=0.1)
    optimizer.step()
    assert torch.equal(once, twice)
    moments = [optimizer.state[weight]["exp_avg_sq"] for weight in (once, twice)]
    assert torch.equal(*moments)


def test_sparse_gradients_need_moments_shared_by_rows():
    weight = torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.float64))
    weight.grad = sparse(np.ones((3, 2)))
    with pytest.raises(ValueError, match="share moments along its rows"):
        AdamMini([weight]).step()
