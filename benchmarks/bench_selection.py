"""Drawing and observing batches against what people use today, at sizes from 10^4 to 10^8."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.harness import interleaved as interleaved_by_clock
from benchmarks.harness import peak_bytes, publish, table
from tailbatch.data import MultiLabelDataset, load_dataset
from tailbatch.models import make_model
from tailbatch.selection import (
    AdaptiveSelector,
    ChainSelector,
    HardSelector,
    ImportanceSelector,
    RandomSelector,
    Selector,
    make_selector,
)

BATCH = 128
PRESSURE = 16.0
BATCHES = 8  # a turn this short is seldom interrupted, even on a busy machine
ROUNDS = 41
MERGE_EVERY = 64  # one merge of the rank order falls into each turn of `hard`
SIZES = [10**4, 10**5, 10**6, 10**7, 10**8]
PEER_SIZES = [10**6, 10**7]
LABELS = 10
CHAIN_LABELS, CHAIN_CARDINALITY = 50, 3
RIVALS = ["class_aware", "coverage", "boundary", "recency", "uncertainty"]
RIVAL_SIZES = [10**4, 10**5, 10**6]
SCENE = (2407, 294, 6)

Work = Callable[[], object]
#: Everything here runs in one thread, so other work on the machine hardly disturbs processor time.
interleaved = partial(interleaved_by_clock, clock=time.process_time)


def main() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        parts = [
            "## Selection\n\n"
            f"One draw and one `observe` of {BATCH} samples, processor time of one thread, heavy-tailed "
            f"losses; NumPy {np.__version__}, torch {torch.__version__}; load {os.getloadavg()[1]:.0f} "
            f"on {os.cpu_count()} cores (on a busy machine only the ratios mean something).",
            table(["adaptive, s_e = 16", "ms a batch", "against 10^4", "target"], _flat_rows()),
            table(
                ["importance, by the gradient", "ms a batch", "against 10^4", "target"],
                [*_importance_rows(), *_outlier_rows()],
            ),
            table(["beside it", "ms", "importance", "target"], [*_tree_rows(), *_shuffle_rows()]),
            table(["peer, law renewed each batch", "ms a batch", "adaptive", "target"], _peers()),
            table(
                ["other strategies", "ms a batch", "target"],
                [*_hard_rows(), *_chain_rows()],
            ),
            table(
                ["other published strategies", *(f"n = {n:.0e}" for n in RIVAL_SIZES), "target"],
                _rival_rows(),
            ),
            table(["one training epoch", "random (ms)", "adaptive", "target"], _epoch_rows()),
            table(["memory", "measured", "target"], [_memory_row()]),
        ]
    finally:
        torch.set_num_threads(threads)
    publish("selection", "\n\n".join(parts))


def heavy_tailed(n: int) -> npt.NDArray[np.float32]:
    """Losses of which most are small and a few are huge."""
    losses = np.random.default_rng(0).standard_normal(n, dtype=np.float32)
    losses *= 2
    return np.exp(losses, out=losses)


def batches_of(selector: Selector, count: int = BATCHES, labels: tuple[int, ...] = ()) -> Work:
    """Draw and observe `count` batches, going on where the last call stopped."""
    rng = np.random.default_rng(1)
    losses = np.exp(2 * rng.standard_normal((count, selector.batch_size, *labels)))

    def forever() -> Iterator[npt.NDArray[np.int64]]:
        while True:
            yield from selector

    source = forever()

    def work() -> None:
        for row in losses:
            index = next(source)
            if selector.corrected:
                selector.importance_weights()
            selector.observe(row[: len(index)])

    work()  # the first batches learn how many candidates to propose
    return work


def adaptive(n: int) -> AdaptiveSelector:
    return AdaptiveSelector(
        1.0,
        n_samples=n,
        batch_size=BATCH,
        selection_pressure=PRESSURE,
        initial_losses=heavy_tailed(n),
    )


def _flat_rows() -> list[list[str]]:
    works = {f"10^{int(np.log10(n))}": batches_of(adaptive(n)) for n in SIZES}
    seconds = {name: total / BATCHES for name, total in interleaved(works, rounds=ROUNDS).items()}
    targets = {"10^6": "at most 0.2 ms", "10^8": "at most 5x"}
    return [
        [f"n = {name}", _ms(value), f"{value / seconds['10^4']:.1f}x", targets.get(name, "")]
        for name, value in seconds.items()
    ]


# ---- importance --------------------------------------------------------------------------------


def one_label_each(n: int) -> sparse.csr_array:
    """Return labels of Zipf frequencies, one a row: small enough for 10^8 rows."""
    frequency = 1 / np.arange(1, LABELS + 1)
    bounds = np.cumsum(frequency / frequency.sum())
    draws = np.random.default_rng(0).random(n, dtype=np.float32)
    labels = np.minimum(np.searchsorted(bounds, draws), LABELS - 1).astype(np.int32)
    starts = np.arange(n + 1, dtype=np.int32)
    return sparse.csr_array((np.ones(n, dtype=bool), labels, starts), shape=(n, LABELS))


def importance(n: int, **options: object) -> ImportanceSelector:
    settings = {"score": "gradient", "batch_size": BATCH, **options}
    return ImportanceSelector(one_label_each(n), **settings)  # type: ignore[arg-type]


def _importance_rows() -> list[list[str]]:
    works = {f"10^{int(np.log10(n))}": batches_of(importance(n), labels=(LABELS,)) for n in SIZES}
    seconds = {name: total / BATCHES for name, total in interleaved(works, rounds=ROUNDS).items()}
    targets = {"10^7": "at most 0.5 ms", "10^8": "at most 5x"}
    return [
        [f"n = {name}", _ms(value), f"{value / seconds['10^4']:.1f}x", targets.get(name, "")]
        for name, value in seconds.items()
    ]


def _outlier_rows() -> list[list[str]]:
    """Show one sample whose norm is a million times the mean."""
    n = 10**6
    plain, spoiled = importance(n), importance(n)
    values = np.ones(n, dtype=np.int64)
    values[n // 2] = 10**6
    spoiled._table.change(np.arange(n), values)
    works = {
        "plain": batches_of(plain, labels=(LABELS,)),
        "outlier": batches_of(spoiled, labels=(LABELS,)),
    }
    seconds = interleaved(works, rounds=ROUNDS)
    ratio = f"{seconds['outlier'] / seconds['plain']:.1f}x without it"
    return [
        [
            "n = 1e+06, one norm 10^6 times the mean",
            _ms(seconds["outlier"] / BATCHES),
            ratio,
            "flat",
        ]
    ]


def _tree_rows() -> list[list[str]]:
    rows = []
    for n in PEER_SIZES:
        tree = prioritized(n)
        if tree is None:
            return [["TorchRL PrioritizedSampler", "its compiled part does not load", "", ""]]
        works = {"ours": batches_of(importance(n), labels=(LABELS,)), "tree": tree}
        seconds = interleaved(works, rounds=ROUNDS)
        ratio = f"takes {seconds['ours'] / seconds['tree']:.2f}x its time"
        each = _ms(seconds["tree"] / BATCHES)
        rows.append([f"TorchRL PrioritizedSampler, a batch, n = {n:.0e}", each, ratio, ""])
    return rows


def _shuffle_rows() -> list[list[str]]:
    n = 10**7
    selector = importance(n, score="prior")
    rng = np.random.default_rng(0)

    def shuffle() -> None:
        selector._order = None
        selector._weighted_shuffle(0)

    works = {"permutation": lambda: rng.permutation(n), "weighted": shuffle}
    seconds = interleaved(works, rounds=5)
    ratio = f"{seconds['weighted'] / seconds['permutation']:.2f}x for a weighted shuffle"
    return [["a permutation, n = 1e+07", _ms(seconds["permutation"]), ratio, "at most 2x"]]


# ---- peers -------------------------------------------------------------------------------------


def renewed_probabilities(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Write the adaptive law down for all n samples (Eq. 6 and 7)."""
    n = len(losses)
    p: npt.NDArray[np.float64] = PRESSURE ** (np.ceil(n * losses / losses.max()) / n)
    p /= p.sum()
    return p


