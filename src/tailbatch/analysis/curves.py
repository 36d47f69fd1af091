"""Tables behind the curves: convergence, validation, selection pressure, batch size, sample losses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tailbatch.analysis.comparisons import baseline_arm, paired, primary
from tailbatch.analysis.gains import PAIR
from tailbatch.analysis.keys import CELL, Arm, by_label
from tailbatch.results.archive import PERCENT
from tailbatch.results.frames import Evidence

FloatArray = npt.NDArray[np.float64]

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
_SPEED = [
    "lowest_loss",
    "lowest_epoch",
    "seconds_to_target",
    "time_change",
    "peak_auc",
    "peak_epoch",
]


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


def convergence(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return how fast each arm learns, from `mean_curves` (the numbers of Figures 3 and 4).

    ``lowest_loss`` is the lowest training loss and ``lowest_epoch`` its epoch; ``seconds_to_target`` is
    when the arm reaches the baseline's lowest, and ``time_change`` is that time relative to the
    baseline's own in percent: negative is faster, missing if the arm never reaches it. ``peak_auc`` is
    the highest validation Macro-AUC; ``volatility`` is how much the batch objectives fluctuate.
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


def steps_to_match(baseline: pd.Series, other: pd.Series) -> tuple[float, float, float]:
    """Return the baseline's best value, its steps, and the fewest steps after which another is as good.

    Parameters
    ----------
    baseline, other
        A metric for which higher is better, by steps spent. The last number is infinite where the
        other never gets there.

    Examples
    --------
    >>> steps_to_match(pd.Series({100: 0.2, 300: 0.5, 900: 0.4}), pd.Series({100: 0.3, 200: 0.5}))
    (0.5, 300.0, 200.0)
    """
    best, steps = baseline.max(), baseline.idxmax()
    enough = other.index[other >= best]
    return float(best), float(steps), float(min(enough, default=np.inf))


def pressure_panel(evidence: Evidence, metrics: list[str]) -> pd.DataFrame:
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


def batch_size_panel(runs: pd.DataFrame, metric: str = "macro_auc") -> pd.DataFrame:
    """Return a metric's mean by dataset, model, strategy and batch size (Figure 8).

    Only for datasets and models that ran with several batch sizes, with all other settings equal.

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": "scene", "data": ["scene, 128", "scene, 256"],
    ...     "learner": "dela", "arm": [Arm("random")] * 2, "fold": 0, "seed": 0,
    ...     "plan_batch_size": [128, 256], "macro_auc": [0.9, 0.8]})
    >>> batch_size_panel(runs)[["plan_batch_size", "macro_auc"]].values.tolist()
    [[128.0, 0.9], [256.0, 0.8]]
    """
    keys = ["dataset", "learner", "arm", "plan_batch_size"]
    if "plan_batch_size" not in runs or metric not in runs:
        return pd.DataFrame(columns=[*keys, metric])
    means = paired(primary(runs)).groupby(keys, sort=False)[metric].mean().reset_index()
    several = means.groupby(["dataset", "learner"])["plan_batch_size"].transform("nunique") > 1
    return by_label(means[several], keys).reset_index(drop=True)


def sample_losses(evidence: Evidence) -> pd.DataFrame:
    """Return quantiles of the samples' losses by epoch and number of minority labels (Figures 1, 5).

    Each quantile is the mean of the paired runs' own quantiles.
    """
    keys = [*_ARM, "epoch", "minority_labels"]
    if evidence.losses.empty:
        return pd.DataFrame(columns=[*keys, "samples", *QUANTILES])
    runs = paired(primary(evidence.runs))[[*_ARM, "digest"]]
    rows = evidence.losses.merge(runs, on="digest").drop(columns="digest")
    return rows.groupby(keys, sort=False).mean().reset_index()


def loss_density(losses: pd.DataFrame, *, points: int = 60) -> pd.DataFrame:
    """Return the density of the samples' losses, from `sample_losses` (Figures 1 and 5).

    One row per cell, arm, epoch, group of samples and ``loss``: its ``density``. A group is a number of
    minority labels (``"3"`` is three or more), or ``"any"``: all samples with a minority label. The
    losses of a cell and epoch share one grid, up to the largest 99% quantile; a group whose losses
    are all equal has no density.
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
                density = smoothed(some[QUANTILES].to_numpy(), some["samples"].to_numpy(), grid)
                if density is not None:
                    key = (data, learner, arm, epoch, name)
                    rows += [(*key, *pair) for pair in zip(grid, density, strict=True)]
    columns = [*_ARM, "epoch", "minority_labels", "loss", "density"]
    return pd.DataFrame(rows, columns=columns)


