"""Our numbers beside the printed ones."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pandas as pd
from reproduction.cells import preset_cell
from reproduction.measures import runs_and_folds, same_warm_ups
from reproduction.published import (
    CLOSE,
    STAND_INS,
    dataset_key,
    direction_counts,
    directions,
    far_from_printed,
    printed,
    printed_adac,
    printed_change,
    printed_p_note,
    printed_tests,
)
from reproduction.records import HERE, PRESETS, TABLE, lacking, plans, runs_of
from reproduction.text import (
    ADAPTIVE,
    CHAIN,
    FAST_RATE,
    PAPER_MODELS,
    RANDOM,
    TITLES,
    UNIFORM,
    folds_of,
    learner_name,
    listed,
    p_text,
    percent,
    rate_name,
    table,
)

from tailbatch.analysis import Learner
from tailbatch.analysis.comparisons import (
    PAPER_METRICS,
    Gain,
    detectable_change,
    gain,
    held_out_ratio,
    paired_values,
)
from tailbatch.results.frames import Evidence


def what_was_run(evidence: Evidence) -> str:
    """Say which runs of the paper's models there are, and which of the plan are missing."""
    runs = evidence.runs
    cells = {cell: f"{n} ({folds})" for cell, n, folds in runs_and_folds(runs).itertuples()}
    learners = sorted({learner for _, learner in cells}, key=_paper_models_first)
    rows = [
        (data, *(cells.get((data, learner), "") for learner in learners))
        for data in sorted(set(runs["data"]))
    ]
    return "\n\n".join(
        [
            "## What was run",
            f"{len(runs):,} of {len(planned(evidence)):,} planned runs, each 100 epochs with batches of "
            "128, Adam (learning rate 1e-4, L2 1e-4), three epochs of warm-up, one thread, seed 0, "
            f"{folds_of(runs)} (80% training, 10% validation, 10% test), the paper's preparation of the "
            "data, and the epoch with the best validation Macro-AUC. MPVAE learns at 1e-3, its "
            "authors' own rate. For one dataset, model and fold all strategies share rows, "
            f"initial weights and warm-up, bit for bit: {_shared_warm_ups(runs)}. Runs, and in brackets "
            "their folds:",
            table(["dataset", *map(learner_name, learners)], rows),
        ]
    )


def _paper_models_first(learner: Learner) -> tuple[str, int, Learner]:
    """Order learners by learning rate, the usual one first, then the paper's models as it lists them."""
    models = [learner.model for learner in PAPER_MODELS]
    place = models.index(learner.model) if learner.model in models else len(models)
    return str(learner.rate or ""), place, learner


def planned(evidence: Evidence) -> set[str]:
    """Return the digests of all runs that the study files here plan."""
    facts = evidence.datasets.drop_duplicates("dataset").set_index("dataset")
    return {spec.digest for plan in plans(facts["digest"].to_dict()) for spec in plan.specs}


def _shared_warm_ups(runs: pd.DataFrame) -> str:
    same_weights, groups = same_warm_ups(runs)
    text = f"{same_weights} of {groups} groups have one digest of the weights"
    # Typed by hand, after both versions were run again on scene and yeast.
    rest = (
        "; the others were run with two versions of the code or on two kinds of processor, which round "
        "sums in different orders"
    )
    return text if same_weights == groups else text + rest


def beside_the_paper(evidence: Evidence) -> str:
    """Set our random and adaptive beside the printed ones, and count directions."""
    cells = directions(evidence.runs)
    counts = direction_counts(cells).iloc[0]
    lines = [
        "## Its table of results, beside ours",
        f"The paper prints {len(cells)} directions: random to adaptive (5 models, 13 datasets, 6 "
        f"metrics). {counts['compared']} of them were run: "
        f"{counts['confirmed']} confirmed, {counts['contradicted']} contradicted, "
        f"{counts['tie']} ties; {counts['not run']} were not. A direction is that of the "
        "mean over the folds; the brackets say for how many cells the 95% interval of our paired "
        "difference excludes zero.",
        "![Change by adaptive batches, ours against the printed, for each dataset and model]"
        "(assets/printed.svg)",
        _direction_table(cells, evidence.runs),
        f"Our random is within 0.03 of the printed one in {counts['close']} of {counts['random']} cells "
        "([by preset](reproduction/cells.md#closer-settings)). LLOG-F, yahoo-Arts and yahoo-Business "
        "were measured on other label columns in the paper, so their cells compare different tasks; "
        "tmc2007 is tmc2007-500 here, with the same rows and labels and 500 features for its 490. "
        "[Every cell](reproduction/cells.md) has both numbers, how it was run, and what the cells that "
        "were not run would cost.",
    ]
    return "\n\n".join(lines)