def multinomial(n: int) -> Work:
    losses = heavy_tailed(n).astype(np.float64)

    def work() -> None:
        p = torch.from_numpy(renewed_probabilities(losses))
        index = torch.multinomial(p, BATCH, replacement=False)
        losses[index.numpy()] = 1.0

    return work


def choice(n: int) -> Work:
    losses = heavy_tailed(n).astype(np.float64)
    rng = np.random.default_rng(0)

    def work() -> None:
        losses[rng.choice(n, BATCH, replace=False, p=renewed_probabilities(losses))] = 1.0

    return work


def prioritized(n: int) -> Work | None:
    """TorchRL's sum tree, with replacement and another law; None where it cannot be loaded."""
    # Its compiled part may name a function of another version of torch, which the sum tree never
    # calls: bound when called, not when loaded, it does not stand in the way.
    eager = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    module = import_module("torchrl.data.replay_buffers.samplers")
    sys.setdlopenflags(eager)
    try:
        sampler = module.PrioritizedSampler(n, alpha=1.0, beta=0.5)
    except RuntimeError:  # its compiled part was built for another version of torch
        return None
    storage = import_module("torchrl.data").LazyTensorStorage(n)
    storage.set(slice(0, n), torch.zeros(n, dtype=torch.bool))
    sampler.update_priority(torch.arange(n), torch.from_numpy(heavy_tailed(n)), storage=storage)
    new = torch.from_numpy(heavy_tailed(BATCHES * BATCH).reshape(BATCHES, BATCH))

    def work() -> None:
        for losses in new:
            index, _ = sampler.sample(storage, BATCH)
            sampler.update_priority(index, losses, storage=storage)

    return work


