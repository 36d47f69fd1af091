"""Which rows to label next: hidden labels, reviewed in rounds of 100 rows by several strategies.

    python -m benchmarks suggest

A reviewer who knows the true labels answers. Every arm starts from the same labeled rows, trains the same
classifier (logistic regression for each label, on the same features), and chooses from the same pool:

- ``label``: 100 rows a round for one rare label, for each of the rarest in turn;
- ``shared``: 100 rows a round for all of them together; every arm learns all these labels of a row.

The peer is small-text, if it is installed (extra ``bench``): its
``CategoryVectorInconsistencyAndRanking`` is the strategy for many labels, ``BreakingTies`` the one for a
single label. scikit-activeml has no strategy for many labels. With one label, least confidence, margin
and entropy choose the same rows, so ``uncertainty`` stands for all three.

Each unit of work is written to ``benchmarks/suggest.json`` as soon as it is done; another start goes on.
``DATASETS``, ``SEEDS``, ``LABELS`` and ``DEVELOPMENT=1`` (compares the shares of `STRATEGIES`) choose.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from benchmarks.harness import interleaved, peak_bytes, publish, table
from tailbatch.data import fit_scaling, load_dataset
from tailbatch.errors import DataError
from tailbatch.files import replacing
from tailbatch.metrics.scored import dense_labels
from tailbatch.seeds import stream
from tailbatch.suggestions import STRATEGIES, suggest

RESULTS = Path(__file__).with_name("suggest.json")
PAGE = Path(__file__).parents[1] / "docs" / "labeling.md"
PICTURE = PAGE.with_name("assets") / "labeling.svg"
SHOWN = {"random": "at random", "small-text": "small-text", "mixed": "tailbatch"}
DATASETS = ("goemotions", "debtags", "bibtex", "rcv1subset1", "tmc2007-500")
DEVELOPMENT = ("enron", "yahoo-arts", "yahoo-business", "rcv1subset2", "corel5k")
ROUNDS, ROWS, LABELED, POOL = 5, 100, 2_000, 10_000
FEWEST = 8  # positives among the labeled rows, and among the test rows
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)

Scores = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class Task(NamedTuple):
    """Rows, labels that are rare, and who is labeled, in the pool, and for testing."""

    X: Any
    Y: npt.NDArray[np.bool_]
    labeled: Rows
    pool: Rows
    test: Rows


def task(dataset: str, seed: int, n_labels: int) -> Task:
    """Return a dataset's rows in three parts, and its rarest labels that can be measured."""
    data = load_dataset(dataset)
    Y = dense_labels(data.Y)
    rows = stream(seed, "benchmark").permutation(data.n_samples)
    # A small dataset keeps the proportions: a fifth labeled, half in the pool, the rest for testing.
    labeled = min(LABELED, len(rows) // 5)
    pool = min(POOL, len(rows) // 2)
    parts = np.split(rows, [labeled, labeled + pool])
    counts = np.minimum(Y[parts[0]].sum(axis=0), Y[parts[2]].sum(axis=0))
    order = np.argsort(Y.sum(axis=0), kind="stable")
    rare = [label for label in order if counts[label] >= FEWEST][:n_labels]
    scaling = fit_scaling("auto", data.X[parts[0]])
    X: Any = data.X if scaling is None else scaling.transform(data.X)
    if sparse.issparse(X):  # liblinear takes 32-bit indices only
        X = sparse.csr_matrix(
            (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape
        )
    return Task(X, Y[:, rare], parts[0], parts[1], parts[2])


def probabilities(X: Any, y: npt.NDArray[np.bool_], asked: Any) -> Scores:
    """Return the probabilities of a label for the rows `asked`, from the rows (X, y)."""
    if y.all() or not y.any():
        return np.full(asked.shape[0], y.mean())
    model = LogisticRegression(C=10.0, solver="liblinear", random_state=0, tol=1e-3)
    return np.asarray(model.fit(X, y).predict_proba(asked)[:, 1])


def calibration_error(y: npt.NDArray[np.bool_], p: Scores, bins: int = 10) -> float:
    """Return the expected calibration error in bins of equal counts."""
    parts = np.array_split(np.argsort(p, kind="stable"), bins)
    return float(sum(len(part) * abs(p[part].mean() - y[part].mean()) for part in parts) / len(y))


# ---- arms: (probabilities of the free rows, labels of the labeled rows, features, seed) -> places ----


def _random(P: Scores, Y: Any, n: int, seed: int, **_: Any) -> Rows:
    return stream(seed, "random arm", len(P)).permutation(len(P))[:n]


def _uncertainty(P: Scores, Y: Any, n: int, seed: int, **_: Any) -> Rows:
    q = P.clip(1e-9, 1 - 1e-9)
    entropy = -(q * np.log(q) + (1 - q) * np.log(1 - q)).sum(axis=1)
    return np.argsort(-entropy, kind="stable")[:n]


def _margin(P: Scores, Y: Any, n: int, seed: int, **_: Any) -> Rows:
    return np.argsort(np.abs(2 * P - 1).min(axis=1), kind="stable")[:n]


def _ours(strategy: str, explore: float = 0.1) -> Callable[..., Rows]:
    def choose(P: Scores, Y: Any, n: int, seed: int, X: Any = None, labeled: Any = None) -> Rows:
        every = list(range(P.shape[1]))
        return suggest(
            P, Y, n, labels=every, strategy=strategy, explore=explore, features=X,
            labeled_features=labeled, unseen=True, seed=seed,
        ).rows  # fmt: skip

    return choose


def _peer(P: Scores, Y: Any, n: int, seed: int, **_: Any) -> Rows:
    """Ask small-text: the strategy for one label or for many."""
    peer: Any = import_module("small_text.query_strategies")

    class Model:
        def predict_proba(self, rows: Rows) -> Scores:
            p = P[rows]
            return np.column_stack([1 - p, p]) if p.shape[1] == 1 else p

    everyone = np.arange(len(P))
    many = P.shape[1] > 1
    kind = peer.CategoryVectorInconsistencyAndRanking if many else peer.BreakingTies
    strategy = kind(pbar=None) if many else kind()
    labels = sparse.csr_matrix(Y.astype(np.int64)) if many else Y[:, 0].astype(np.int64)
    ours = np.arange(len(Y))
    return np.asarray(strategy.query(Model(), everyone, everyone, ours, labels, n=n))


def arms(development: bool) -> dict[str, Callable[..., Rows]]:
    """Return the arms by name."""
    if development:
        names = {f"share {share:g}": share for share in SHARES}
        STRATEGIES.update(names)
        return {name: _ours(name) for name in names} | {"random": _random}
    known: dict[str, Callable[..., Rows]] = {
        "random": _random,
        "uncertainty": _uncertainty,
        "margin": _margin,
        "mixed": _ours("mixed"),
    }
    if find_spec("small_text") is None:
        print("left out: small-text, which is not installed")
    else:
        known["small-text"] = _peer
    return known


def rounds(work: Task, labels: list[int], choose: Callable[..., Rows], seed: int) -> dict[str, Any]:
    """Review in rounds, and return what was found and how good the model became, by round."""
    X, Y = work.X, work.Y[:, labels]
    known, free = work.labeled, work.pool
    out: dict[str, Any] = {"ap": [], "ece": [], "found": [], "reviewed": [], "seconds": []}
    for number in range(ROUNDS + 1):
        ends = X[np.concatenate([work.test, free])]
        P = np.column_stack([probabilities(X[known], y, ends) for y in Y[known].T])
        tested, P = P[: len(work.test)], P[len(work.test) :]
        truth = Y[work.test]
        pairs = list(zip(truth.T, tested.T, strict=True))
        out["ap"].append([round(float(average_precision_score(y, p)), 5) for y, p in pairs])
        out["ece"].append([round(calibration_error(y, p), 6) for y, p in pairs])
        if number == ROUNDS or len(free) < ROWS:
            break
        start = time.perf_counter()
        places = choose(P, Y[known], ROWS, 1000 * seed + number, X=X[free], labeled=X[known])
        out["seconds"].append(round(time.perf_counter() - start, 4))
        chosen = free[np.asarray(places)]
        if len(set(chosen.tolist())) != ROWS:
            raise ValueError("an arm must choose as many different rows as it is asked for")
        out["found"].append(Y[chosen].sum(axis=0).tolist())
        out["reviewed"].append(len(chosen))
        known, free = np.concatenate([known, chosen]), np.setdiff1d(free, chosen)
    return out


def units(development: bool) -> Iterator[tuple[str, int]]:
    """Yield datasets and seeds, the first seed of all datasets first."""
    datasets = os.environ.get("DATASETS", " ".join(DEVELOPMENT if development else DATASETS))
    for seed in map(int, os.environ.get("SEEDS", "0 1 2").split()):
        for dataset in datasets.split():
            yield dataset, seed


def measure(results: dict[str, Any], development: bool) -> None:
    """Run what is not in the results yet, and write each unit down."""
    n_labels = int(os.environ.get("LABELS", "12"))
    known = arms(development)
    for dataset, seed in units(development):
        try:
            work = task(dataset, seed, n_labels)
        except DataError as error:
            print(f"left out: {error}")
            continue
        every = list(range(work.Y.shape[1]))
        jobs = {f"label {label}": [label] for label in every} | {"shared": every}
        for name, arm in known.items():
            for job, labels in jobs.items():
                if name == "margin" and len(labels) == 1:
                    continue  # the same as uncertainty
                key = f"{dataset}/{seed}/{job}/{name}"
                if key not in results:
                    results[key] = rounds(work, labels, arm, seed)
            lines = [f"{json.dumps(key)}: {json.dumps(results[key])}" for key in sorted(results)]
            with replacing(RESULTS) as temporary:
                temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            print(f"{dataset}, seed {seed}, {name}", flush=True)


class Line(NamedTuple):
    """The means of an arm over the labels and seeds of a dataset."""

    found: float
    ratio: float
    one: float
    five: float
    ece: float
    seconds: float
    seeds: int


def line(results: dict[str, Any], dataset: str, shared: bool, arm: str) -> Line | None:
    """Return the means of one arm: positives in the first round, and gains in AP."""
    picked = {
        key: value
        for key, value in results.items()
        if key.startswith(f"{dataset}/") and key.endswith(f"/{arm}")
        and (key.split("/")[2] == "shared") == shared
        and f"{key.rpartition('/')[0]}/random" in results
    }  # fmt: skip
    if not picked:
        return None
    others = [results[f"{key.rpartition('/')[0]}/random"] for key in picked]
    here = list(picked.values())
    first = float(np.mean([np.mean(each["found"][0]) for each in here]))
    base = float(np.mean([np.mean(each["found"][0]) for each in others]))
    gains = []
    for number in (1, -1):
        before = np.mean([np.mean(each["ap"][0]) for each in here])
        after = np.mean([np.mean(each["ap"][number]) for each in here])
        gains.append(float(after / before - 1))
    third = [
        np.mean(a["ece"][3]) - np.mean(b["ece"][3])
        for a, b in zip(here, others, strict=True)
        if min(len(a["ece"]), len(b["ece"])) > 3
    ]
    return Line(
        first, first / max(base, 1e-9), gains[0], gains[1],
        float(np.mean(third)) if third else float("nan"),
        float(np.mean([np.mean(each["seconds"]) for each in here])),
        len({key.split("/")[1] for key in picked}),
    )  # fmt: skip


def tables(results: dict[str, Any], datasets: tuple[str, ...], names: list[str]) -> str:
    """Return the two tables."""
    head = ["dataset", "strategy", "positives in the first 100", "times random", "AP, one round",
            "AP, five rounds", "calibration error after three rounds, less random's",
            "seconds a round", "seeds"]  # fmt: skip
    parts = []
    for shared, title in (
        (False, "100 rows a round for each label"),
        (True, "100 rows a round for all"),
    ):
        rows = []
        for dataset in datasets:
            for name in names:
                if (found := line(results, dataset, shared, name)) is not None:
                    rows.append([
                        dataset, name, f"{found.found:.1f}", f"{found.ratio:.1f}",
                        f"{100 * found.one:+.1f}%", f"{100 * found.five:+.1f}%",
                        f"{found.ece:+.4f}", f"{found.seconds:.2f}", str(found.seeds),
                    ])  # fmt: skip
        parts.append(f"### {title}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def short(results: dict[str, Any]) -> str:
    """Return the table of the page: what a person finds, and how much better the model becomes."""
    head = ["dataset", "100 rows a round", *(f"found: {name}" for name in SHOWN.values()), "times random",
            *(f"AP after {rows}: {name}" for rows in (100, 500) for name in SHOWN.values())]  # fmt: skip
    rows = []
    for shared in (False, True):
        for dataset in DATASETS:
            found = [line(results, dataset, shared, name) for name in SHOWN]
            each = [one for one in found if one is not None]
            if len(each) < len(SHOWN):
                continue
            rows.append([
                dataset, "for all labels" if shared else "for each label",
                *(f"{one.found:.1f}" for one in each), f"{each[-1].ratio:.1f}",
                *(f"{100 * one.one:+.0f}%" for one in each), *(f"{100 * one.five:+.0f}%" for one in each),
            ])  # fmt: skip
    return table(head, rows)


def picture(results: dict[str, Any]) -> None:
    """Draw AP against reviewed rows, 100 a round for each label above, for all labels below."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from tailbatch.report.figures import PALETTE

    colors = dict(zip(SHOWN, ("#8a919c", PALETTE[2][0], PALETTE[1][0]), strict=True))
    style: Any = {"svg.hashsalt": "tailbatch", "font.size": 9, "axes.spines.top": False,
             "axes.spines.right": False, "legend.frameon": False}  # fmt: skip
    with rc_context(style):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        panels = figure.subplots(2, len(DATASETS), sharex=True)
        for (shared, dataset), axes in zip(
            [(shared, dataset) for shared in (False, True) for dataset in DATASETS],
            panels.ravel(),
            strict=True,
        ):
            for name, shown in SHOWN.items():
                runs = [
                    np.mean(value["ap"], axis=1)
                    for key, value in results.items()
                    if key.startswith(f"{dataset}/")
                    and key.endswith(f"/{name}")
                    and (key.split("/")[2] == "shared") == shared
                    and len(value["ap"]) == ROUNDS + 1
                ]
                if runs:
                    steps = ROWS * np.arange(ROUNDS + 1)
                    axes.plot(
                        steps, np.mean(runs, axis=0), color=colors[name], label=shown, marker="."
                    )
            axes.set_title("" if shared else dataset, loc="left")
        panels[0, 0].set_ylabel("AP, rows for each label")
        panels[1, 0].set_ylabel("AP, rows for all labels")
        panels[1, 2].set_xlabel("reviewed rows")
        panels[0, 0].legend()
        figure.savefig(PICTURE, metadata={"Date": None})


def scale() -> str:
    """Return what suggesting costs from a million rows that are scored already."""
    P = stream(0, "scale").random((1_000_000, 100), dtype=np.float32) ** 4
    Y = stream(1, "scale").random((2_000, 100)) < 0.02
    work: dict[str, Callable[[], object]] = {
        f"{n:,}": lambda n=n: suggest(P, Y, n, labels=list(range(100)))  # type: ignore[misc]
        for n in (100, 1_000)
    }
    seconds = interleaved(work, rounds=3, clock=time.process_time)
    rows = [
        [name, f"{seconds[name]:.2f}", f"{(P.nbytes + peak_bytes(job)) / 2**30:.2f} GB"]
        for name, job in work.items()
    ]
    return table(["rows suggested", "CPU seconds", "peak memory, probabilities included"], rows)


def main() -> None:
    development = bool(os.environ.get("DEVELOPMENT"))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    measure(results, development)
    names = list(arms(development))
    text = tables(results, DEVELOPMENT if development else DATASETS, names)
    if development:
        print(text)
        return
    cost = "From 1,000,000 rows with probabilities of 100 labels, all of them sought:\n\n" + scale()
    picture(results)
    publish(
        "suggest",
        "![Average precision of rare labels on untouched test rows against reviewed rows, at random, by "
        f"small-text and by tailbatch](assets/{PICTURE.name})\n\n" + short(results) + "\n\n"
        "*Found: positives among the first 100 reviewed rows, the mean over labels. AP: of these labels "
        "on untouched test rows, relative to before. Three seeds; 2,000 labeled rows and a pool of "
        "10,000, or a fifth and a half of a smaller dataset; the 12 rarest labels with 8 positives or "
        "more among the labeled and the test rows. Every column trains the same logistic regressions. A "
        "tenth of tailbatch's rows are drawn at random. `python -m benchmarks suggest` makes the table "
        "and the picture; `benchmarks/README.md` has more columns.*",
        PAGE,
    )
    publish("suggest scale", cost, PAGE)
    publish(
        "suggest",
        "## Which rows to label next\n\n`python -m benchmarks suggest`. Hidden labels: the rarest with 8 "
        "or more positives among the labeled and the test rows. Logistic regression for each label. AP "
        "is of these labels on untouched test rows, relative to before the first round.\n\n"
        + text
        + "\n\n"
        + cost,
    )


if __name__ == "__main__":
    main()