def conclusions(evidence: Evidence) -> str:
    """Say where the printed gains are confirmed and where not, and what could have been seen."""
    cells = directions(evidence.runs)
    counts = direction_counts(cells, ["model"])
    said = {
        name: f"{name} ({count['confirmed']} to {count['contradicted']})"
        for name, count in counts.iterrows()
    }
    more = [
        name for name in said if counts.loc[name, "confirmed"] > counts.loc[name, "contradicted"]
    ]
    fewer = [name for name in said if name not in more]
    gains = [
        change
        for model, metric in product(PAPER_MODELS, PAPER_METRICS)
        for change in _cell_gains(evidence.runs, model, metric)
        if not math.isnan(change.low)
    ]
    clear = [change.percent > 0 for change in gains if change.clear]
    better, far = far_from_printed(cells)
    lines = [
        f"- **Confirmed more often than contradicted:** {listed(said[name] for name in more) or 'none'}; "
        f"**not:** {listed(said[name] for name in fewer) or 'none'}. The six metrics of a cell depend on "
        "each other, so these counts are no test.",
        f"- **Single cells decide little.** Of {len(gains)} cells and metrics with three folds or more, "
        f"the interval is above zero in {clear.count(True)} and below it in {clear.count(False)}.",
        f"- **The baseline differs.** Where our random is not within {CLOSE} of the printed one, it is "
        f"better in {better} of {far} cells.",
        "- **What could have been seen.** Adaptive against random in percent, averaged over the printed "
        "datasets that were run: the printed change, ours, and the change that the test would find with "
        "a power of 80%:",
    ]
    return "\n\n".join(
        ["### What the data allow", "\n".join(lines), _printed_and_ours(evidence, cells)]
    )


def _printed_and_ours(evidence: Evidence, cells: pd.DataFrame) -> str:
    """Return the change of the average over datasets by model: printed, ours, and detectable."""
    ran = cells[cells["verdict"] != "not run"]
    rows = []
    for model in PAPER_MODELS:
        said: list[object] = []
        for metric in ("macro_auc", "macro_f"):
            mine = ran[(ran["model"] == model.model.upper()) & (ran["metric"] == metric)]
            keys = {STAND_INS.get(key, key) for key in map(dataset_key, mine["dataset"])}
            here = evidence.runs[evidence.runs["learner"] == model]
            here = here[[data.name in keys for data in here["data"]]]
            theirs = printed_change(mine)
            least = detectable_change(paired_values(here, ADAPTIVE, metric), held_out_ratio(here))
            ours = gain(here, ADAPTIVE, metric) or "-"
            said.append(f"{theirs:+.1f}; {ours}; {'-' if math.isnan(least) else f'{least:.1f}'}")
        rows.append((learner_name(model), len(keys), *said))
    return table(["printed; ours; detectable", "datasets", "Macro-AUC, %", "Macro-F, %"], rows)


def _cell_gains(runs: pd.DataFrame, model: Learner, metric: str) -> list[Gain]:
    """Return adaptive against random on each dataset that a model ran on."""
    here = runs[runs["learner"] == model]
    gains = (gain(here[here["data"] == data], ADAPTIVE, metric) for data in set(here["data"]))
    return [change for change in gains if change is not None]