def _peers() -> list[list[str]]:
    rows = []
    for n, target in zip(PEER_SIZES, (100, 500), strict=True):
        works = {"adaptive": batches_of(adaptive(n)), "torch.multinomial": multinomial(n)}
        works["numpy Generator.choice"] = choice(n)
        tree = prioritized(n)
        if tree is not None:
            works["TorchRL PrioritizedSampler"] = tree
        seconds = interleaved(works, rounds=9)
        ours = seconds.pop("adaptive") / BATCHES
        for name, total in seconds.items():
            is_tree = name.startswith("TorchRL")
            each = total / BATCHES if is_tree else total
            wanted = ("at least as fast" if n == 10**7 else "") if is_tree else f"{target}x faster"
            rows.append([f"{name}, n = {n:.0e}", _ms(each), f"{each / ours:.1f}x faster", wanted])
        if tree is None:
            rows.append(
                [
                    f"TorchRL PrioritizedSampler, n = {n:.0e}",
                    "its compiled part does not load",
                    "",
                    "",
                ]
            )
    return rows


# ---- other strategies --------------------------------------------------------------------------


def _hard_rows() -> list[list[str]]:
    works = {
        n: batches_of(
            HardSelector(
                n, batch_size=BATCH, selection_pressure=PRESSURE, initial_losses=heavy_tailed(n)
            ),
            MERGE_EVERY,
        )
        for n in (10**5, 10**6)
    }
    seconds = interleaved({str(n): work for n, work in works.items()}, rounds=9)
    return [
        [
            f"hard, n = {n:.0e}, merges included",
            _ms(seconds[str(n)] / MERGE_EVERY),
            "at most 1 ms" if n == 10**6 else "",
        ]
        for n in works
    ]


