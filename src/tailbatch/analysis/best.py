"""Which setting is best for rare labels, chosen on validation rows and tested on test rows."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from tailbatch.analysis.comparisons import adjusted, baseline_arm, claimed, paired, primary
from tailbatch.analysis.gains import Gain, gain
from tailbatch.analysis.inference import LEVEL, sign
from tailbatch.analysis.keys import Arm, Learner
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

    It is chosen by the metric on validation rows if recorded there, otherwise on test rows. The
    reference is the baseline arm with the same learner; for the baseline arm itself, the runner-up.
    None if no two settings ran on the same datasets, or where the reference is 0.

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