def cell_by_cell(evidence: Evidence) -> str:
    """Set every cell that was run beside the printed one, by model."""
    cells = directions(evidence.runs)
    parts = [
        part
        for model in dict.fromkeys(cells["model"])
        for part in (f"### {model}", _all_cells(cells[cells["model"] == model]))
    ]
    return "\n\n".join(
        [
            "## Every cell that was run",
            "Random to adaptive, on each metric first the printed values, then ours:",
            *parts,
        ]
    )


def adac(evidence: Evidence) -> str:
    """Set the paper's Table 4, AdaC (`chain`) against adaptive, beside ours."""
    theirs = printed_adac()
    dela = evidence.runs[evidence.runs["learner"] == Learner("dela")]
    rows, ran = [], 0
    for dataset in dict.fromkeys(theirs.index.get_level_values("dataset")):
        here = dela[[dataset_key(data.name) == dataset_key(dataset) for data in dela["data"]]]
        said = []
        for metric in PAPER_METRICS:
            values, change = theirs.loc[dataset, metric], gain(here, CHAIN, metric, ADAPTIVE)
            ran += change is not None
            ours = "-" if change is None else f"{percent(change)}%"
            said.append(f"{values['adaptive']:.3f} to {values['chain']:.3f}; {ours}")
        rows.append((dataset, *said))
    text = (
        "AdaC (`chain` here) with DELA, in the paper's Table 4: adaptive to AdaC as printed; then what "
        f"ours changes. {ran} of {len(theirs)} directions were run."
    )
    header = ["printed; ours", *(TITLES[metric] for metric in PAPER_METRICS)]
    return "\n\n".join(["## AdaC against adaptive", text, table(header, rows)])


def _direction_table(cells: pd.DataFrame, runs: pd.DataFrame) -> str:
    counts = direction_counts(cells, ["model", "metric"])
    close = direction_counts(cells, ["model"])
    rows = []
    for model in PAPER_MODELS:
        said = []
        for metric in PAPER_METRICS:
            count = counts.loc[model.model.upper(), metric]
            gains = _cell_gains(runs, model, metric)
            clear = [change.percent > 0 for change in gains if change.clear]
            verdicts = " / ".join(str(count[name]) for name in ("confirmed", "contradicted", "tie"))
            said.append(f"{verdicts} ({clear.count(True)}, {clear.count(False)})")
        near = close.loc[model.model.upper()]
        last = f"{near['close']} of {near['random']}", count["not run"]
        rows.append((learner_name(model), *said, *last))
    header = ["confirmed / contradicted / ties (clearly better, worse)"]
    header += [TITLES[metric] for metric in PAPER_METRICS]
    return table([*header, "random within 0.03", "cells not run"], rows)


def _all_cells(cells: pd.DataFrame) -> str:
    run = cells[cells["ours_random"].notna()]
    rows = []
    for dataset in dict.fromkeys(run["dataset"]):
        here = run[run["dataset"] == dataset].set_index("metric")
        said = (
            f"{row.random:.3f} to {row.adaptive:.3f}; {_ours(row.ours_random, row.ours_adaptive)}"
            for row in here.loc[list(PAPER_METRICS)].itertuples()
        )
        rows.append((dataset, *said))
    return table(["printed; ours", *(TITLES[metric] for metric in PAPER_METRICS)], rows)


def _ours(random: float, adaptive: float) -> str:
    return f"{random:.3f}" if pd.isna(adaptive) else f"{random:.3f} to {adaptive:.3f}"


