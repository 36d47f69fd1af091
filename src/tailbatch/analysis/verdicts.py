"""Which setting is best for rare labels, tuned comparisons, and tests and ranks over datasets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from tailbatch import stats
from tailbatch.analysis.comparisons import (
    adjusted,
    baseline_arm,
    claimed,
    paired,
    primary,
    with_batches,
)
from tailbatch.analysis.inference import LEVEL, Gain, gain, sign
from tailbatch.analysis.keys import CELL, Arm, Learner, by_label
from tailbatch.stats import FEWEST_DATASETS

_BEST, _REFERENCE = Arm("best"), Arm("reference")


class Setting(NamedTuple):
    """A learner and an arm."""

    learner: Learner
    arm: Arm


class Best(NamedTuple):
    """The best setting by a metric, its test value, and its gain over a reference setting.

    On two to five datasets there is no test over datasets; ``by_dataset`` then has the name, the gain
    and the p-value, corrected by Holm, on each of them.
    """

    setting: Setting
    metric: str
    value: float
    reference: Setting
    gain: Gain
    by_dataset: tuple[tuple[str, Gain, float], ...] = ()

    @property
    def tested(self) -> bool:
        """Whether there are enough folds or datasets for a test."""
        return not any(pd.isna(p) for p in self._p_values)

    @property
    def significant(self) -> bool:
        """Whether it is better than the reference with p < 0.05, on every dataset if tested on each.

        It was chosen on validation rows, so nothing is corrected for the choice.
        """
        gains = [each.percent for _, each, _ in self.by_dataset] or [self.gain.percent]
        return all(p < LEVEL for p in self._p_values) and all(percent > 0 for percent in gains)

    @property
    def _p_values(self) -> list[float]:
        return [p for *_, p in self.by_dataset] or [self.gain.p]


def best_setting(runs: pd.DataFrame, metrics: list[str]) -> Best | None:
    """Return the setting with the best mean over datasets of the first claimed metric all runs have.

    It is chosen by validation rows if they are recorded, else by test rows. The reference is the baseline
    arm with the same learner; for the baseline arm itself, the runner-up. None if no two settings ran on
    the same datasets, or where the reference is 0.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Dataset
    >>> runs = pd.DataFrame({"data": [Dataset("scene")] * 2, "learner": [Learner("mlp")] * 2, "fold": 0,
    ...                      "seed": 0, "arm": [Arm("random"), Arm("hard")], "macro_f": [0.2, 0.3]})
    >>> best = best_setting(runs, ["macro_f"])
    >>> str(best.setting.arm), best.value, str(best.reference.arm), str(best.gain)
    ('hard', 0.3, 'random', '+50.0')
    """
    if runs.empty or not metrics:
        return None
    compared = paired(primary(runs))
    # A metric that some runs lack, as where no label is rare, would compare different datasets.
    whole = [name for name in claimed(metrics) if compared[name].notna().all()]
    if not whole:
        return None
    metric = whole[0]
    ranked = _ranked(compared, metric)
    if len(ranked) < 2:
        return None
    settings, first = list(ranked), next(iter(ranked))
    plain = Setting(first.learner, baseline_arm(compared["arm"]))
    reference = plain if first != plain and plain in settings else settings[1]
    both = pd.concat(
        compared[(compared["learner"] == learner) & (compared["arm"] == arm)].assign(
            learner=lambda rows: [first.learner] * len(rows),
            arm=lambda rows, role=role: [role] * len(rows),
        )
        for (learner, arm), role in ((first, _BEST), (reference, _REFERENCE))
    )
    change = gain(both, _BEST, metric, _REFERENCE)
    if change is None:
        return None
    each = _by_dataset(both, metric) if 1 < change.datasets < FEWEST_DATASETS else ()
    return Best(first, metric, ranked[first], reference, change, each)


def _ranked(compared: pd.DataFrame, metric: str) -> dict[Setting, float]:
    """Return each setting's mean on test rows, the best on validation rows first."""
    seen = compared.get(f"validation_{metric}", compared[metric])
    seen = seen if seen.notna().all() else compared[metric]
    names = [data.name for data in compared["data"]]
    values = compared.assign(score=sign(metric) * seen, value=compared[metric], name=names)
    by = ["learner", "arm"]
    cells = values.groupby([*by, "name"])[["score", "value"]].mean()
    counts = cells.groupby(level=by).size()
    # Settings that ran on fewer datasets than others cannot be compared with them.
    order = cells.groupby(level=by).mean()[counts == counts.max()]
    order = order.sort_values("score", ascending=False, kind="stable")
    return {Setting(*key): float(value) for key, value in order["value"].items()}


def _by_dataset(both: pd.DataFrame, metric: str) -> tuple[tuple[str, Gain, float], ...]:
    names = pd.Series([data.name for data in both["data"]], both.index)
    gains: Sequence[tuple[str, Gain]] = [
        (name, change)
        for name in sorted(set(names))
        if (change := gain(both[names == name], _BEST, metric, _REFERENCE)) is not None
    ]
    p_values = adjusted(pd.Series([change.p for _, change in gains], dtype=float))
    return tuple((name, change, p) for (name, change), p in zip(gains, p_values, strict=True))


