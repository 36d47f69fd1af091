"""Tables behind the charts: learning curves, selection pressure, losses of samples, single labels."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, paired, primary, with_batches
from tailbatch.analysis.keys import CELL
from tailbatch.results.archive import PERCENT
from tailbatch.results.frames import Evidence
from tailbatch.seeds import FloatArray

#: The values a curve can show by epoch, batch or second, and their titles.
MEASURES = {
    "training_bce": "Training loss (BCE)",
    "training_objective": "Training objective",
    "validation_macro_auc": "Validation Macro-AUC",
    "validation_macro_f": "Validation Macro-F",
    "minority_share": "Minority share of the draws",
}
#: Columns of the quantiles of sample losses.
QUANTILES = [f"q{at:02d}" for at in PERCENT]
_ARM = [*CELL, "arm"]
_SPEED = ["lowest_loss", "lowest_epoch", "seconds_to_target", "time_change"]
_SPEED += ["peak_auc", "peak_epoch"]


def curve_tables(evidence: Evidence, metrics: list[str]) -> dict[str, pd.DataFrame]:
    """Return the frames of `tailbatch.analysis.Analysis` behind its curves, by name."""
    curves, losses = mean_curves(evidence), _sample_losses(evidence)
    return {
        "curves": curves,
        "convergence": _convergence(curves, evidence.runs),
        "pressures": _pressure_panel(evidence, metrics),
        "losses": losses,
        "density": _loss_density(losses),
    }


def mean_curves(evidence: Evidence, *, also: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per cell, arm and epoch: means over the paired runs (Figures 3 and 4).

    An epoch that any run of the arm did not reach is left out, so that every point of a line is the
    mean over the same runs. `also` names further columns of the curves.
    """
    wanted = ("steps", "seconds", *MEASURES, *also)
    shown = [name for name in wanted if name in evidence.curves]
    if evidence.curves.empty:
        return pd.DataFrame(columns=[*_ARM, "number", *shown])
    rows = evidence.curves.merge(paired(evidence.runs)[[*_ARM, "digest"]], on="digest")
    grouped = rows.groupby([*_ARM, "number"], sort=False)
    means = grouped[shown].mean().assign(runs=grouped.size()).reset_index()
    most = means.groupby(_ARM)["runs"].transform("max")
    return means[means["runs"] == most].drop(columns="runs").reset_index(drop=True)