def presets(evidence: Evidence) -> str:
    """Set random batches with other settings of the models beside the printed random column."""
    usual = directions(evidence.runs)
    tried = {
        f"{learner_name(model)}, learning rate {rate_name(FAST_RATE)}": evidence.runs[
            evidence.runs["learner"] == replace(model, rate=FAST_RATE)
        ]
        for model in PAPER_MODELS
    }
    for runs in runs_of(PRESETS).values():
        for learner in sorted(set(runs["learner"])):
            name = f"{learner_name(learner)}, preset {json.loads(learner.settings)['preset']}"
            some = runs[runs["learner"] == learner]
            tried[name] = pd.concat([tried[name], some]) if name in tried else some
    rows, details = [], []
    for name, runs in tried.items():
        plain = runs.assign(learner=[Learner(learner.model) for learner in runs["learner"]])
        cells = directions(plain)
        ran = cells["ours_random"].notna()
        if not ran.any():
            continue
        counts = [direction_counts(some[ran]).iloc[0] for some in (cells, usual)]
        close = (f"{count['close']} of {count['random']}" for count in counts)
        rows.append((name, listed(cells.loc[ran, "dataset"]), *close))
        if "preset" in name:
            details += _preset_rows(name, cells[ran], usual[ran])
    text = (
        "Settings that bring our random batches closer to the printed ones, or not. `port` is C2AE as a "
        "common PyTorch port has it, `without-dropout` is MPVAE without dropout and L2, `reference` what "
        "the code released with the paper does ([cards](../../src/tailbatch/models/README.md)); presets "
        "learn at 1e-3. How many of their cells, a dataset and metric each, are within 0.03 of the "
        "printed one, and how many of the same cells are with the settings of the rest of this page, as "
        "far as they were run with them:"
    )
    header = ["settings", "datasets", "cells within 0.03", "the same cells with usual settings"]
    names = [TITLES[metric] for metric in PAPER_METRICS]
    return "\n\n".join(
        [
            "## Closer settings",
            text,
            table(header, rows),
            "<details><summary>The presets, cell by cell: printed, preset, usual settings</summary>",
            table(["random batches", *names], details),
            "</details>",
            _presets_not_run(),
        ]
    )


def _presets_not_run() -> str:
    """List the presets that are planned and were not run, and what each would cost."""
    costs = _costs().set_index(["model", "preset", "dataset"])["hours"]
    absent = sorted(
        (costs.get(cell, math.inf), cell) for cell in set(map(preset_cell, lacking(PRESETS)))
    )
    said = [
        f"{model.upper()} `{preset}` on {data} ({'not measured' if math.isinf(cost) else f'{cost:.2g}'})"
        for cost, (model, preset, data) in absent
    ]
    if not said:
        return "All planned presets were run."
    return (
        "Planned in `reproduction/table_2/presets` and not run, with the hours that 100 epochs of random "
        f"batches would take, measured as in the next section: {', '.join(said)}."
    )


def _costs() -> pd.DataFrame:
    """Return what cells that were not run would cost; those with usual settings have an empty preset."""
    return pd.read_csv(HERE / TABLE / "costs.csv").fillna({"preset": ""})


def _preset_rows(name: str, cells: pd.DataFrame, usual: pd.DataFrame) -> list[tuple[str, ...]]:
    rows = []
    for dataset in dict.fromkeys(cells["dataset"]):
        here, there = (
            some[some["dataset"] == dataset].set_index("metric") for some in (cells, usual)
        )
        said = (
            f"{mine['random']:.3f}, {mine['ours_random']:.3f}, {_known(other['ours_random'])}"
            for mine, other in ((here.loc[m], there.loc[m]) for m in PAPER_METRICS)
        )
        rows.append((f"{dataset}, {name}", *said))
    return rows


def _known(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.3f}"


