"""docs/reproduction/selection_evidence.md and its picture, from the committed records, without torch."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import fill

import pandas as pd
from matplotlib.axes import Axes
from reproduction.drawing import legend_above, picture
from reproduction.measures import compare_ways, steps_to_match
from reproduction.measures import level as mean_level
from reproduction.text import table

from tailbatch.analysis import Arm, Dataset
from tailbatch.analysis.comparisons import Gain, coverage_text, gain, results
from tailbatch.analysis.curves import mean_curves
from tailbatch.analysis.keys import named
from tailbatch.results.archive import SUFFIX, open_records
from tailbatch.results.frames import Evidence, read_store

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reproduction" / "selection_evidence.md"
PICTURE = HERE.parents[1] / "docs" / "assets" / "selection.svg"
MINORITY, MACRO, MICRO = "minority_average_precision", "macro_average_precision", "tuned_micro_f"
METRICS = {
    MINORITY: "minority AP",
    MACRO: "Macro-AP",
    "tuned_macro_f": "Macro-F, tuned",
    MICRO: "Micro-F, tuned",
}
LOSSES = ("weighted_bce", "bce")
BUDGETS = (1, 3, 10, 30)
LARGE = "goemotions"
RANDOM, IMPORTANCE = Arm("random"), Arm("importance")
CORRECTED = Arm("balanced", options='{"corrected": true}')
COLORS = {
    RANDOM: "#000000",
    IMPORTANCE: "#d55e00",
    CORRECTED: "#0072b2",
    Arm("minority"): "#cc79a7",
    Arm("adaptive"): "#009e73",
}
VALIDATED = f"validation_{MINORITY}"


@cache
def read(name: str) -> Evidence | None:
    """Return the committed records of a study, with keys; None if there are none.

    A dataset is known by its name alone, since its rate may depend on the loss.
    """
    path = HERE / "records" / f"{name}{SUFFIX}"
    if not path.exists():
        return None
    evidence = named(read_store(open_records(path)))
    data = [Dataset(each) for each in evidence.runs["dataset"]]
    return replace(evidence, runs=evidence.runs.assign(data=data))


def budgets() -> dict[int, pd.DataFrame]:
    """Return the runs of the comparison by the number of epochs."""
    found = {epochs: read(f"selection-{epochs}") for epochs in BUDGETS}
    return {epochs: evidence.runs for epochs, evidence in found.items() if evidence is not None}


def of(runs: pd.DataFrame, loss: str, dataset: str | None = None) -> pd.DataFrame:
    """Return the runs with a loss, and on a dataset if one is named."""
    keep = [
        learner.loss_name == loss and dataset in (None, data.name)
        for learner, data in zip(runs["learner"], runs["data"], strict=True)
    ]
    return runs[pd.Series(keep, index=runs.index, dtype=bool)]


def arm_name(arm: Arm) -> str:
    """Return an arm for readers, with its options in words.

    Examples
    --------
    >>> arm_name(Arm("balanced", options='{"corrected": true}'))
    'balanced, corrected'
    >>> arm_name(Arm("importance", options='{"mix": [0.3, 1.0]}'))
    'importance, mix 0.3 to 1'
    """
    parts = [arm.strategy]
    for name, value in json.loads(arm.options).items():
        if value is True:
            parts.append(name)
        elif isinstance(value, list):
            parts.append(f"{name} " + " to ".join(f"{each:g}" for each in value))
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def epochs_named(epochs: int) -> str:
    """Return a number of epochs in words."""
    return f"{epochs} epoch" + "s" * (epochs > 1)


def shown(found: Gain | None) -> str:
    """Return a gain for a table, bold where its interval excludes zero."""
    return "-" if found is None else f"**{found}**" if found.clear else str(found)


# ---- tables ----------------------------------------------------------------------------------------


def importance(runs: pd.DataFrame, metric: str = MINORITY) -> Gain:
    """Return the gain of importance on random batches, where both ran."""
    found = gain(runs, IMPORTANCE, metric, RANDOM)
    if found is None:
        raise ValueError(f"no pair of runs of importance and random has {metric}")
    return found


def importance_by_budget(loss: str) -> dict[int, Gain]:
    """Return the gain of importance in minority AP over all datasets, by the number of epochs."""
    found = {
        epochs: gain(of(runs, loss), IMPORTANCE, MINORITY) for epochs, runs in budgets().items()
    }
    return {epochs: each for epochs, each in found.items() if each is not None}


def changes(runs: pd.DataFrame) -> str:
    """Return each strategy's gains on random batches in percent."""
    rows = [
        (arm_name(arm), *(shown(gain(runs, arm, metric, RANDOM)) for metric in METRICS))
        for arm in sorted(set(runs["arm"]) - {RANDOM})
    ]
    return table(["against random, %", *METRICS.values()], rows)


