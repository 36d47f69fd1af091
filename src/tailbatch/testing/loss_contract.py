"""What every loss guarantees; the test class of a loss inherits these tests and names the loss."""

import copy
import json

import numpy as np
import pytest
import torch

from tailbatch.errors import ModelError
from tailbatch.losses import make_loss
from tailbatch.models import make_model, seeded
from tailbatch.testing.model_contract import toy_dataset

# The last label has no positive.
LABELS = np.arange(60)[:, None] < np.array([36, 20, 8, 2, 0])


def _scored_batch(seed, n_rows=8, n_labels=5):
    """Logits around 0, and labels with an empty and a full row."""
    with seeded(seed, "batch"):
        logits = 3 * torch.randn(n_rows, n_labels)
        y = (torch.rand(n_rows, n_labels) < 0.4).float()
    y[0], y[-1] = 0, 1
    return logits, y


class LossContract:
    """Inherit and set `loss_class`; set `options` to test values other than the defaults."""

    loss_class = None
    options = {}  # noqa: RUF012 # a plain table that a subclass replaces

    def make(self, labels=LABELS):
        return make_loss(self.loss_class, labels, **self.options)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("size", [1e4, 100.0, 0.0])
    def test_values_and_gradients_are_finite_far_out(self, dtype, size):
        loss, (_, y) = self.make(), _scored_batch(1)
        for sign in (torch.ones_like(y), -torch.ones_like(y), 2 * y - 1, 1 - 2 * y):
            logits = (size * sign).to(dtype).requires_grad_()
            value = loss(logits, y)
            value.backward()
            assert value.isfinite()
            assert logits.grad.isfinite().all()
            assert logits.grad.dtype == dtype

    def test_gradients_are_those_of_the_formula(self):
        loss, (logits, y) = self.make().eval(), _scored_batch(2)
        logits = logits.double().requires_grad_()
        assert torch.autograd.gradcheck(lambda z: loss(z, y), (logits,))

    def test_the_value_is_the_sum_over_labels_averaged_or_weighted_over_samples(self):
        loss, (logits, y) = self.make().eval(), _scored_batch(0)
        cells = loss.cells(logits, y)
        assert cells.shape == y.shape
        assert torch.allclose(loss(logits, y), cells.sum(1).mean())
        if not loss.compares_samples:
            even = torch.full((len(y),), 1 / len(y))
            assert torch.allclose(loss(logits, y, even), cells.sum(1).mean(), rtol=1e-5)
            first = torch.eye(len(y))[0]
            assert torch.allclose(loss(logits, y, first.double()), cells[0].sum())
        assert torch.allclose(loss.rows(logits, y, "mean"), cells.mean(1))
        for kind in (torch.bool, torch.int64, torch.float64):
            assert torch.equal(loss(logits, y.to(kind)), loss(logits, y))

    def test_state_and_options_rebuild_it(self):
        loss, (logits, y) = self.make(), _scored_batch(0)
        loss(logits, y)
        again = self.loss_class(5, **json.loads(json.dumps(loss.options)))
        again.load_state_dict(loss.state_dict())
        assert torch.equal(again(logits, y), copy.deepcopy(loss)(logits, y))
        assert not list(loss.parameters())

    @pytest.mark.parametrize(
        "labels", [LABELS[:, :1], LABELS[:, 4:], np.ones((3, 1)), np.zeros((3, 2))]
    )
    def test_one_label_and_labels_without_positives_or_negatives(self, labels):
        loss, q = self.make(labels), labels.shape[1]
        for y in (torch.zeros(4, q), torch.ones(4, q), torch.eye(4, q)):
            logits = torch.zeros(4, q, requires_grad=True)
            loss(logits, y).backward()
            assert loss(logits, y).isfinite()
            assert logits.grad.isfinite().all()
        assert np.isfinite(loss.positive_weights).all()
        assert (loss.positive_weights > 0).all()

    def test_cell_weights_are_positive(self):
        loss, (_, y) = self.make(), _scored_batch(0)
        weights = loss.cell_weights(y)
        assert weights.shape == y.shape
        assert (weights > 0).all()

    def test_it_has_a_name_and_refuses_options_of_other_losses(self):
        assert self.loss_class.name.isidentifier()
        assert self.loss_class.name != "loss"
        with pytest.raises(ModelError, match="has no option 'no_such_option'"):
            make_loss(self.loss_class, LABELS, no_such_option=1)

    def test_a_network_takes_a_step_with_it(self):
        train = toy_dataset(30)
        model = make_model("mlp", train, loss=lambda labels: self.make(labels), hidden=[8])
        step = model.step(torch.from_numpy(train.X).float(), torch.from_numpy(train.Y).float())
        step.objective.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
