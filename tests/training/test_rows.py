"""Rows come out dense, in order, the same from dense and CSR storage."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from tailbatch.training import Rows
from tailbatch.training.rows import dense_rows


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
    assert np.array_equal(dense_rows(sparse.csr_array(matrix), index), expected)


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
