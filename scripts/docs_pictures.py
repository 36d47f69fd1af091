"""The pictures of the site, each drawn from results that the package computes.

`make docs` draws them each time, so that they always agree with the code.
``python scripts/docs_pictures.py FOLDER`` writes them as SVG and PNG, to look at.

The README's picture is committed, because it takes minutes and a downloaded dataset:
``python -m scripts.docs_pictures by_label`` fits again, and writes docs/assets/by_label.csv and .svg.
"""

import io
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch.nn.functional import binary_cross_entropy_with_logits

from tailbatch import load_dataset, make_selector
from tailbatch.data import MultiLabelDataset
from tailbatch.imbalance import local_imbalance, positive_weights, selection_weights
from tailbatch.metrics import average_precision_by_label
from tailbatch.report.description import describe
from tailbatch.report.figures import PALETTE, label_frequencies
from tailbatch.selection import (
    AdaptiveSelector,
    BalancedSelector,
    Constant,
    Geometric,
    HardSelector,
    ImportanceSelector,
    UniformSelector,
)

GRAY, BLUE, ORANGE, GREEN, PINK, OCHER, *_ = (light for light, _ in PALETTE)
STYLE = {
    "svg.hashsalt": "tailbatch",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "legend.frameon": False,
}
BENCHMARKS = Path(__file__).parent.parent / "benchmarks" / "README.md"
BY_LABEL = Path(__file__).parent.parent / "docs" / "assets" / "by_label.csv"


def drawn(name: str, form: str = "svg") -> bytes:
    """Return a picture as a file's content; the same code gives the same bytes."""
    stream = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {}
    with rc_context(STYLE):
        figure = by_label() if name == "by_label" else PICTURES[name]()
        figure.savefig(stream, format=form, metadata=metadata)
    return stream.getvalue()


def _panels(count: int, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count)))


