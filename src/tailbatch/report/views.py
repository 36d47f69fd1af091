"""What the page's template shows: every number already text, every table already in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tailbatch.metrics import METRICS
from tailbatch.report.export import MISSING, cell_text, is_number
from tailbatch.report.style import arm_order
from tailbatch.report.tables import CELL, paired

TraceIds = Mapping[tuple[str, str, str], str]
# Learner, dataset, arm and metric lead to mean, low, high, number of runs, and whether it is best.
_Found = dict[str, dict[str, dict[str, dict[str, list[Any]]]]]


@dataclass(frozen=True)
class View:
    """A plain table: header with a flag for numbers, and rows of text."""

    caption: str
    header: list[tuple[str, bool]]
    rows: list[list[str]]


def view(table: pd.DataFrame, caption: str, titles: Mapping[str, str] | None = None) -> View:
    """Return a frame as a plain table; `titles` picks, orders and renames its columns.

    Examples
    --------
    >>> view(pd.DataFrame({"data": ["scene"], "gain": [0.5]}), "Gains", {"gain": "Gain"}).rows
    [['0.5000']]
    """
    titles = titles or {name: name.replace("_", " ").capitalize() for name in table}
    shown = table[[name for name in titles if name in table]]
    return View(
        caption,
        [(titles[name], is_number(shown[name])) for name in shown],
        [[cell_text(value) for value in row] for row in shown.itertuples(index=False)],
    )


def result_grids(
    results: pd.DataFrame,
    metrics: list[str],
    absent: pd.DataFrame,
    traces: TraceIds,
) -> list[dict[str, Any]]:
    """Return one table a model: datasets and strategies down, metrics across (Table 2).

    An arm whose runs are all missing has its row, too, without numbers.
    """
    lost = absent.groupby([*CELL, "arm"]).size().to_dict() if len(absent) else {}
    columns = [*CELL, "arm", "metric", "mean", "low", "high", "runs", "best"]
    found: _Found = {}
    for data, learner, arm, metric, *rest in results[columns].itertuples(index=False):
        found.setdefault(learner, {}).setdefault(data, {}).setdefault(arm, {})[metric] = rest
    for data, learner, arm in _primary(absent).itertuples(index=False):
        found.setdefault(learner, {}).setdefault(data, {}).setdefault(arm, {})
    titles = [
        {"title": METRICS[name].title, "higher": METRICS[name].higher_is_better} for name in metrics
    ]
    grids = []
    for learner in sorted(found):
        groups = [
            (
                data,
                [
                    _grid_row(arm, values, metrics, lost.get((data, learner, arm), 0))
                    | {"trace": traces.get((data, learner, arm), "")}
                    for arm, values in sorted(arms.items(), key=lambda item: arm_order(item[0]))
                ],
            )
            for data, arms in sorted(found[learner].items())
        ]
        caption = f"{learner} on {len(groups)} {'dataset' if len(groups) == 1 else 'datasets'}"
        grids.append({"learner": learner, "caption": caption, "metrics": titles, "groups": groups})
    return grids


def _primary(absent: pd.DataFrame) -> pd.DataFrame:
    if absent.empty:
        return pd.DataFrame(columns=[*CELL, "arm"])
    return absent.loc[absent["arm"] == absent["strategy"], [*CELL, "arm"]]


def _grid_row(
    arm: str, values: Mapping[str, list[Any]], metrics: list[str], missing: int
) -> dict[str, Any]:
    done = max((runs for *_, runs, _ in values.values()), default=0)
    return {
        "arm": arm,
        "runs": f"{done} {'run' if done == 1 else 'runs'}"
        + (f", {missing} missing" if missing else ""),
        "short": bool(missing),
        "cells": [_grid_cell(*values[name]) if name in values else None for name in metrics],
    }


def _grid_cell(mean: float, low: float, high: float, runs: int, best: bool) -> dict[str, Any]:
    return {
        "mean": cell_text(mean),
        "best": best,
        "interval": "" if np.isnan(low) else f"{low:.3f}\N{EN DASH}{high:.3f}",
    }


def overall_views(overall: pd.DataFrame, baseline: str) -> list[dict[str, Any]]:
    """Return each arm's table of all metrics, with the intervals as positions on one common axis."""
    if overall.empty:
        return []
    ends = np.array([0.0, *overall[["low", "high", "percent"]].to_numpy(dtype=float).ravel()])
    ends = ends[np.isfinite(ends)]
    low, width = ends.min(), max(float(np.ptp(ends)), 1e-9)

    def place(value: float) -> str:
        return f"{4 + 92 * (value - low) / width:.1f}"

    views = []
    for arm, group in overall.groupby("arm", sort=False):
        caption = f"{arm} against {baseline}: change of the average over all datasets and models"
        rows = [_overall_row(row, place) for _, row in group.iterrows()]
        views.append({"arm": arm, "caption": f"{caption}; positive is better", "rows": rows})
    # The paper's own strategy comes first, as in the sentences.
    return sorted(views, key=lambda each: each["arm"] != "adaptive")


def _overall_row(row: pd.Series, place: Callable[[float], str]) -> dict[str, Any]:
    known = bool(np.isfinite([row["percent"], row["low"], row["high"]]).all())
    sure = known and not row["low"] <= 0 <= row["high"]
    tone = ("good" if row["percent"] > 0 else "bad") if sure else ""
    ends = {"zero": 0.0, "at": row["percent"], "low": row["low"], "high": row["high"]}
    return {
        "metric": METRICS[row["metric"]].title,
        **{name: int(row[name]) for name in ("win", "tie", "loss")},
        "tone": tone,
        "percent": MISSING if pd.isna(row["percent"]) else f"{row['percent']:+.1f}%",
        "interval": f"{row['low']:+.1f} to {row['high']:+.1f}" if known else MISSING,
        "bar": {name: place(value) for name, value in ends.items()} if known else None,
        "p": p_text(row["p_holm"]),
    }


def p_text(p: float) -> str:
    """Return a p-value as people print it.

    Examples
    --------
    >>> p_text(0.00001), p_text(0.0314), p_text(float("nan"))
    ('< 0.0001', '0.0314', '\N{EN DASH}')
    """
    return "< 0.0001" if p < 0.0001 else cell_text(float(p))


def traces(
    runs: pd.DataFrame, prefix: str = "runs"
) -> tuple[list[dict[str, Any]], dict[tuple[str, str, str], str]]:
    """Return the runs behind each dataset, model and arm, and the place of each on the page.

    A run whose fold and seed some other strategy lacks is in no mean, and says so.
    """
    entries, ids = [], {}
    compared = set(paired(runs)["digest"]) if len(runs) else set()
    columns = [*CELL, "arm", "fold", "seed", "digest"]
    ordered = runs.sort_values(columns)[columns] if len(runs) else pd.DataFrame(columns=columns)
    for place, (key, group) in enumerate(ordered.groupby([*CELL, "arm"])):
        ids[key] = f"{prefix}-{place}"
        listed = [
            {
                "digest": digest,
                "place": f"fold {fold}, seed {seed}"
                + ("" if digest in compared else ", not compared"),
            }
            for fold, seed, digest in group[["fold", "seed", "digest"]].to_numpy()
        ]
        title = f"{key[2]}, {key[1]} on {key[0]}"
        entries.append({"id": ids[key], "title": title, "runs": listed})
    return entries, ids