def _convergence(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return how fast each arm learns, from `mean_curves` (the numbers of Figures 3 and 4).

    ``seconds_to_target`` is when the arm reaches the baseline's lowest training loss, and ``time_change``
    that time relative to the baseline's own in percent: negative is faster, missing if it never does.
    ``volatility`` is how much the batch objectives fluctuate.
    """
    columns = ["number", "seconds", "training_bce", "validation_macro_auc"]
    values = curves.reindex(columns=columns).to_numpy(dtype=np.float64)
    places = curves.groupby(_ARM, sort=False).indices
    base = baseline_arm(curves["arm"]) if len(curves) else None
    rows = []
    for data, learner, arm in places:
        line = values[places[data, learner, arm]]
        plain = places.get((data, learner, base))
        target = _extreme(values[plain], 2, np.nanargmin) if plain is not None else None
        rows.append((data, learner, arm, *_speed(line, target)))
    table = pd.DataFrame(rows, columns=[*_ARM, *_SPEED])
    if "volatility" not in runs:
        return table
    return table.merge(runs.groupby(_ARM)["volatility"].mean().reset_index(), on=_ARM, how="left")


def _speed(line: FloatArray, target: FloatArray | None) -> tuple[float, ...]:
    """Return the columns `_SPEED` of one arm; `target` is the baseline's row of its lowest loss."""
    nothing = np.full(4, np.nan)
    lowest, peak = _extreme(line, 2, np.nanargmin), _extreme(line, 3, np.nanargmax)
    lowest, peak = (nothing if row is None else row for row in (lowest, peak))
    reached = line[line[:, 2] <= target[2], 1] if target is not None else line[:0, 1]
    seconds = reached[0] if len(reached) else np.nan
    change = 100 * (seconds / target[1] - 1) if target is not None and target[1] else np.nan
    return lowest[2], lowest[0], seconds, change, peak[3], peak[0]


def _extreme(
    line: FloatArray, column: int, which: Callable[[FloatArray], np.intp]
) -> FloatArray | None:
    known = line[~np.isnan(line[:, column])]
    return known[which(known[:, column])] if len(known) else None


def _pressure_panel(evidence: Evidence, metrics: list[str]) -> pd.DataFrame:
    """Return each metric and the last training loss by selection pressure (Figure 7).

    A strategy is included for every cell where it ran with three or more constant pressures. They and
    the baseline, whose pressure is missing, are averaged over the folds and seeds that all of them have.
    """
    shown = [*metrics, "training_bce"]
    keys = [*CELL, "strategy"]
    if evidence.runs.empty:
        return pd.DataFrame(columns=[*keys, "pressure", *shown])
    runs = evidence.runs.merge(_last_losses(evidence.curves), on="digest", how="left")
    base = baseline_arm(runs["arm"])
    # A pressure that is annealed or depends on the data has no position on the axis.
    constant = [arm.pressure if isinstance(arm.pressure, float) else np.nan for arm in runs["arm"]]
    runs["pressure"] = np.array(constant, dtype=np.float64)
    tried = runs[runs["pressure"].notna() & (runs["strategy"] != base.strategy)]
    tried = tried[tried.groupby(keys)["pressure"].transform("nunique") >= 3]
    plain = runs[runs["arm"] == base].drop(columns="strategy").assign(pressure=0.0)
    both = pd.concat([tried, plain.merge(tried[keys].drop_duplicates(), on=CELL)])
    wanted = both.groupby(keys)["pressure"].transform("nunique")
    here = both.groupby([*keys, "fold", "seed"])["pressure"].transform("nunique")
    means = both[here == wanted].groupby([*keys, "pressure"])[shown].mean().reset_index()
    return means.replace({"pressure": {0.0: np.nan}})


def _last_losses(curves: pd.DataFrame) -> pd.DataFrame:
    if "training_bce" not in curves:
        return pd.DataFrame({"digest": [], "training_bce": []}, dtype=object)
    known = curves.dropna(subset="training_bce")
    last = known.groupby("digest", observed=True)["training_bce"].last().reset_index()
    return last.astype({"digest": object})


def _sample_losses(evidence: Evidence) -> pd.DataFrame:
    """Return quantiles of the samples' losses by epoch and number of minority labels (Figures 1, 5).

    Each quantile is the mean of the paired runs' own quantiles.
    """
    keys = [*_ARM, "epoch", "minority_labels"]
    if evidence.losses.empty:
        return pd.DataFrame(columns=[*keys, "samples", *QUANTILES])
    runs = paired(primary(evidence.runs))[[*_ARM, "digest"]]
    rows = evidence.losses.merge(runs, on="digest").drop(columns="digest")
    return rows.groupby(keys, sort=False).mean().reset_index()


def _loss_density(losses: pd.DataFrame, *, points: int = 60) -> pd.DataFrame:
    """Return the density of the samples' losses, from `_sample_losses` (Figures 1 and 5).

    One row per cell, arm, epoch, group and ``loss``. A group is a number of minority labels (``"3"`` is
    three or more), or ``"any"``. The losses of a cell and epoch share one grid, up to the largest 99%
    quantile; a group whose losses are all equal has no density.
    """
    rows = []
    for (data, learner, epoch), cell in losses.groupby([*CELL, "epoch"], sort=False):
        low, high = cell["q01"].min(), cell["q99"].max()
        grid = np.linspace(max(0, low - 0.15 * (high - low)), high, points)
        for arm, group in cell.groupby("arm", sort=False):
            counts = group["minority_labels"].to_numpy()
            chosen = {f"{count:g}": counts == count for count in np.unique(counts)}
            for name, mask in (chosen | {"any": counts > 0}).items():
                some = group[mask]
                density = _smoothed(some[QUANTILES].to_numpy(), some["samples"].to_numpy(), grid)
                if density is not None:
                    key = (data, learner, arm, epoch, name)
                    rows += [(*key, *pair) for pair in zip(grid, density, strict=True)]
    columns = [*_ARM, "epoch", "minority_labels", "loss", "density"]
    return pd.DataFrame(rows, columns=columns)


def _smoothed(quantiles: FloatArray, samples: FloatArray, grid: FloatArray) -> FloatArray | None:
    """Return the density of groups of losses on a grid, from (groups, 99) quantiles and sample counts.

    A Gaussian kernel with Silverman's bandwidth, mirrored at 0, since no loss is below it.
    """
    # Between two quantiles the losses are assumed to be uniform.
    fine = np.linspace(PERCENT[0], PERCENT[-1], 4 * len(PERCENT))
    values = np.concatenate([np.interp(fine, PERCENT, row) for row in quantiles] or [np.empty(0)])
    weights = np.repeat(samples / max(samples.sum(), 1), len(fine)) / len(fine)
    if not len(values) or np.ptp(values) == 0:
        return None
    middle = float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34
    spread = min(middle, float(values.std())) or float(values.std())
    width = 0.9 * spread * samples.sum() ** -0.2
    steps = (np.concatenate([grid, -grid])[:, None] - values) / width
    heights = np.exp(-(steps**2) / 2) @ weights / (width * np.sqrt(2 * np.pi))
    return np.asarray(heights[: len(grid)] + heights[len(grid) :])


def label_facts(evidence: Evidence) -> pd.DataFrame:
    """Return one row per cell, arm and label: means over the paired runs, and gains over the baseline.

    ``minority`` says whether it is rare in most folds, ``exposure`` how often its samples are drawn
    relative to their share; ``gain`` is of average precision, and missing for the baseline itself.
    """
    numbers = ["positives", "minority", "average_precision", "exposure"]
    runs = paired(primary(with_batches(evidence.runs)))
    if evidence.labels.empty or runs.empty:
        return pd.DataFrame(columns=[*_ARM, "label", *numbers, "gain"])
    rows = evidence.labels.merge(runs[[*_ARM, "digest"]], on="digest")
    means = rows.groupby([*_ARM, "label"], sort=False)[numbers].mean().reset_index()
    means["minority"] = means["minority"] >= 0.5
    base = baseline_arm(runs["arm"])
    before = means.loc[means["arm"] == base, [*CELL, "label", "average_precision"]]
    means = means.merge(before, on=[*CELL, "label"], how="left", suffixes=("", "_before"))
    gain = means["average_precision"] - means.pop("average_precision_before")
    return means.assign(gain=gain.where(means["arm"] != base))


def labels_by_name(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, each label's average precision under each arm, rarest first."""
    keys = [*CELL, "label", "positives", "minority"]
    positives = facts.groupby([*CELL, "label"])["positives"].transform("mean")
    minority = facts.groupby([*CELL, "label"])["minority"].transform("max")
    wide = facts.assign(positives=positives, minority=minority).pivot_table(
        index=keys, columns="arm", values="average_precision"
    )
    return wide.reset_index().sort_values([*CELL, "positives", "label"], ignore_index=True)


def minority_gains(facts: pd.DataFrame) -> pd.DataFrame:
    """Return, from `label_facts`, each arm's mean gain over minority and over other labels.

    ``improved`` is the share of labels whose average precision rises; a label with no positives in any
    test rows does not count.

    Examples
    --------
    >>> facts = pd.DataFrame({"arm": "adaptive", "minority": [True, True, False],
    ...                       "gain": [0.2, 0.1, -0.1], "exposure": [3.0, 2.0, 0.9]})
    >>> minority_gains(facts)[["kind", "labels", "gain"]].round(2).values.tolist()
    [['minority labels', 2, 0.15], ['other labels', 1, -0.1]]
    """
    rows = []
    for (arm, minority), group in facts.groupby(["arm", "minority"], sort=False):
        gains = group["gain"].dropna()
        row = {"arm": arm, "kind": "minority labels" if minority else "other labels"}
        row |= {"labels": len(group), "exposure": group["exposure"].mean()}
        if len(gains):
            row |= {"labels": len(gains), "gain": gains.mean(), "improved": (gains > 0).mean()}
        rows.append(row)
    columns = ["arm", "kind", "labels", "gain", "improved", "exposure"]
    return pd.DataFrame(rows, columns=columns).replace({None: np.nan})