def _box(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    axes.text(
        *(x, y, text),
        ha="center",
        va="center",
        color=color,
        linespacing=1.5,
        bbox={"boxstyle": "round,pad=0.7", "fc": "white", "ec": color, "lw": 1.5},
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float) -> None:
    axes.annotate(
        *("", end, start),
        arrowprops={"arrowstyle": "-|>", "color": GRAY, "connectionstyle": f"arc3,rad={bend}"},
    )


def loop() -> Figure:
    """Draw the loop: a batch out, its losses back."""
    figure, (axes,) = _panels(1, 2.6)
    axes.set(xlim=(0, 10), ylim=(0, 4))
    axes.axis("off")
    _box(axes, 1.6, 2, "selector\nlast known loss of\nevery sample", BLUE)
    _box(axes, 5.6, 2, "your training step\nforward, backward,\noptimizer", GRAY)
    _box(axes, 9.0, 2, "model", GRAY)
    _arrow(axes, (2.9, 2.5), (4.3, 2.5), -0.3)
    _arrow(axes, (4.3, 1.5), (2.9, 1.5), -0.3)
    _arrow(axes, (6.95, 2), (8.45, 2), 0)
    axes.text(3.6, 3.1, "128 row numbers", ha="center")
    axes.text(3.6, 0.75, "observe(losses)", ha="center", family="monospace", size=10)
    return figure


def imbalance() -> Figure:
    """Draw how often the labels of the embedded dataset occur."""
    return label_frequencies(describe(load_dataset("debtags")))


def weights() -> Figure:
    """Draw local imbalance and the selection weights of a toy problem with one minority label."""
    rng = np.random.default_rng(4)
    inside = rng.normal((0.25, 0.5), 0.06, (14, 2))
    mixed = rng.normal((0.62, 0.5), 0.1, (7, 2))
    alone = np.array([[0.93, 0.93]])
    others = rng.random((150, 2)) * [0.55, 1] + [0.42, 0]
    X = np.vstack([inside, mixed, alone, others])
    has_it = np.arange(len(X)) < 22
    Y = np.column_stack([np.ones(len(X), bool), has_it])
    B, w = local_imbalance(X, Y)[:, 1], selection_weights(X, Y)
    figure, panels = _panels(2, 3.8)
    titles = "share of the 5 nearest rows without the label", "selection weight w"
    for axes, values, title in zip(panels, (B, w), titles, strict=True):
        axes.scatter(*X[~has_it].T, s=12, color="#c6ccd4", label="other rows")
        shown = axes.scatter(
            *X[has_it].T, c=values[has_it], s=45, cmap="viridis_r", edgecolor="k", lw=0.4
        )
        figure.colorbar(shown, ax=axes, shrink=0.8)
        axes.set(xticks=[], yticks=[], title=title)
    panels[1].annotate(
        *("no neighbor shares it:\nnoise, weight 1", (0.92, 0.93), (0.1, 0.9)),
        arrowprops={"arrowstyle": "-|>", "color": GRAY},
    )
    return figure


def _losses(n: int) -> np.ndarray:
    return np.sort(np.random.default_rng(1).gamma(4.0, 0.15, n))


def _adaptive(losses: np.ndarray, pressure: float, cap: float | None = None) -> np.ndarray:
    selector = AdaptiveSelector(
        1.0,
        n_samples=len(losses),
        batch_size=1,
        selection_pressure=pressure,
        initial_losses=losses,
        cap_quantile=cap,
    )
    next(iter(selector))  # the cap is taken when an epoch begins
    return selector.probabilities()


def _hard(losses: np.ndarray, pressure: float) -> np.ndarray:
    selector = HardSelector(
        len(losses), batch_size=1, selection_pressure=pressure, initial_losses=losses
    )
    return selector.probabilities()


def law() -> Figure:
    """Draw how much likelier than uniform a sample is, by its loss, under two distributions."""
    losses = _losses(60)
    figure, panels = _panels(2)
    laws = {"adaptive: by the size of the loss": _adaptive, "hard: by the rank of the loss": _hard}
    for axes, (title, probabilities) in zip(panels, laws.items(), strict=True):
        for pressure, color in ((1, GRAY), (2, OCHER), (16, BLUE), (64, ORANGE)):
            times = len(losses) * probabilities(losses, pressure)
            axes.plot(losses, times, "o-", ms=3, lw=1, color=color, label=f"pressure {pressure}")
        axes.set(title=title, xlabel="loss of a sample", ylim=(0, 11))
    panels[0].set_ylabel("times as likely as uniform")
    panels[0].legend()
    return figure


def outlier() -> Figure:
    """Draw how one huge loss flattens the adaptive distribution, and how the cap restores it."""
    losses = _losses(1000)
    spoiled = losses.copy()
    spoiled[-1] = 20.0
    figure, panels = _panels(3)
    cases = {
        "1,000 losses": _adaptive(losses, 16),
        "one of them is 20": _adaptive(spoiled, 16),
        "the same, cap_quantile=0.95": _adaptive(spoiled, 16, 0.95),
    }
    for axes, (title, p) in zip(panels, cases.items(), strict=True):
        axes.fill_between(range(1, 1001), 1000 * p, color=BLUE, step="mid")
        axes.set(title=title, xlabel="sample, by its loss", ylim=(0, 5), xlim=(1, 1000))
        axes.text(
            40, 4.3, f"number 950 is {p[949] / p[49]:.1f} times\nas likely as number 50", size=10
        )
    panels[0].set_ylabel("times as likely as uniform")
    return figure


def pressure() -> Figure:
    """Draw the effective sample size against the pressure, and two schedules."""
    rng = np.random.default_rng(0)
    shapes = {
        "spread evenly": (rng.random(5000), BLUE),
        "exponential": (rng.exponential(1.0, 5000), GREEN),
        "heavy-tailed (Pareto)": (rng.pareto(1.5, 5000), ORANGE),
    }
    numbers = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    figure, (left, right) = _panels(2)
    for name, (losses, color) in shapes.items():
        shares = [1 / (_adaptive(losses, s) ** 2).sum() / 5000 for s in numbers]
        left.plot(numbers, shares, "o-", ms=4, color=color, label=f"losses {name}")
    left.set_xscale("log", base=2)
    left.set_xticks(numbers, [str(number) for number in numbers])
    left.set(xlabel="selection pressure", ylim=(0, 1.03), title="effective sample size / n")
    left.legend()
    epochs = np.arange(97)
    for name, schedule, color in (
        ("16", Constant(16), BLUE),
        ("Geometric(64, 1)", Geometric(64, 1), PINK),
    ):
        right.plot(epochs + 3, [schedule(int(e), 97) for e in epochs], color=color, label=name)
    right.axvspan(0, 3, color="#e6e9ee", label="warm-up: shuffled epochs")
    right.set_yscale("log", base=2)
    right.set_yticks((1, 4, 16, 64), ("1", "4", "16", "64"))
    right.set(xlabel="epoch", title="pressure over a training of 100 epochs")
    right.legend()
    return figure


def _exposures(data: MultiLabelDataset, strategy: str, epochs: int = 8) -> np.ndarray:
    """Train a linear model and return each label's exposure, averaged after the warm-up."""
    X = torch.tensor(data.X.toarray(), dtype=torch.float32)
    Y = torch.tensor(data.Y, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    W = torch.empty(data.n_features, data.n_labels).normal_(0, 0.01, generator=generator)
    W.requires_grad_()
    optimizer = torch.optim.Adam([W], lr=1e-2)
    selector = make_selector(
        strategy, data.Y, X=data.X, batch_size=128, epochs=epochs, warm_up_epochs=2
    )
    seen = []
    for epoch in range(epochs):
        for index in selector:
            losses = binary_cross_entropy_with_logits(X[index] @ W, Y[index], reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            selector.observe(losses.detach())
        if epoch >= 2:
            seen.append(selector.diagnostics().label_exposure)
    return np.mean(seen, axis=0)


def exposure() -> Figure:
    """Draw how often each label of the embedded dataset was shown, by its number of positives."""
    data = load_dataset("debtags")
    positives = data.Y.sum(axis=0)
    figure, panels = _panels(4, 3.1)
    strategies = {"random": GRAY, "balanced": OCHER, "adaptive": BLUE, "minority": PINK}
    for axes, (strategy, color) in zip(panels, strategies.items(), strict=True):
        axes.scatter(positives, _exposures(data, strategy), s=9, color=color)
        axes.axhline(1, color=GRAY, lw=0.8, ls=":")
        axes.set_xscale("log")
        axes.set(title=strategy, ylim=(0, 4), xlabel="rows with the label")
    panels[0].set_ylabel("label exposure")
    return figure


def _prior_losses(data: MultiLabelDataset) -> np.ndarray:
    """Return each row's weighted loss, summed over labels, where a model predicts the prior."""
    weights, share = positive_weights(data.Y), data.Y.mean(axis=0)
    prior = weights * share / (1 - share + weights * share)
    with np.errstate(divide="ignore"):
        cells = np.where(data.Y, -weights * np.log(prior), -np.log1p(-prior))
    return cells.sum(axis=1)


def correction() -> Figure:
    """Draw probability and weight, and what batches estimate with and without the correction."""
    data = load_dataset("debtags")
    losses = _prior_losses(data)
    chosen = ImportanceSelector(data.Y, batch_size=128, draws="independent")
    times = np.sort(chosen.probabilities()) * data.n_samples
    figure, (left, right) = _panels(2)
    left.plot(times, color=PINK, label="times as likely as uniform, n p")
    left.plot(1 / times, color=BLUE, label="weight of its loss, 1 / (n p)")
    left.plot(np.ones_like(times), color=GRAY, ls=":", label="their product")
    left.set_yscale("log")
    left.set(title="importance", xlabel="row, by its probability", ylim=(0.2, 14))
    left.set_yticks((0.25, 0.5, 1, 2, 4), ("1/4", "1/2", "1", "2", "4"))
    left.minorticks_off()
    left.legend()
    arms = {
        "uniform": (UniformSelector(data.n_samples, batch_size=128), GRAY),
        "balanced": (BalancedSelector(data.Y, batch_size=128), OCHER),
        "importance": (chosen, PINK),
    }
    bins = np.linspace(0.7, 2, 130) * losses.mean()
    for name, (selector, color) in arms.items():
        means: list[float] = []
        while len(means) < 3000:
            epoch = [(len(index), selector.mean(losses[index])) for index in selector]
            means += [float(mean) for size, mean in epoch if size == 128]
        right.hist(means, bins, color=color, alpha=0.6, label=f"{name}, spread {np.std(means):.2f}")
    right.axvline(losses.mean(), color="black", lw=1)
    right.set(
        title="mean loss over all rows, estimated by batches of 128", yticks=[], xlabel="loss"
    )
    right.legend(loc="upper right")
    return figure


def exactness() -> Figure:
    """Draw the enumerated probabilities of ordered batches beside the observed shares."""
    losses = np.array([0.2, 0.4, 0.6, 1.0])
    p = _adaptive(losses, 16)
    expected = {(i, j): p[i] * p[j] / (1 - p[i]) for i, j in permutations(range(4), 2)}
    selector = AdaptiveSelector(1.0, n_samples=4, batch_size=2, initial_losses=losses)
    seen: Counter[tuple[int, ...]] = Counter()
    while seen.total() < 20_000:
        for index in selector:
            seen[tuple(index.tolist())] += 1
            selector.observe(losses[index])  # as if the model never changed
    figure, (axes,) = _panels(1, 3.2)
    positions = range(len(expected))
    axes.bar(positions, list(expected.values()), color="#b9d3e6", label="computed from the formula")
    shares = [seen[batch] / seen.total() for batch in expected]
    axes.plot(
        positions, shares, "o", color=ORANGE, ms=5, label=f"share among {seen.total():,} batches"
    )
    axes.set_xticks(positions, [f"{i}, {j}" for i, j in expected])
    axes.set(xlabel="batch of two out of four samples, in drawing order", ylabel="probability")
    axes.legend()
    return figure


def cost() -> Figure:
    """Draw the published benchmark of one draw and one observation, against the size of the data."""
    table = BENCHMARKS.read_text()
    flat = [
        (10.0 ** int(power), float(ms))
        for power, ms in re.findall(r"^\| n = 10\^(\d+) \| ([\d.]+) \|", table, re.MULTILINE)
    ]
    figure, (axes,) = _panels(1)
    axes.loglog(*zip(*flat, strict=True), "o-", color=BLUE, label="tailbatch, adaptive")
    peers = {"torch.multinomial": ORANGE, "numpy Generator.choice": GREEN}
    for (peer, color), mark in zip(peers.items(), "s^", strict=True):
        rows = re.findall(rf"^\| {re.escape(peer)}, n = (\S+) \| ([\d.]+) \|", table, re.MULTILINE)
        points = [(float(n), float(ms)) for n, ms in rows]
        axes.loglog(*zip(*points, strict=True), f"{mark}--", color=color, label=peer)
    axes.set(xlabel="samples in the training set", ylabel="ms a batch of 128", ylim=(0.1, 3000))
    axes.legend(loc="upper left")
    return figure


def fairness() -> Figure:
    """Draw what the strategies of a comparison share."""
    figure, (axes,) = _panels(1, 2.6)
    axes.set(xlim=(0, 10), ylim=(0.2, 4.3))
    axes.axis("off")
    axes.barh([3.4], [3], left=0, height=0.7, color="#d7dce3")
    axes.text(1.5, 3.4, "warm-up: same weights, same batches", ha="center", va="center", size=9)
    for row, (name, color) in enumerate((("random", GRAY), ("adaptive", BLUE), ("minority", PINK))):
        height = 3.4 - row
        axes.barh([height], [6.8], left=3.2, height=0.7, color=color)
        axes.text(3.4, height, name, color="white", va="center", weight="bold", size=10)
        text = "as many steps, as many draws, same noise"
        axes.text(9.85, height, text, color="white", va="center", ha="right", size=9)
        axes.plot([3.1, 3.2], [3.4, height], color=GRAY, lw=1)
    axes.text(0, 0.9, "digest of the weights here\nis in every record", va="center", size=9)
    axes.annotate("", (3.08, 3.0), (1.9, 1.2), arrowprops={"arrowstyle": "-|>", "color": GRAY})
    axes.text(0, 4.05, "epoch 1", size=9)
    axes.text(3.2, 4.05, "epoch 4", size=9)
    axes.text(10, 4.05, "epoch 100", ha="right", size=9)
    return figure


def measured_by_label() -> pd.DataFrame:
    """Fit the default and logistic regression on GoEmotions; return each label's average precision.

    The rows, folds and rivals of `python -m benchmarks.default_estimator`; held-out rows are pooled.
    """
    from benchmarks.default_estimator import FOLDS, held_out, scores_of

    data = load_dataset("goemotions")
    truth = np.concatenate([held_out(data.name, fold)[1].Y for fold in FOLDS])
    table = pd.DataFrame({"label": data.label_names, "rows": data.Y.sum(axis=0)})
    for learner in ("TailbatchClassifier()", "logistic", "balanced_logistic"):
        scores = [scores_of(learner, *held_out(data.name, f), f)["scores"] for f in FOLDS]
        table[learner] = average_precision_by_label(truth, np.concatenate(scores))
    return table.sort_values("rows", ignore_index=True).round(4)


def by_label() -> Figure:
    """Draw each label's average precision, the rarest first, beside logistic regression."""
    table = pd.read_csv(BY_LABEL)
    ours, rival = table["TailbatchClassifier()"], table["logistic"]
    figure, (axes,) = _panels(1, 4)
    axes.bar(table.index, rival, 0.7, color="#b4bac3", label="logistic regression, C tuned")
    axes.bar(table.index, ours - rival, 0.7, rival, color=BLUE, label="gained by tailbatch")
    for place, (value, gained) in enumerate(zip(ours, ours / rival - 1, strict=True)):
        if place < len(table) // 2:
            axes.text(place, value + 0.015, f"{gained:+.0%}", ha="center", size=7.5, color=BLUE)
    names = [f"{name}  {rows:,}" for name, rows in zip(table["label"], table["rows"], strict=True)]
    axes.set_xticks(table.index, names, rotation=55, ha="right", rotation_mode="anchor", size=9)
    axes.set(ylabel="average precision", ylim=(0, 1), xlim=(-0.6, len(table) - 0.4))
    axes.legend(loc="upper left")
    return figure


def write_by_label() -> None:
    """Measure and draw the README's picture again."""
    measured_by_label().to_csv(BY_LABEL, index=False)
    BY_LABEL.with_suffix(".svg").write_bytes(drawn("by_label"))


PICTURES: dict[str, Callable[[], Figure]] = {
    draw.__name__: draw
    for draw in (
        loop,
        imbalance,
        weights,
        law,
        outlier,
        pressure,
        exposure,
        correction,
        exactness,
        cost,
        fairness,
    )
}


def main(folder: str) -> None:
    """Write every picture into a folder."""
    for name in PICTURES:
        Path(folder, f"{name}.svg").write_bytes(drawn(name))
        Path(folder, f"{name}.png").write_bytes(drawn(name, "png"))


if __name__ == "__main__":
    write_by_label() if sys.argv[1:] == ["by_label"] else main(*sys.argv[1:])
