"""Labels that nobody knows cost nothing, move nothing and weigh nothing."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from tailbatch import losses
from tailbatch.errors import DataError, ModelError
from tailbatch.imbalance import positive_weights
from tailbatch.losses import LOSSES, make_loss
from tailbatch.models import set_prior_bias, wrap
from tailbatch.testing.model_contract import LABELS, _scored_batch

MISSING = np.random.default_rng(0).random(LABELS.shape) < 0.3


def gaps(seed=3):
    logits, y = _scored_batch(seed)
    missing = torch.from_numpy(np.random.default_rng(seed).random(tuple(y.shape)) < 0.3)
    return logits, y, missing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(LOSSES))
def test_a_masked_cell_moves_nothing(name, dtype):
    loss, (logits, y, missing) = make_loss(name, LABELS, missing=MISSING), gaps()
    values = []
    for shift in (0, 50, -50):
        z = (logits + shift * missing).to(dtype).requires_grad_()
        value = loss.eval()(z, y.masked_fill(missing, torch.nan))
        value.backward()
        values.append(value.item())
        assert (z.grad[missing] == 0).all()
        assert z.grad.isfinite().all()
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "two_way"])
def test_masked_cells_cost_nothing_and_the_others_what_they_did(name):
    masking, (logits, y, missing) = make_loss(name, LABELS, missing=MISSING).eval(), gaps()
    holes = y.masked_fill(missing, torch.nan)
    expected = masking.cells(logits, y.masked_fill(missing, 0)).masked_fill(missing, 0)
    torch.testing.assert_close(masking.rows(logits, holes), expected.sum(1))
    torch.testing.assert_close(masking.rows(logits, holes, "mean"), expected.mean(1))


def test_the_two_way_loss_compares_known_cells_only():
    loss = losses.two_way(LABELS[:, :1], missing=MISSING[:, :1])
    logits, y = torch.tensor([[1.0], [5.0], [-1.0]]), torch.tensor([[1.0], [torch.nan], [0.0]])
    # Each direction is a mean over labels or samples, so compare the batch without the masked row.
    alone = losses.two_way(LABELS[:, :1])(logits[[0, 2]], y[[0, 2]])
    torch.testing.assert_close(loss(logits, y), alone)


def test_equalized_gradients_are_those_of_known_cells():
    loss = losses.equalized(LABELS, missing=MISSING)
    logits, y, missing = gaps()
    loss(logits, y.masked_fill(missing, torch.nan))
    pull = ((logits.sigmoid() - y).abs() * ~missing).double()
    torch.testing.assert_close(loss.positive_gradients, (pull * y).sum(0))
    torch.testing.assert_close(loss.negative_gradients, (pull * (1 - y)).sum(0))


def test_weights_count_known_labels():
    loss = losses.weighted_bce(LABELS & ~MISSING, missing=MISSING, power=1.0)
    for label in range(4):
        known = ~MISSING[:, label]
        expected = positive_weights(LABELS[known, label : label + 1], power=1.0)
        assert loss.positive_weights[label] == pytest.approx(expected[0], rel=1e-5)


def test_the_prior_counts_known_labels():
    layer = nn.Linear(2, 5)
    set_prior_bias(layer, LABELS & ~MISSING, missing=MISSING)
    for label in range(4):
        share = LABELS[~MISSING[:, label], label].mean()
        assert layer.bias[label].sigmoid().item() == pytest.approx(share, rel=1e-4)
    everything = np.ones_like(MISSING)
    set_prior_bias(layer, LABELS & ~everything, missing=everything)
    assert layer.bias.isfinite().all()


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_takes_a_mask_by_its_function(name):
    assert getattr(losses, name)(LABELS, missing=MISSING).masks_missing


@pytest.mark.parametrize("said", [0, 1, np.nan])
@pytest.mark.parametrize(
    "as_labels", [np.asarray, np.ndarray.tolist, torch.from_numpy, pd.DataFrame, csr_array]
)
@pytest.mark.parametrize("as_mask", [np.asarray, csr_array])
def test_what_stands_in_a_missing_cell_is_not_looked_at(said, as_labels, as_mask):
    given = np.where(MISSING, said, LABELS).astype(float)
    labels, mask = as_labels(given), as_mask(MISSING)
    for name in LOSSES:
        expected = make_loss(name, LABELS & ~MISSING, missing=MISSING).state_dict()
        state = make_loss(name, labels, missing=mask).state_dict()
        assert all(torch.equal(state[key], expected[key]) for key in expected), name
    counted = make_loss(losses.weighted_bce, labels, missing=mask)  # a function of the labels
    expected = losses.weighted_bce(LABELS & ~MISSING).positive_weights
    assert np.array_equal(counted.positive_weights, expected)
    layer, other = nn.Linear(2, 5), nn.Linear(2, 5)
    set_prior_bias(layer, labels, missing=mask)
    set_prior_bias(other, LABELS & ~MISSING, missing=MISSING)
    assert torch.equal(layer.bias, other.bias)
    same = np.asarray(labels.toarray() if as_labels is csr_array else labels, dtype=float)
    assert np.array_equal(same, given, equal_nan=True)  # the caller's labels are left alone


def test_other_cells_are_still_checked():
    labels = np.where(MISSING, np.nan, LABELS)
    row, column = np.argwhere(~MISSING)[7]
    labels[row, column] = 3
    with pytest.raises(DataError, match=f"got 3.0 in row {row}, label column {column}"):
        losses.weighted_bce(labels, missing=MISSING)


def test_a_wrapped_module_takes_labels_with_gaps():
    model = wrap(nn.Linear(4, 5), loss="weighted_bce", Y=LABELS & ~MISSING, missing=MISSING)
    _, y, missing = gaps()
    step = model.step(torch.rand(8, 4), y.masked_fill(missing, torch.nan))
    step.objective.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", list(LOSSES))
def test_without_a_mask_nan_stays_nan(name):
    logits, y, missing = gaps()
    loss, holes = make_loss(name, LABELS).eval(), y.masked_fill(missing, torch.nan)
    assert loss(logits, holes).isnan()
    assert loss.rows(logits, holes)[missing.any(1)].isnan().all()


def test_a_mask_of_another_shape_is_named():
    with pytest.raises(ModelError, match=r"missing has shape \(60, 2\), the labels \(60, 5\)"):
        losses.weighted_bce(LABELS, missing=MISSING[:, :2])