def level(runs: pd.DataFrame) -> str:
    """Return what random batches reach, so that losses can be compared, too."""
    means = results(runs[runs["arm"] == RANDOM], list(METRICS)).set_index("metric")["mean"]
    return ", ".join(f"{title} {means[metric]:.3f}" for metric, title in METRICS.items())


def by_budget(loss: str, dataset: str | None, metric: str = MINORITY) -> str:
    """Return every strategy's gain in one metric by budget."""
    found = {epochs: of(runs, loss, dataset) for epochs, runs in budgets().items()}
    arms = sorted({arm for runs in found.values() for arm in runs["arm"]} - {RANDOM})
    rows = [
        (arm_name(arm), *(shown(gain(runs, arm, metric, RANDOM)) for runs in found.values()))
        for arm in arms
    ]
    return table(["against random, %", *map(epochs_named, found)], rows)


def by_dataset(loss: str) -> str:
    """Return the gain of importance in minority AP by dataset and budget."""
    found = {epochs: of(runs, loss) for epochs, runs in budgets().items()}
    names = sorted({data.name for runs in found.values() for data in runs["data"]})
    rows = [
        (
            name,
            *(
                shown(gain(of(runs, loss, name), IMPORTANCE, MINORITY, RANDOM))
                for runs in found.values()
            ),
        )
        for name in names
    ]
    return table(["importance, minority AP, %", *map(epochs_named, found)], rows)


def across_losses() -> str:
    """Return what the weighted loss gains on plain BCE with random batches, by batches and budget."""
    rows = []
    for epochs, runs in budgets().items():
        for arm in (RANDOM, IMPORTANCE):
            found = across_losses_by(runs, arm)
            if (first := found[MINORITY]) is not None:
                name = f"weighted loss, {arm_name(arm)}, {epochs_named(epochs)}"
                rows.append((name, first.datasets, *map(shown, found.values())))
    return table(["against plain BCE with random batches, %", "datasets", *METRICS.values()], rows)


def across_losses_by(runs: pd.DataFrame, arm: Arm) -> dict[str, Gain | None]:
    """Return the gains of the weighted loss with an arm on plain BCE with random batches, by metric."""
    both = pd.concat([compare_ways(of(runs, loss), loss) for loss in LOSSES])
    weighted, plain = replace(arm, rate="weighted_bce"), replace(RANDOM, rate="bce")
    return {metric: gain(both, weighted, metric, plain) for metric in METRICS}


def levels() -> str:
    """Return minority AP of logistic regression, random batches and importance, by dataset."""
    found = {epochs: of(runs, "weighted_bce") for epochs, runs in budgets().items()}
    evidence = read("levels-1")
    runs = None if evidence is None else evidence.runs
    names = sorted({data.name for each in found.values() for data in each["data"]})
    rows = [
        (
            name,
            _mean(runs, name),
            *(
                _mean(each[each["arm"] == arm], name)
                for each in found.values()
                for arm in (RANDOM, IMPORTANCE)
            ),
        )
        for name in names
    ]
    heads = [f"{arm}, {epochs_named(epochs)}" for epochs in found for arm in (RANDOM, IMPORTANCE)]
    return table(["minority AP", "logistic regression", *heads], rows)


def _mean(runs: pd.DataFrame | None, dataset: str, metric: str = MINORITY) -> str:
    value = _value(runs, dataset, metric)
    return "-" if math.isnan(value) else f"{value:.3f}"


def _value(runs: pd.DataFrame | None, dataset: str, metric: str = MINORITY) -> float:
    """Return the mean over folds of the only arm and learner of a dataset among the runs."""
    if runs is None:
        return math.nan
    some = runs[[data.name == dataset for data in runs["data"]]]
    return math.nan if some.empty else mean_level(some, some["arm"].iloc[0], metric)


def settings() -> str:
    """Return the settings of importance on validation rows: gains on random, over the datasets."""
    blocks = []
    for epochs in BUDGETS:
        tried, plain = read(f"settings-{epochs}"), read(f"selection-{epochs}")
        if tried is None or plain is None:
            continue
        names = {data.name for data in tried.runs["data"]}
        usual = plain.runs[plain.runs["arm"].isin([RANDOM, IMPORTANCE])]
        runs = of(pd.concat([usual, tried.runs]), "weighted_bce")
        runs = runs[[data.name in names for data in runs["data"]]]
        rows = [
            (
                arm_name(arm) if arm != IMPORTANCE else "importance (mix 0.3, beta 1, prior)",
                *(
                    shown(gain(runs, arm, f"validation_{metric}", RANDOM))
                    for metric in (MINORITY, MACRO, MICRO)
                ),
            )
            for arm in (IMPORTANCE, *sorted({*runs["arm"]} - {RANDOM, IMPORTANCE}, key=arm_name))
        ]
        heads = [f"{METRICS[metric]}, validation" for metric in (MINORITY, MACRO, MICRO)]
        blocks += [
            f"{epochs_named(epochs).capitalize()}, {', '.join(sorted(names))}:",
            table(["against random, %", *heads], rows),
        ]
    return "\n\n".join(blocks)


