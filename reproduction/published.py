"""The paper's printed numbers next to ours: difference, direction, and facts that disagree."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from reproduction.measures import pairs

from tailbatch.analysis.comparisons import LEVEL, gain_sign, sign
from tailbatch.analysis.keys import Arm, Learner
from tailbatch.data.catalog import catalog
from tailbatch.metrics import metric_facts
from tailbatch.stats import wilcoxon

#: Which strategies the paper compares: Table 2, then Table 4.
_PAIRS = (("random", "adaptive"), ("adaptive", "chain"))
_VERDICTS = ("confirmed", "contradicted", "tie", "not run")
#: The file of tmc2007 is not here; this one has the same rows and labels, and 500 features for its 490.
STAND_INS = {"tmc2007": "tmc2007-500"}
#: The largest distance of our random from the printed one that counts as close.
CLOSE = 0.03
_ROUNDING = 0.00501  # half a unit of the last printed digit
_P_ROUNDING = 0.0006  # what rounding the means and the p-value can explain
_FACTS = {
    "n_samples": "n",
    "n_features": "d",
    "n_labels": "q",
    "label_cardinality": "cardinality",
    "label_density": "density",
    "mean_imbalance_ratio": "mean_ir",
}


def dataset_key(name: str) -> str:
    """Return the catalog name of a dataset from its spelling in the paper's tables.

    Examples
    --------
    >>> dataset_key("yahoo-Arts1"), dataset_key("Corel5k"), dataset_key("rcv1subset1")
    ('yahoo-arts', 'corel5k', 'rcv1subset1')
    """
    key = name.casefold()
    return key.removesuffix("1") if key.startswith("yahoo-") else key


def published_name(learner: Learner) -> str:
    """Return a model's name in the paper's tables; empty if its settings also vary."""
    other = learner.loss or (learner.says_settings and learner.settings != "{}")
    return "" if other else learner.model.casefold()


def beside_published(results: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell, metric and pair of strategies that both the paper and we have.

    Parameters
    ----------
    results
        Our means, from `comparisons.results`.
    published
        The paper's means: model, dataset, metric, strategy, value.

    Returns
    -------
    frame
        ``ours`` and ``ours_baseline``, ``printed`` and ``printed_baseline``; ``difference`` is ours
        minus printed; ``agrees`` says whether both have the same direction (missing if one is a tie);
        ``note`` says why the two may not be based on the same data.
    """
    theirs = published.assign(
        dataset=published["dataset"].map(dataset_key), learner=published["model"].str.casefold()
    ).pivot_table(index=["dataset", "learner", "metric"], columns="strategy", values="value")
    strategies = [arm.strategy for arm in results["arm"]]
    ours = results.assign(strategy=strategies).pivot_table(
        index=["data", "learner", "metric"], columns="strategy", values="mean"
    )
    rows = []
    for (data, learner, metric), mine in ours.iterrows():
        name = dataset_key(data.name)
        key = (name, published_name(learner), metric)
        for base, arm in _PAIRS if key in theirs.index else ():
            values = [frame.get(name) for frame in (mine, theirs.loc[key]) for name in (base, arm)]
            if not pd.isna(pd.Series(values, dtype=float)).any():
                note = _note(name, data.preparation)
                rows.append(
                    (data, learner, metric, base, arm, *_side_by_side(values, metric), note)
                )
    columns = ["data", "learner", "metric", "baseline", "arm", "ours_baseline", "ours"]
    columns += ["printed_baseline", "printed", "difference", "agrees", "note"]
    return pd.DataFrame(rows, columns=columns)


def _side_by_side(values: list[float], metric: str) -> tuple[object, ...]:
    ours_baseline, ours, printed_baseline, printed = values
    mine = gain_sign(ours_baseline, ours, metric)
    theirs = gain_sign(printed_baseline, printed, metric)
    agrees = None if 0 in (mine, theirs) else mine == theirs
    return ours_baseline, ours, printed_baseline, printed, ours - printed, agrees


