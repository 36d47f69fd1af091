"""A sparse first layer does what a dense one does, gradients and files included."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from tailbatch.models import MLP, SparseLinear, own_gradients, wrap
from tailbatch.models.sparse_linear import csr_rows

BATCHES = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 7)),
    elements=st.sampled_from([0, 0, 0, 0.5, -2]),
)


def pair(d, h):
    """A sparse layer and the nn.Linear with its weights."""
    layer, reference = SparseLinear(d, h), nn.Linear(d, h)
    reference.load_state_dict(layer.state_dict())
    return layer, reference


@given(BATCHES, st.booleans())
def test_forward_and_backward_are_those_of_a_dense_layer(batch, reuse):
    layer, reference = pair(batch.shape[1], 3)
    x = torch.from_numpy(batch)
    with own_gradients(layer, sparse=False) if reuse else torch.enable_grad():
        for rows in (x, x.flip(0), x[:1]):  # other features in use each time
            layer.zero_grad()
            reference.zero_grad()
            sparse, dense = layer(rows.to_sparse_csr()), reference(rows)
            sparse.square().sum().backward()
            dense.square().sum().backward()
            torch.testing.assert_close(sparse, dense)
            torch.testing.assert_close(layer.weight.grad.t(), reference.weight.grad)
            torch.testing.assert_close(layer.bias.grad, reference.bias.grad)


def test_without_reuse_gradients_add_up():
    layer, reference = pair(4, 2)
    x = torch.eye(4)
    for rows in (x[:2], x[1:]):
        layer(rows.to_sparse_csr()).sum().backward()
        reference(rows).sum().backward()
    torch.testing.assert_close(layer.weight.grad.t(), reference.weight.grad)


def test_the_gradient_is_written_in_place_and_given_back_at_the_end():
    layer, x = SparseLinear(4, 2), torch.eye(4)
    with own_gradients(layer, sparse=False):
        places = set()
        for rows in (x[:2], x[1:]):
            layer.zero_grad(set_to_none=True)
            layer(rows.to_sparse_csr()).sum().backward()
            places.add(layer.weight.grad.data_ptr())
    assert len(places) == 1
    assert layer.weight.grad is None


def test_a_sparse_gradient_has_the_features_of_the_batch():
    layer, reference = pair(6, 3)
    x = torch.eye(6)[[4, 1, 4]]
    with own_gradients(layer, sparse=True):
        layer(x.to_sparse_csr()).square().sum().backward()
        gradient = layer.weight.grad
        assert gradient._indices().tolist() == [[1, 4]]
        reference(x).square().sum().backward()
        torch.testing.assert_close(gradient.to_dense().t(), reference.weight.grad)
    assert layer.weight.grad is None


def test_state_dicts_are_those_of_a_linear_layer():
    layer, reference = pair(5, 2)
    assert layer.state_dict()["weight"].shape == (2, 5)
    assert layer.weight.is_contiguous()
    other = SparseLinear(5, 2)
    other.load_state_dict(reference.state_dict(), assign=True)
    assert torch.equal(other.weight, layer.weight)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        SparseLinear(4, 2).load_state_dict(reference.state_dict())


@pytest.mark.parametrize("hidden", [(8,), (8, 4), ()])
def test_an_mlp_takes_sparse_rows_in_training_and_prediction(hidden):
    torch.manual_seed(0)
    model = MLP(20, 3, hidden=hidden)
    x = torch.rand(3000, 20) * (torch.rand(3000, 20) < 0.1)
    sparse = x.to_sparse_csr()
    torch.testing.assert_close(model.predict_proba(sparse), model.predict_proba(x))
    y = torch.zeros(3000, 3)
    model.eval()
    torch.testing.assert_close(model.step(sparse, y).objective, model.step(x, y).objective)


def test_only_models_that_say_so_take_sparse_rows():
    class Mine(nn.Linear):
        takes_sparse = True

    assert MLP(2, 1).takes_sparse
    assert wrap(Mine(2, 1)).takes_sparse
    assert not wrap(nn.Linear(2, 1)).takes_sparse


def test_rows_of_a_csr_tensor():
    x = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 3.0]])
    assert torch.equal(csr_rows(x.to_sparse_csr(), 1, 9).to_dense(), x[1:])
