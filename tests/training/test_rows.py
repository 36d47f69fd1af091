"""Rows come out dense, in order, the same from dense and CSR storage."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from tailbatch.models import MLP
from tailbatch.training import Rows, score_rows


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 5)),
        elements=st.sampled_from([0, 0, 0.5, 1]),
    ),
    st.data(),
)
def test_csr_rows_equal_dense_rows(matrix, data):
    index = np.array(data.draw(st.lists(st.integers(0, len(matrix) - 1))), dtype=np.int64)
    expected = matrix[index].astype(np.float32)
    for held in (matrix, sparse.csr_array(matrix), sparse.csr_matrix(matrix)):
        assert np.array_equal(Rows(held).fetch(index).numpy(), expected)
    with patch("tailbatch.training.rows._SPARSE_SHARE", 1.0):
        kept = Rows(sparse.csr_array(matrix), model=MLP(matrix.shape[1], 2)).fetch(index)
    assert kept.layout == torch.sparse_csr
    assert np.array_equal(kept.to_dense().numpy(), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_chunks_walk_over_all_rows_in_order(size):
    matrix = np.arange(10.0).reshape(5, 2)
    chunks = list(Rows(matrix).chunks(size))
    assert max(map(len, chunks)) <= size
    assert torch.cat(chunks).tolist() == matrix.tolist()


def test_labels_are_held_in_bytes_and_come_out_as_floats():
    rows = Rows(np.eye(3, dtype=bool))
    assert rows._matrix.element_size() == 1
    assert rows.fetch(np.array([1])).dtype == torch.float32


def test_rows_do_not_follow_the_callers_array():
    matrix = np.zeros((2, 2), dtype=np.float32)
    rows = Rows(matrix)
    matrix[:] = 7
    assert rows.fetch(np.array([0])).tolist() == [[0, 0]]


def test_rows_of_a_read_only_array():
    matrix = np.zeros((2, 2), dtype=np.float32)
    matrix.setflags(write=False)
    assert Rows(matrix).fetch(np.array([1])).tolist() == [[0, 0]]


def test_scoring_takes_a_bounded_number_of_rows_at_a_time_and_keeps_no_gradient():
    matrix = np.arange(2 * 2500.0).reshape(2500, 2)
    layer = torch.nn.Linear(2, 3)
    seen = []

    def score(x):
        seen.append(len(x))
        assert not torch.is_grad_enabled()
        return layer(x)

    scores = score_rows(score, Rows(matrix))
    assert seen == [1024, 1024, 452]
    whole = layer(torch.from_numpy(matrix).float()).detach().numpy()
    np.testing.assert_allclose(scores, whole, rtol=1e-6)
    assert torch.is_grad_enabled()