def _note(dataset: str, preparation: str) -> str:
    entry = catalog().get(dataset)
    if entry is not None and entry.as_published and preparation != "as-published":
        return "the paper measured other label columns"
    if preparation == "full":
        return "the paper drops the rarest labels"
    return ""


def directions(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per printed direction: printed and our values, and the verdict."""
    theirs = printed("results").pivot_table(
        index=["dataset", "model", "metric"], columns="strategy", values="value", sort=False
    )
    names = (
        [dataset_key(data.name) for data in runs["data"]],
        [published_name(learner) if learner.rate is None else "" for learner in runs["learner"]],
    )
    groups = dict(tuple(runs.groupby([np.array(column, dtype=object) for column in names])))
    random, adaptive = Arm("random"), Arm("adaptive")
    rows = []
    for (dataset, model, metric), values in theirs.iterrows():
        name = dataset_key(dataset)
        here = groups.get((STAND_INS.get(name, name), model.casefold()), runs[:0])
        both = pairs(here, adaptive, random, metric) if len(here) else here
        row = {"dataset": dataset, "model": model, "metric": metric, **values}
        if len(both):
            before, after = both["before"].mean(), both["value"].mean()
            ours, paper = (
                sign(metric) * (b - a)
                for a, b in ((before, after), (values["random"], values["adaptive"]))
            )
            verdict = "confirmed" if ours * paper > 0 else "contradicted"
            if ours * paper == 0:
                verdict = "tie"
            row |= {"ours_random": before, "ours_adaptive": after, "verdict": verdict}
        else:
            alone = here.loc[here["arm"] == random, metric]
            row |= {"ours_random": alone.mean(), "verdict": "not run"}
        rows.append(row)
    return pd.DataFrame(rows).reindex(
        columns=[
            *("dataset", "model", "metric", "random", "adaptive"),
            *("ours_random", "ours_adaptive", "verdict"),
        ]
    )


def direction_counts(cells: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return, from `directions`, the count of each verdict: one row per group, or one row in all.

    ``compared`` counts those with our values; ``close`` of ``random`` are within 0.03 of the printed one.

    Examples
    --------
    >>> cells = pd.DataFrame({"verdict": ["tie", "not run"], "random": 0.5, "ours_random": [0.51, None]})
    >>> direction_counts(cells)[["confirmed", "tie", "not run", "compared", "close"]].values.tolist()
    [[0, 1, 1, 1, 1]]
    """
    near = (cells["ours_random"] - cells["random"]).abs() <= CLOSE
    flags = {verdict: cells["verdict"] == verdict for verdict in _VERDICTS}
    flags |= {"compared": cells["verdict"] != "not run", "close": near}
    flags |= {"random": cells["ours_random"].notna()}
    keys = [cells[name] for name in by] or [pd.Series(0, cells.index)]
    return pd.DataFrame(flags).groupby(keys, sort=False).sum()


def far_from_printed(cells: pd.DataFrame) -> tuple[int, int]:
    """Return in how many cells of `directions` our random is not close to the printed one and better.

    Then the number of cells where it is not close.

    Examples
    --------
    >>> cells = pd.DataFrame({"metric": "one_error", "random": 0.5, "ours_random": [0.4, 0.6, 0.51]})
    >>> far_from_printed(cells)
    (1, 2)
    """
    difference = cells["ours_random"] - cells["random"]
    far = difference.abs() > CLOSE
    return int((far & (cells["metric"].map(sign) * difference > 0)).sum()), int(far.sum())


def printed_change(cells: pd.DataFrame) -> float:
    """Return the printed change of the average over cells of one metric, in percent.

    Examples
    --------
    >>> round(printed_change(pd.DataFrame({"random": [0.1, 0.3], "adaptive": [0.2, 0.4]})), 6)
    50.0
    """
    return float(100 * (cells["adaptive"].mean() / cells["random"].mean() - 1))


def printed_facts(datasets: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return one row per dataset and fact: what the paper prints (Table 1) and what was measured.

    ``agrees`` allows for the rounding of the printed number, and is missing if the paper has none;
    ``note`` is the catalog's explanation of a difference.

    Examples
    --------
    >>> ours = pd.DataFrame({"dataset": ["yeast"], "preparation": ["full"], "n_labels": [14],
    ...                      "label_cardinality": [4.237]})
    >>> paper = pd.DataFrame({"dataset": ["yeast"], "q": [15], "cardinality": [4.24]})
    >>> printed_facts(ours, paper)[["fact", "printed", "measured", "agrees"]].values.tolist()
    [['n labels', 15.0, 14.0, False], ['label cardinality', 4.24, 4.237, True]]
    """
    rows = []
    theirs = published.assign(key=published["dataset"].map(dataset_key)).set_index("key")
    for ours in datasets.to_dict("records"):
        key = dataset_key(ours["dataset"])
        entry = catalog().get(key)
        for fact, name in _FACTS.items():
            if fact not in ours or pd.isna(ours[fact]):
                continue
            value = theirs[name].get(key) if name in theirs else None
            agrees = None if value is None else bool(abs(ours[fact] - value) <= _ROUNDING)
            note = entry.note if entry is not None and agrees is False else ""
            cells = (ours["dataset"], ours["preparation"], fact.replace("_", " "))
            rows.append((*cells, value, ours[fact], agrees, note))
    columns = ["dataset", "preparation", "fact", "printed", "measured", "agrees", "note"]
    return pd.DataFrame(rows, columns=columns).astype({"printed": float, "measured": float})


def printed_tests() -> pd.DataFrame:
    """Return the paper's Table 3, with each p-value recomputed from its own Table 2.

    ``table_p`` is from the exact signed-rank test over the printed means; ``follows`` says whether the
    printed p-value matches it.

    Examples
    --------
    >>> tests = printed_tests()
    >>> len(tests), int(tests["follows"].sum())
    (30, 20)
    """
    tests = printed("wilcoxon")
    means = printed("results").pivot_table(
        index=["model", "metric", "dataset"], columns="strategy", values="value"
    )
    pairs = [means.loc[key] for key in zip(tests["model"], tests["metric"], strict=True)]
    table_p = pd.Series([wilcoxon(pair["adaptive"], pair["random"]).p_value for pair in pairs])
    return tests.assign(table_p=table_p, follows=(table_p - tests["p_value"]).abs() <= _P_ROUNDING)


def printed(name: str) -> pd.DataFrame:
    """Return a table of the paper: ``results``, ``wilcoxon``, ``adac`` or ``datasets``.

    Examples
    --------
    >>> printed("datasets").set_index("dataset").loc["yeast", "q"]
    np.int64(14)
    """
    table = pd.read_csv(Path(__file__).parent / "printed" / f"{name}.csv")
    # The paper's AdaC is called chain here.
    return table.rename(columns={"selection": "strategy"}).replace({"strategy": {"adac": "chain"}})


def printed_adac() -> pd.DataFrame:
    """Return the paper's Table 4 by dataset and metric, with a column for adaptive and one for chain.

    Examples
    --------
    >>> printed_adac().loc[("Corel5k", "macro_f")].tolist()
    [0.0963, 0.0945]
    """
    return printed("adac").pivot_table(
        index=["dataset", "metric"], columns="strategy", values="value", sort=False
    )


def printed_p_note(tests: pd.DataFrame) -> str:
    """Return, from `printed_tests`, which printed p-values do not follow from the printed table.

    Examples
    --------
    >>> printed_p_note(printed_tests()).partition(":")[0]
    "Of the paper's 30 printed p-values, 10 do not follow from its own table of results"
    """
    off = tests[~tests["follows"]]
    named = [
        f"{row.model} {metric_facts(row.metric).title} {row.p_value:.4f} "
        f"(its table gives {row.table_p:.4f})"
        for row in off.itertuples()
    ]
    turned = off[(off["table_p"] < LEVEL) != (off["outcome"] != "tie")]
    verdicts = [f"{row.model} {metric_facts(row.metric).title}" for row in turned.itertuples()]
    text = f"Of the paper's {len(tests)} printed p-values, {len(off)} do not follow from its own "
    text += f"table of results: {'; '.join(named)}."
    return text + (f" The verdict changes for {' and '.join(verdicts)}." if verdicts else "")
