"""Which setting is best for rare labels, chosen on validation rows and tested on test rows."""

from typing import NamedTuple

import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, claimed, measured, paired, primary
from tailbatch.analysis.gains import Gain, gain
from tailbatch.analysis.inference import LEVEL, sign
from tailbatch.analysis.keys import Arm, Learner

_BEST, _REFERENCE = Arm("best"), Arm("reference")


class Setting(NamedTuple):
    """A learner and an arm."""

    learner: Learner
    arm: Arm


class Best(NamedTuple):
    """The best setting by a metric, its test value, and its gain over a reference setting."""

    setting: Setting
    metric: str
    value: float
    reference: Setting | None
    gain: Gain | None

    @property
    def tested(self) -> bool:
        """Whether there are enough folds or datasets for a test."""
        return self.gain is not None and self.gain.p == self.gain.p

    @property
    def significant(self) -> bool:
        """Whether it is better than the reference with p < 0.05.

        It was chosen on validation rows, so this is one test, with nothing to correct for.
        """
        return self.gain is not None and self.gain.p < LEVEL and self.gain.percent > 0


def best_setting(runs: pd.DataFrame, metrics: list[str]) -> Best | None:
    """Return the setting with the best mean over datasets of the first claimed metric.

    It is chosen by the metric on validation rows if recorded there, otherwise on test rows. The
    reference is the baseline arm with the same learner; for the baseline arm itself, the runner-up.
    None if no two settings ran on the same datasets.

    Examples
    --------
    >>> from tailbatch.analysis.keys import Dataset
    >>> runs = pd.DataFrame({"data": [Dataset("scene")] * 2, "learner": [Learner("mlp")] * 2, "fold": 0,
    ...                      "seed": 0, "arm": [Arm("random"), Arm("hard")], "macro_f": [0.2, 0.3]})
    >>> best = best_setting(runs, ["macro_f"])
    >>> str(best.setting.arm), best.value, str(best.reference.arm), str(best.gain)
    ('hard', 0.3, 'random', '+50.0')
    """
    known = measured(runs)
    metrics = [name for name in metrics if name in known]
    if runs.empty or not metrics:
        return None
    (metric, *_) = claimed(metrics)
    compared = paired(primary(runs))
    compared = compared[compared[metric].notna()]
    if compared.empty:
        return None
    seen = compared.get(f"validation_{metric}", compared[metric])
    seen = seen if seen.notna().all() else compared[metric]
    values = compared.assign(
        score=sign(metric) * seen, value=compared[metric], name=[d.name for d in compared["data"]]
    )
    by = ["learner", "arm"]
    cells = values.groupby([*by, "name"])[["score", "value"]].mean()
    counts = cells.groupby(level=by).size()
    # Settings that ran on fewer datasets than others cannot be compared with them.
    order = cells.groupby(level=by).mean()[counts == counts.max()]
    order = order.sort_values("score", ascending=False, kind="stable")
    settings = [Setting(*key) for key in order.index]
    if len(settings) < 2:
        return None
    first, value = settings[0], float(order["value"].iloc[0])
    plain = Setting(first.learner, baseline_arm(compared["arm"]))
    reference = plain if first != plain and plain in settings else settings[1]
    both = pd.concat(
        compared[(compared["learner"] == learner) & (compared["arm"] == arm)].assign(
            learner=lambda rows: [first.learner] * len(rows),
            arm=lambda rows, role=role: [role] * len(rows),
        )
        for (learner, arm), role in ((first, _BEST), (reference, _REFERENCE))
    )
    return Best(first, metric, value, reference, gain(both, _BEST, metric, _REFERENCE))