def label_rows(n: int) -> sparse.csr_array:
    """Labels of Zipf frequencies, at most `CHAIN_CARDINALITY` a row."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, CHAIN_LABELS + 1)
    labels = rng.choice(
        CHAIN_LABELS, size=n * CHAIN_CARDINALITY, p=frequency / frequency.sum()
    ).astype(np.int32)
    rows = np.repeat(np.arange(n, dtype=np.int32), CHAIN_CARDINALITY)
    shape = (n, CHAIN_LABELS)
    return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, labels)), shape=shape)


def _chain_rows() -> list[list[str]]:
    rows = []
    targets = {10**4: "at most 10 ms", 10**5: "at most 5 ms"}
    for n in (10**4, 10**5, 10**6, 10**7):
        selector = ChainSelector(
            1.0,
            label_rows(n),
            batch_size=BATCH,
            selection_pressure=64,
            initial_losses=heavy_tailed(n),
        )
        seconds = interleaved({"chain": batches_of(selector, 1)}, rounds=ROUNDS)["chain"]
        rows.append(
            [f"chain, s_e = 64, n = {n:.0e}", _ms(seconds), targets.get(n, "at most 10 ms")]
        )
    return rows


def rival(name: str, n: int) -> Selector:
    made = make_selector(name, one_label_each(n), batch_size=BATCH, warm_up_epochs=0, epochs=100)
    return made


def _rival_rows() -> list[list[str]]:
    rows = []
    for name in RIVALS:
        works = {f"{n:.0e}": batches_of(rival(name, n), labels=(LABELS,)) for n in RIVAL_SIZES}
        seconds = interleaved(works, rounds=ROUNDS)
        each = [f"{_ms(total / BATCHES)} ms a batch" for total in seconds.values()]
        rows.append([name, *each, "flat"])
    renewals = {}
    for n in RIVAL_SIZES:
        selector = rival("uncertainty", n)
        batches_of(selector, labels=(LABELS,))
        renewals[f"{n:.0e}"] = partial(selector._start_epoch, 0)
    seconds = interleaved(renewals, rounds=3)
    rows.append(
        [
            f"uncertainty, renewal once an epoch, {LABELS} labels",
            *(f"{_ms(total)} ms" for total in seconds.values()),
            "grows with n",
        ]
    )
    return rows


# ---- a real epoch ------------------------------------------------------------------------------


def scene() -> MultiLabelDataset:
    """Return the scene dataset if it is here, else random rows of its shape."""
    folder = os.environ.get("TAILBATCH_DATA")
    if folder:
        (path,) = Path(folder).glob("scene/scene.arff*")
        return load_dataset(path)
    n, d, q = SCENE
    rng = np.random.default_rng(0)
    return MultiLabelDataset.from_arrays(rng.random((n, d)), rng.random((n, q)) < 0.18)


def epoch_of(model_name: str, data: MultiLabelDataset, selector: Selector) -> Work:
    model = make_model(model_name, data)
    optimizer = torch.optim.Adam(model.param_groups(1e-4, 1e-4))
    X = torch.from_numpy(np.asarray(data.X, dtype=np.float32))
    Y = torch.from_numpy(np.asarray(data.Y, dtype=np.float32))

    def work() -> None:
        for index in selector:
            x, y = X[index], Y[index]
            step = model.step(x, y)
            optimizer.zero_grad()
            torch.autograd.backward(step.objective)
            optimizer.step()
            if selector.needs_losses:
                selector.observe(
                    binary_cross_entropy_with_logits(step.logits, y, reduction="none").numpy()
                )

    work()
    return work


def _epoch_rows() -> list[list[str]]:
    data = scene()
    rows = []
    for name, target in {"mlp": 1.10, "dela": 1.03}.items():
        seconds = interleaved(
            {
                "random": epoch_of(name, data, RandomSelector(data.n_samples, batch_size=BATCH)),
                "adaptive": epoch_of(
                    name, data, AdaptiveSelector(1.0, n_samples=data.n_samples, batch_size=BATCH)
                ),
            },
            rounds=31,
        )
        rows.append(
            [
                f"{name} on scene",
                _ms(seconds["random"]),
                f"{seconds['adaptive'] / seconds['random']:.2f}x",
                f"at most {target:.2f}x",
            ]
        )
    return rows


def _memory_row() -> list[str]:
    n = 10**8
    losses = heavy_tailed(n)

    def work() -> None:
        selector = AdaptiveSelector(1.0, n_samples=n, batch_size=BATCH, initial_losses=losses)
        index = next(iter(selector))
        selector.observe(np.ones(len(index)))

    return ["adaptive, n = 10^8", f"{peak_bytes(work) / 1e9:.2f} GB", "at most 1.3 GB"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g}"