def not_run(evidence: Evidence) -> str:
    """List the printed cells that were not run, and what each would cost."""
    cells = directions(evidence.runs)
    absent = cells[cells["verdict"] == "not run"].drop_duplicates(["model", "dataset"])
    costs = _costs()
    costs = costs[costs["preset"] == ""].set_index(["model", "dataset"])
    rows = []
    for model, name in zip(absent["model"], absent["dataset"], strict=True):
        key = model.casefold(), dataset_key(name)
        if key in costs.index:
            row = costs.loc[key]
            size, step = f"{row['parameters'] / 1e6:.1f}", f"{row['step_seconds']:.3g}"
            rows.append((row["hours"], (model, name, size, step, f"{row['hours']:.2g}")))
        else:
            rows.append((math.inf, (model, name, "-", "-", "not measured")))
    rows.sort()
    timed = {name: STAND_INS.get(dataset_key(name)) for name in absent["dataset"]}
    stand_ins = " ".join(
        f"{name} was timed on {there}: its own file is not here."
        for name, there in timed.items()
        if there
    )
    text = (
        f"{len(rows)} of {len(cells.drop_duplicates(['model', 'dataset']))} cells of the paper's table "
        "were not run. Each was trained for a few steps on one core "
        "(`python -m reproduction.table_2.costs`) and extrapolated to one fold: 100 epochs with random "
        "and 100 with adaptive batches, validation included, in hours of processor time. "
        # Typed by hand, after `python -m benchmarks.bench_epoch`.
        "PACA was timed before its epochs took 0.68 of that. "
        f"{stand_ins}"
    )
    header = ["model", "dataset", "million parameters", "seconds a step", "hours"]
    return "\n\n".join(
        ["## Not run, and what each would cost", text, table(header, [row for _, row in rows])]
    )


def verdicts(evidence: Evidence) -> str:
    """Wilcoxon over datasets, as the paper's Table 3, beside the printed outcome."""
    outcomes = printed("wilcoxon").assign(model=lambda frame: frame["model"].str.casefold())
    theirs = outcomes.set_index(["model", "metric"])["outcome"]
    rows = []
    for model in PAPER_MODELS:
        tested = [made for made in _tested(evidence) if made.model == model]
        if tested:
            said = (
                f"{made.gain.better_cells} of {made.gain.cells}, p {p_text(made.gain.p)}; "
                f"{theirs[model.model, made.metric]}"
                for made in tested
            )
            rows.append((learner_name(model), *said))
    text = (
        "Wilcoxon's signed-rank test over the means of the datasets, as in the paper's Table 3: on how "
        "many datasets adaptive is better than random, the p-value, and the printed outcome. A model "
        "needs six datasets to be here: with fewer, no p-value can fall below 0.05. [With `uniform` as "
        "the baseline, too](reproduction/cells.md#the-tests-with-two-baselines)."
    )
    header = ["ours; printed", *(TITLES[metric] for metric in PAPER_METRICS)]
    shown = table(header, rows) if rows else "No model ran on six."
    return "\n\n".join(["## Its tests, beside ours", text, shown])


def tests_with_two_baselines(evidence: Evidence) -> str:
    """Show each test with random and with `uniform` as the baseline, beside the printed p-value."""
    theirs = printed("wilcoxon").assign(model=lambda frame: frame["model"].str.casefold())
    theirs = theirs.set_index(["model", "metric"])
    rows = []
    for made in _tested(evidence):
        outcome, p = theirs.loc[(made.model.model, made.metric), ["outcome", "p_value"]]
        counts = made.gain.datasets, f"{made.gain.better_cells} of {made.gain.cells}"
        ours = (*counts, p_text(made.gain.p, 4), p_text(made.against_uniform, 4))
        name = f"{learner_name(made.model)}, {TITLES[made.metric]}"
        rows.append((name, *ours, f"{outcome} ({p_text(p, 4)})"))
    text = (
        "`uniform` draws independent batches without any loss and so separates overlap between batches "
        "from drawing hard samples."
    )
    header = ["model, metric", "datasets", "adaptive better on", "p against random"]
    shown = table([*header, "p against uniform", "printed"], rows)
    note = printed_p_note(printed_tests())
    return "\n\n".join(["## The tests, with two baselines", text, shown, note])


class _Tested(NamedTuple):
    """Adaptive against random on the datasets of a model, in a metric, and p against `uniform`."""

    model: Learner
    metric: str
    gain: Gain
    against_uniform: float


def _tested(evidence: Evidence) -> Iterator[_Tested]:
    for model, metric in product(PAPER_MODELS, PAPER_METRICS):
        here = evidence.runs[evidence.runs["learner"] == model]
        random, uniform = (gain(here, ADAPTIVE, metric, base) for base in (RANDOM, UNIFORM))
        if random is not None and not pd.isna(random.p):
            p = math.nan if uniform is None else uniform.p
            yield _Tested(model, metric, random, p)
