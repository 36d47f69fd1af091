import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from contracts.model_contract import ModelContract, batch
from tailbatch.data import MultiLabelDataset
from tailbatch.errors import ModelError
from tailbatch.models import MLP, make_model
from tailbatch.models.mlp import asymmetric_loss


class TestMLP(ModelContract):
    model_class = MLP

    @pytest.mark.parametrize("objective", ["bce", "weighted_bce", "asymmetric"])
    def test_objective_is_the_mean_over_samples(self, objective):
        step = self.build(objective=objective).step(*batch(5, 7, 3))
        assert torch.allclose(step.objective, step.sample_objective.mean())
        assert list(step.terms) == [objective]

    def test_without_hidden_layers_it_is_linear(self):
        model, (x, _) = self.build(hidden=[]), batch(5, 7, 3)
        assert torch.equal(model(x), model.classifier(x))

    def test_weights_count_positives_more(self):
        x, y = batch(5, 7, 3)
        plain, weighted = self.build(dropout=0), self.build(dropout=0, objective="weighted_bce")
        weighted.positive_weight.fill_(3.0)
        bce = torch.nn.functional.softplus(plain(x)) - y * plain(x)
        expected = (bce * (1 + 2 * y)).mean()
        assert torch.allclose(weighted.step(x, y).objective, expected)

    def test_unknown_objective_is_refused(self):
        with pytest.raises(ModelError, match="objective must be one of bce, weighted_bce"):
            self.build(objective="focal")
        with pytest.raises(ModelError, match=r"hidden\[1\] must be an integer from 1, got 0"):
            self.build(hidden=[8, 0])
        with pytest.raises(ModelError, match=r"dropout must be in \[0, 1\), got 1"):
            self.build(dropout=1.0)


@pytest.mark.parametrize("storage", [np.asarray, csr_array])
def test_positive_weights_are_the_root_of_negatives_over_positives(storage):
    # One positive of five, all positive, none positive (counted as one).
    Y = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]], dtype=bool)
    train = MultiLabelDataset.from_arrays(np.zeros((5, 2)), storage(Y))
    model = make_model("mlp", train, objective="weighted_bce")
    expected = torch.tensor([2.0, math.sqrt(1 / 5), math.sqrt(5)])
    assert torch.allclose(model.positive_weight, expected)


@given(st.floats(-50, 50), st.booleans())
def test_asymmetric_loss_is_its_formula(logit, relevant):
    p = 1 / (1 + math.exp(-logit))
    shifted = max(p - 0.05, 0)
    log_p = -math.log1p(math.exp(-logit))
    expected = -log_p if relevant else -math.log1p(-shifted) * shifted**4
    logits = torch.tensor([[logit]], dtype=torch.float64)
    value = asymmetric_loss(logits, torch.full((1, 1), float(relevant), dtype=torch.float64))
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("logit", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_asymmetric_loss_is_finite_far_out(logit):
    logits = torch.full((1, 2), logit, requires_grad=True)
    loss = asymmetric_loss(logits, torch.tensor([[1.0, 0.0]]))
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logits.grad.isfinite().all()


def test_asymmetric_loss_focuses_positives_when_asked():
    logits, y = torch.zeros(1, 1), torch.ones(1, 1)
    assert asymmetric_loss(logits, y, gamma_positive=1.0).item() == pytest.approx(0.5 * math.log(2))
