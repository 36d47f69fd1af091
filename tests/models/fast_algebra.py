"""Tests for models whose `step` is an optimized form of its formula, which `naive` writes out."""

import pytest
import torch

from tailbatch.models import seeded
from tailbatch.testing.model_contract import batch


class FastAlgebraContract:
    """For a model whose `step` is an optimized form of its formula: set `naive` to the formula."""

    naive = None

    @pytest.mark.parametrize(("n_features", "n_labels"), [(7, 3), (20, 9), (5, 1)])
    @pytest.mark.parametrize("chunk", [1, 2**21])
    def test_objective_and_gradients_equal_the_formula(
        self, monkeypatch, n_features, n_labels, chunk
    ):
        monkeypatch.setattr("tailbatch.models.blocks._CHUNK_VALUES", chunk)
        model = self.build(n_features, n_labels).double()
        x, y = batch(5, n_features, n_labels, dtype=torch.float64)
        assert_same(model, lambda: model.step(x, y).objective, lambda: self.naive(model, x, y))


def assert_same(model, fast, naive):
    """Compare values and gradients in double precision under the same random draws."""
    parameters = list(model.parameters())
    results = []
    for objective in (fast, naive):
        with seeded(7, "step"):
            value = objective()
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        results.append([value.detach(), *gradients])
    for left, right in zip(*results, strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            assert torch.allclose(left, right, rtol=1e-9, atol=1e-9)
