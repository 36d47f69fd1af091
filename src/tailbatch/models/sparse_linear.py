"""A linear layer that multiplies sparse rows at sparse cost, forward and backward."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

with warnings.catch_warnings():
    # torch warns once per process that CSR tensors are in beta; tests cover the parts used here.
    warnings.simplefilter("ignore")
    torch.zeros(1, 1).to_sparse_csr()


#: Makes the gradient (in, out) of the features (f,) in use, and its values (f, out).
_MakeGradient: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]


class SparseLinear(nn.Linear):
    """A linear layer whose input may be sparse: a CSR batch is multiplied without being expanded.

    Results equal those of ``nn.Linear`` up to rounding, and so do names and shapes in a ``state_dict``.
    In memory ``weight`` is transposed, (in, out), because a sparse row then uses whole rows of it.
    The gradient is dense, so any optimizer works as for dense rows; see `own_gradients`.

    Examples
    --------
    >>> layer = SparseLinear(4, 2)
    >>> x = torch.eye(4)[:3]
    >>> torch.equal(layer(x.to_sparse_csr()), layer(x))
    True
    >>> layer.state_dict()["weight"].shape
    torch.Size([2, 4])
    """

    #: In memory the first axis is the input's, for `tailbatch.training.optimizers.AdamMini`.
    moment_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {"weight": (0,)}
    _make_gradient: _MakeGradient | None = None

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self._take(self.weight)

    @classmethod
    def of(cls, linear: nn.Linear) -> Self:
        """Return a layer with the weights of another one."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)  # not nn.Linear's, which draws random numbers
        layer.in_features, layer.out_features = linear.in_features, linear.out_features
        layer._take(linear.weight)
        layer.bias = linear.bias
        return layer

    def _take(self, weight: Tensor) -> None:
        self.weight = nn.Parameter(weight.detach().t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with the weight, plus the bias, for a dense or CSR x (b, in)."""
        if x.layout != torch.sparse_csr:
            return F.linear(x, self.weight.t(), self.bias)
        parts = x.crow_indices(), x.col_indices(), x.values()
        product: Tensor = _SparseProduct.apply(  # type: ignore[no-untyped-call]
            *parts, self.weight, self._make_gradient
        )
        return product + self.bias

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = destination[f"{prefix}weight"].t()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # The mapping is load_state_dict's own copy.
        weight = state_dict.get(f"{prefix}weight")
        if isinstance(weight, Tensor) and weight.ndim == 2:
            state_dict[f"{prefix}weight"] = weight.t().contiguous()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _ReusedGradient:
    """The gradient (in, out) of a layer, kept from step to step: only rows in use are written."""

    def __init__(self) -> None:
        self._values: Tensor | None = None
        self._used = torch.empty(0, dtype=torch.int64)

    def __call__(self, features: Tensor, values: Tensor, n_features: int) -> Tensor:
        """Return the gradient that has `values` (f, out) at `features` (f,), and zeros elsewhere."""
        if self._values is None:
            self._values = values.new_zeros(n_features, values.shape[1])
        else:
            self._values.index_fill_(0, self._used, 0.0)
        self._used = features
        # A new view: a tensor with other references would be copied into ``weight.grad``.
        return self._values.index_copy_(0, features, values).view_as(self._values)


def _dense_gradient(features: Tensor, values: Tensor, n_features: int) -> Tensor:
    return values.new_zeros(n_features, values.shape[1]).index_copy_(0, features, values)


def _sparse_gradient(features: Tensor, values: Tensor, n_features: int) -> Tensor:
    return torch.sparse_coo_tensor(
        features[None],
        values,
        (n_features, values.shape[1]),
        is_coalesced=True,
        check_invariants=False,
    )


class _SparseProduct(torch.autograd.Function):
    """CSR rows (b, in) times the weight (in, out), as sums of gathered rows.

    Forward, row i of the result sums x_ik W_k over the row's features k; backward, row k of the
    gradient sums x_ik g_i over the samples i that have feature k. Both are one `embedding_bag`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        offsets: Tensor,
        features: Tensor,
        values: Tensor,
        weight: Tensor,
        make_gradient: _MakeGradient | None,
    ) -> Tensor:
        ctx.save_for_backward(offsets, features, values)
        ctx.n_features, ctx.make_gradient = weight.shape[0], make_gradient or _dense_gradient
        return _sums(weight, features, offsets, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output: Tensor) -> tuple[Tensor | None, ...]:
        offsets, features, values = ctx.saved_tensors
        # A stable sort, so that sums always have the same order.
        features, order = torch.sort(features, stable=True)
        used, counts = torch.unique_consecutive(features, return_counts=True)
        rows = torch.arange(len(output), dtype=offsets.dtype)
        rows = torch.repeat_interleave(rows, offsets.diff(), output_size=len(values))[order]
        by_feature = torch.zeros(len(used) + 1, dtype=offsets.dtype)
        torch.cumsum(counts, 0, out=by_feature[1:])
        sums = _sums(output.contiguous(), rows, by_feature, values[order])
        gradient = ctx.make_gradient(used.long(), sums, ctx.n_features)
        return None, None, None, gradient, None


def _sums(table: Tensor, index: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the table's rows for each stretch of `index`."""
    sums, *_ = torch.embedding_bag(
        table, index, offsets, mode=0, per_sample_weights=weights, include_last_offset=True
    )
    return sums


@contextmanager
def own_gradients(model: nn.Module, *, sparse: bool) -> Iterator[None]:
    """Let the sparse layers of a model keep one gradient, or have sparse ones, inside the block.

    A gradient is as large as the weight, and allocating that much for each step would cost more than
    everything else. A kept one overwrites the previous step's: do not keep or accumulate gradients, and
    scale them only in place. A sparse one has only the features of the batch: with many more features a
    step then costs what the batch has, in an optimizer that takes it (`AdamMini`, ``SparseAdam``).

    Examples
    --------
    >>> layer, x = SparseLinear(4, 2), torch.eye(4)[:1].to_sparse_csr()
    >>> with own_gradients(layer, sparse=True):
    ...     layer(x).sum().backward()
    ...     layer.weight.grad.indices().tolist(), layer.weight.grad.values().tolist()
    ([[0]], [[1.0, 1.0]])
    >>> with own_gradients(layer, sparse=False):
    ...     layer(x).sum().backward()
    ...     layer.weight.grad.sum()
    tensor(2.)
    """
    layers = []
    for module in model.modules():
        if isinstance(module, SparseLinear):
            module._make_gradient = _sparse_gradient if sparse else _ReusedGradient()
            layers.append(module)
    try:
        yield
    finally:
        for layer in layers:
            layer._make_gradient = None
            layer.weight.grad = None  # a view that the next block would overwrite


def csr_rows(x: Tensor, start: int, end: int) -> Tensor:
    """Return the rows from `start` to `end` of a CSR tensor, which torch cannot slice itself.

    Examples
    --------
    >>> csr_rows(torch.eye(3).to_sparse_csr(), 1, 3).to_dense()
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    offsets = x.crow_indices()[start : end + 1]
    inside = slice(int(offsets[0]), int(offsets[-1]))
    return torch.sparse_csr_tensor(
        offsets - offsets[0],
        x.col_indices()[inside],
        x.values()[inside],
        (len(offsets) - 1, x.shape[1]),
        check_invariants=False,
    )