def wilcoxon_by_model(comparisons: pd.DataFrame, *, level: float = LEVEL) -> pd.DataFrame:
    """Return one row per model, arm and metric: the signed-rank test over its datasets.

    ``outcome`` is win or loss if ``p`` is below `level`, else tie; ``effect`` is the rank-biserial
    correlation, positive if the arm is better; ``p_holm`` is corrected over the metrics of a model.
    """
    rows = []
    keys = ["learner", "arm", "metric"]
    for (learner, arm, metric), group in comparisons.groupby(keys, sort=False):
        if len(group) < FEWEST_DATASETS:
            continue
        test = stats.wilcoxon(group["mean"], group["baseline_mean"])
        effect = test.rank_biserial * sign(metric)
        outcome = "tie" if test.p_value >= level else "win" if effect > 0 else "loss"
        rows.append((learner, arm, metric, len(group), outcome, effect, test.p_value))
    table = pd.DataFrame(rows, columns=[*keys, "datasets", "outcome", "effect", "p"])
    return table.assign(p_holm=table.groupby(["learner", "arm"])["p"].transform(adjusted))


def mean_ranks(means: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row per metric and arm: its mean rank over datasets, averaged over learners first.

    Only cells with all arms count. ``friedman_p`` tests that all arms rank equally, a difference of
    ``critical_difference`` is significant after Nemenyi; both are missing for two arms or one dataset.
    """
    rows = []
    means = with_batches(means)
    for metric in metrics:
        some = means[means["metric"] == metric]
        wide = some.pivot_table(index=CELL, columns="arm", values="mean", sort=False).dropna()
        blocks = wide.groupby([data.name for data, _ in wide.index], sort=False).mean()
        if blocks.shape[1] < 2 or not len(blocks):
            continue
        ranks, tests = stats.mean_ranks(sign(metric) * blocks.to_numpy()), (np.nan, np.nan)
        if blocks.shape[1] > 2 and len(blocks) > 1:
            distance = stats.critical_difference(blocks.shape[1], len(blocks))
            tests = distance, stats.friedman(sign(metric) * blocks.to_numpy()).p_value
        for column in np.argsort(ranks, kind="stable"):
            rows.append((metric, blocks.columns[column], ranks[column], len(blocks), *tests))
    columns = ["metric", "arm", "mean_rank", "datasets", "critical_difference", "friedman_p"]
    return pd.DataFrame(rows, columns=columns)


def alike(ranks: np.ndarray, distance: float) -> list[list[float]]:
    """Return the ends of the longest stretches of sorted ranks that span at most `distance`.

    Examples
    --------
    >>> alike(np.array([1.0, 1.5, 2.0, 3.5]), 0.6)
    [[1.0, 1.5], [1.5, 2.0]]
    """
    stretches: list[list[float]] = []
    for low in ranks:
        high = ranks[ranks <= low + distance].max()
        if high > low and (not stretches or high > stretches[-1][1]):
            stretches.append([round(float(low), 3), round(float(high), 3)])
    return stretches


def _tuned(runs: pd.DataFrame, *, by: str = "validation_macro_auc") -> pd.DataFrame:
    """Return the runs of the tuned comparison: the baseline gets as many tries as a strategy.

    In each cell and fold, a strategy that ran with several pressures keeps the one with the best
    validation value; the baseline keeps the best of as many seeds. Only cells where the baseline has that
    many are included. Test results are not used to choose.
    """
    if by not in runs or runs.empty:
        return runs.iloc[:0]
    base = baseline_arm(runs["arm"]).strategy
    fold_keys = [*CELL, "fold"]
    # One try is a pressure of the strategy's first seed, or a seed of the baseline.
    first = runs["seed"] == runs.groupby([*fold_keys, "strategy"])["seed"].transform("min")
    tries = runs[(runs["strategy"] == base) | first].sort_values("seed", kind="stable")
    pressures = tries["arm"].map(lambda arm: arm.pressure)
    tries = tries.assign(pressure=pressures).drop_duplicates(
        [*fold_keys, "strategy", "pressure", "seed"]
    )
    tried = tries[tries["strategy"] != base].groupby(fold_keys).size().rename("tries").reset_index()
    tries = tries.merge(tried[tried["tries"] > 1], on=fold_keys)
    tries = tries[tries.groupby([*fold_keys, "strategy"]).cumcount() < tries["tries"]]
    enough = tries.groupby([*fold_keys, "strategy"])["seed"].transform("size") == tries["tries"]
    both = tries[enough].groupby(fold_keys)["strategy"].transform("nunique") == 2
    best = tries[enough][both].sort_values(by, ascending=False, kind="stable")
    best = by_label(best.drop_duplicates([*fold_keys, "strategy"]), [*fold_keys, "strategy"])
    arms = [
        replace(arm.usual or Arm(arm.strategy), best_of=count, usual=arm.usual)
        for arm, count in zip(best["arm"], best["tries"], strict=True)
    ]
    # Chosen by fold: the seed results from the choice and is no longer part of the pairing.
    return best.drop(columns=["tries", "pressure"]).assign(arm=arms, seed=0)


def tuned_by_strategy(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tuned comparison of each strategy that has one, see `_tuned`."""
    by_strategy: dict[str, pd.DataFrame] = {}
    if runs.empty:
        return by_strategy
    base = baseline_arm(primary(runs)["arm"]).strategy
    for strategy in runs["strategy"].unique():
        chosen = _tuned(runs[runs["strategy"].isin([base, strategy])])
        if strategy != base and len(chosen):
            by_strategy[strategy] = chosen
    return by_strategy