def smoothed(quantiles: FloatArray, samples: FloatArray, grid: FloatArray) -> FloatArray | None:
    """Return the density of groups of losses on a grid, from (groups, 99) quantiles and sample counts.

    A Gaussian kernel with Silverman's bandwidth, mirrored at 0, since no loss is below it.

    Examples
    --------
    >>> grid = np.linspace(0, 4, 400)
    >>> density = smoothed(np.linspace(1, 2, 99)[None], np.array([1000.0]), grid)
    >>> round(float(density.sum() * grid[1]), 2), float(grid[density.argmax()].round(1))
    (1.0, 1.5)
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


@dataclass(frozen=True)
class Panel:
    """A categorical chart: for each arm one value per category."""

    title: str
    categories: list[str]
    values: dict[Arm, list[float]]


def agreement_panels(agreement: pd.DataFrame) -> list[Panel]:
    """Return one panel per epoch: the correlation by model, from `loss_agreement` (Figure 6)."""
    names = ["Best epoch" if epoch == "best" else f"Epoch {epoch}" for epoch in agreement["epoch"]]
    return _panels(agreement.assign(panel=names), "learner", "loss_correlation")


def batch_size_panels(batch_sizes: pd.DataFrame) -> list[Panel]:
    """Return one panel per batch size and model: Macro-AUC by dataset (Figure 8)."""
    several = batch_sizes["learner"].nunique() > 1
    names = [
        f"Batch size {size:g}" + (f", {learner}" if several else "")
        for size, learner in batch_sizes[["plan_batch_size", "learner"]].itertuples(index=False)
    ]
    return _panels(batch_sizes.assign(panel=names), "dataset", "macro_auc")


def _panels(table: pd.DataFrame, category: str, value: str) -> list[Panel]:
    panels = []
    for title, group in table.groupby("panel", sort=False):
        wide = group.pivot_table(index=category, columns="arm", values=value)
        arms = {arm: wide[arm].tolist() for arm in sorted(wide)}
        panels.append(Panel(str(title), [str(name) for name in wide.index], arms))
    return panels


def loss_agreement(evidence: Evidence) -> pd.DataFrame:
    """Return Pearson's correlation of a sample's BCE and its own loss, by model, arm, epoch (Figure 6).

    Means over runs; ``epoch`` is a number or ``"best"``, the best epoch.
    """
    keys = ["learner", "arm", "epoch"]
    if evidence.correlations.empty:
        return pd.DataFrame(columns=[*keys, "runs", "loss_correlation"])
    rows = evidence.correlations.merge(evidence.runs[["learner", "arm", "digest"]], on="digest")
    means = rows.groupby(keys)["loss_correlation"].agg(runs="size", loss_correlation="mean")
    # Numbers in order, the best epoch last.
    ordered = means.reset_index().sort_values("epoch", key=lambda epoch: epoch.str.zfill(9))
    return ordered.sort_values(
        keys[:2], key=lambda column: column.map(str), kind="stable"
    ).reset_index(drop=True)


def epochs_to_lowest(evidence: Evidence, arm: Arm, baseline: Arm) -> pd.Series:
    """Return for each pair of runs the epochs to the baseline's lowest training loss.

    In percent of the baseline's own, infinite if the arm never reaches it; indexed by cell, fold and
    seed.
    """
    runs = evidence.runs.loc[evidence.runs["arm"].isin([arm, baseline]), [*PAIR, "arm", "digest"]]
    curves = evidence.curves[["digest", "number", "training_bce"]].dropna(subset="training_bce")
    curves = curves.merge(runs, on="digest")
    plain = curves[curves["arm"] == baseline]
    lowest = plain.loc[plain.groupby(PAIR)["training_bce"].idxmin()]
    lowest = lowest.rename(columns={"number": "its_number", "training_bce": "lowest"})
    mine = curves[curves["arm"] == arm].merge(lowest[[*PAIR, "its_number", "lowest"]], on=PAIR)
    reached = mine["number"].where(mine["training_bce"] <= mine["lowest"], np.inf)
    return (100 * reached / mine["its_number"]).groupby([mine[name] for name in PAIR]).min()