def rates() -> str:
    """Return the rate chosen for each dataset, loss and budget."""
    found = {epochs: runs for epochs, runs in budgets().items()}
    names = sorted({data.name for runs in found.values() for data in runs["data"]})
    rows = [
        (
            name,
            *(
                " / ".join(_rate(of(runs, loss, name)) for loss in LOSSES)
                for runs in found.values()
            ),
        )
        for name in names
    ]
    return table(["rate, weighted / plain", *map(epochs_named, found)], rows)


def _rate(runs: pd.DataFrame) -> str:
    return "-" if runs.empty else f"{runs['plan_lr'].iloc[0]:g}"


# ---- numbers ---------------------------------------------------------------------------------------


def spent(dataset: str, arm: Arm, loss: str = "weighted_bce") -> pd.Series:
    """Return an arm's minority AP on test rows by the steps of each budget."""
    values = {}
    for runs in budgets().values():
        some = of(runs, loss, dataset)
        some = some[some["arm"] == arm]
        if len(some):
            values[int(sorted(some["steps"])[len(some) // 2])] = _value(some, dataset)
    return pd.Series(values, dtype=float)


def steps_needed() -> tuple[float, float, float]:
    """Return random's best minority AP on GoEmotions, its steps, and those of importance to it."""
    return steps_to_match(spent(LARGE, RANDOM), spent(LARGE, IMPORTANCE))


def clear_losses(loss: str) -> list[str]:
    """Return the datasets and budgets on which importance loses 5% or more beyond its interval."""
    return [
        f"{name} ({epochs_named(epochs)}, {found})"
        for epochs, runs in budgets().items()
        for name in sorted({data.name for data in runs["data"]})
        if (found := gain(of(runs, loss, name), IMPORTANCE, MINORITY, RANDOM)) and found.high < -5
    ]


def _checks() -> Iterator[tuple[str, str, str, bool]]:
    """Yield what was to be reached: the number, the target, what was measured, and whether it holds."""
    found = budgets()
    first = of(found[1], "weighted_bce", LARGE)
    for metric, least in ((MINORITY, 30), (MACRO, 1), (MICRO, -2)):
        change = importance(first, metric)
        title = f"GoEmotions, 1 epoch, weighted loss: {METRICS[metric]}"
        yield title, f"at least {least:+d}%", shown(change), change.percent >= least
    for epochs, change in importance_by_budget("weighted_bce").items():
        counted = f"{change.datasets} dataset" + "s" * (change.datasets > 1)
        title = f"{counted}, {epochs_named(epochs)}, weighted loss: minority AP"
        target = "interval above 0" if epochs <= 3 else "at least -1%"
        holds = change.low > 0 if epochs <= 3 else change.percent >= -1
        yield title, target, shown(change), holds
    if len(found) > 1:
        _, theirs, ours = steps_needed()
        share = "never" if math.isinf(ours) else f"{ours:,.0f} of {theirs:,.0f} steps"
        title = "GoEmotions: steps to random's best minority AP"
        yield title, "at most half", share, ours <= theirs / 2
    worse = [each for loss in LOSSES for each in clear_losses(loss)]
    yield (
        "datasets clearly below -5%, every budget that was run",
        "none",
        "; ".join(worse) or "none",
        not worse,
    )


def numbers() -> str:
    """Return the numbers that were to be reached, and whether they are."""
    rows = [(*row, "yes" if holds else "no") for *row, holds in _checks()]
    return table(["`importance` against `random`", "to reach", "measured", "reached"], rows)


def in_short() -> str:
    """Return what to do and the numbers behind it, in a few sentences."""
    gains, plain = importance_by_budget("weighted_bce"), importance_by_budget("bce")
    first = importance(of(budgets()[1], "weighted_bce", LARGE))
    said = [
        "Start with plain BCE and shuffled batches (`random`). If you train a weighted loss for few "
        "epochs, draw by `importance`.",
        f"With the weighted loss it changes minority AP by {_by_epochs(gains)}, averaged over the "
        f"datasets, in percent; {_where(gains)}. With plain BCE {_where(plain)}.",
        _beside_plain(),
        f"On GoEmotions, the largest of them, one epoch of `importance` gives {first}%.",
    ]
    if len(gains) > 1:
        best, theirs, ours = steps_needed()
        reached = "never gets there" if math.isinf(ours) else f"needs {ours:,.0f}"
        said.append(
            f"There random batches reach their best, {best:.3f}, with {theirs:,.0f} steps; `importance` "
            f"{reached}."
        )
    return fill(" ".join(said), 118, break_on_hyphens=False, break_long_words=False)


def _beside_plain() -> str:
    """Return what the weighted loss with importance is worth beside plain BCE with random batches."""
    found = across_losses_by(budgets()[1], IMPORTANCE)
    if None in found.values():
        return ""
    return (
        "Compared with plain BCE and random batches, one epoch of the weighted loss with `importance` "
        f"changes minority AP by {found[MINORITY]}% and tuned Micro-F by {found[MICRO]}%."
    )


def _by_epochs(gains: dict[int, Gain]) -> str:
    return ", ".join(f"{each} with {epochs_named(epochs)}" for epochs, each in gains.items())


def _where(gains: dict[int, Gain]) -> str:
    """Return at which budgets the interval excludes zero, in words."""
    better = [epochs_named(epochs) for epochs, each in gains.items() if each.clear and each.low > 0]
    worse = [epochs_named(epochs) for epochs, each in gains.items() if each.clear and each.high < 0]
    parts = [
        f"the interval is {side} zero with {' and '.join(names)}"
        for side, names in (("above", better), ("below", worse))
        if names
    ]
    return " and ".join(parts) or "no interval excludes zero"


# ---- page ------------------------------------------------------------------------------------------


def page() -> str:
    """Return the page: the words of page.md here, with tables in their places."""
    text = (HERE / "page.md").read_text()
    blocks = {
        "in-short": in_short(),
        "numbers": numbers(),
        "losses": across_losses(),
        "levels": levels(),
        "settings": settings(),
        "rates": rates(),
        "datasets-weighted": by_dataset("weighted_bce"),
        "datasets-plain": by_dataset("bce"),
        "details": details(),
        "coverage": coverage_text(12),
    }
    for loss in LOSSES:
        blocks[f"budgets-{loss}"] = by_budget(loss, None)
        blocks[f"large-{loss}"] = by_budget(loss, LARGE)
    for name, block in blocks.items():
        text = text.replace(f"<!-- {name} -->", block)
    return text


def details() -> str:
    """Return the tables of every budget and loss, with all metrics."""
    parts = []
    for epochs, runs in budgets().items():
        parts.append(f"### {epochs_named(epochs).capitalize()}")
        for loss in LOSSES:
            same, large = of(runs, loss), of(runs, loss, LARGE)
            if len(large):
                parts += [f"`{loss}`, GoEmotions. Random batches: {level(large)}.", changes(large)]
            if len(same):
                counted = len({data.name for data in same["data"]})
                parts += [f"`{loss}`, mean over {counted} datasets:", changes(same)]
    return "\n\n".join(parts)


def draw(path: Path = PICTURE) -> None:
    """Draw minority AP on GoEmotions against steps: by budget, and within one training."""
    with picture(path, columns=2, height=3.4) as (figure, (left, right)):
        for arm, color in COLORS.items():
            points = spent(LARGE, arm)
            left.plot(points.index, points, "o-", color=color, markersize=4, label=arm_name(arm))
        logistic = read("levels-1")
        if logistic is not None:
            left.axhline(_value(logistic.runs, LARGE), color="#7f7f7f", linestyle=":")
            left.text(
                0.98,
                _value(logistic.runs, LARGE),
                "scikit-learn's logistic regression",
                transform=left.get_yaxis_transform(),
                color="#7f7f7f",
                ha="right",
                va="bottom",
            )
        left.set_xscale("log")
        left.set_title("each point one training, test rows", fontsize=9)
        left.set_ylabel("minority AP, GoEmotions")
        _within(right)
        legend_above(figure, left)
        figure.supxlabel("steps of 128 rows, weighted loss", fontsize=9)


def _within(axes: Axes) -> None:
    """Draw minority AP on validation rows epoch by epoch, each arm's best epoch marked."""
    evidence = read("selection-10")
    if evidence is None:
        axes.set_axis_off()
        return
    some = of(evidence.runs, "weighted_bce", LARGE)
    chosen_by = f"validation_{MACRO}"
    curves = mean_curves(replace(evidence, runs=some), also=(VALIDATED, chosen_by))
    for arm, color in COLORS.items():
        line = curves[curves["arm"] == arm]
        axes.plot(line["steps"], line[VALIDATED], color=color, linewidth=1.2)
        best = line.loc[line[chosen_by].idxmax()]
        axes.plot(best["steps"], best[VALIDATED], "D", color=color, markersize=6)
    axes.set_title("one training of 10 epochs, validation rows;\nmarked: best Macro-AP", fontsize=9)
