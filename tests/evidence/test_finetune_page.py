"""The fine-tuning study: its runs, and a page that follows from the committed records."""

import ast
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from reproduction.finetune import cells, page, runs, sentences, tables
from reproduction.finetune.records import read
from reproduction.finetune.runs import ARMS, LAGS, STUDIES, Run, Store, planned

from tailbatch.data import MultiLabelDataset, Parts

RUN = Run(study="frozen", arm="random", loss="weighted_bce", epochs=1.0, lr=0.02, seed=0)


def record(run, value):
    return {
        "run": json.loads(json.dumps(vars(run))),
        "test": dict.fromkeys(cells.METRICS, value),
        "validation": dict.fromkeys(cells.METRICS, value),
        "average_precision": [value] * 28,
        "exposure": [1.0] * 28,
        "steps": 10,
        "seconds": 6.0,
        "selection_seconds": 0.01,
    }


def finetuned(values, arm="random", **more):
    """Return records of fine-tuning: one value for each seed."""
    run = replace(RUN, study="finetuned", arm=arm, rows=10_000, lr=2e-4, **more)
    return [record(replace(run, seed=seed), value) for seed, value in enumerate(values)]


@pytest.fixture
def parts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)).astype(np.float32)
    Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 1.2, X[:, 2] > 1.8])
    data = MultiLabelDataset.from_arrays(X, Y)
    return Parts(*(data.take(rows) for rows in np.split(np.arange(300), [200, 250])))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_trains_and_leaves_a_record(arm, parts):
    found, scores = runs.train(replace(RUN, arm=arm), parts)
    again, same = runs.train(replace(RUN, arm=arm), parts)
    assert scores.shape == (50, 3)
    np.testing.assert_array_equal(scores, same)
    assert found["test"] == again["test"]
    assert found["test"].keys() >= cells.METRICS.keys()
    assert found["steps"] == 2  # batches of 128
    assert 0 < found["selection_seconds"] < found["seconds"]


def test_late_losses_are_held_back_as_long_as_the_selector_allows(parts):
    def trained(lag, seed=0):
        run = replace(
            RUN,
            study="frozen-32",
            arm="importance by gradient",
            epochs=2,
            options=(("max_lag", lag),),
        )
        return runs.train(run, parts)[1]

    assert (trained(0) != trained(3)).any()
    assert (trained(1000) == trained(500)).all()  # none came back in time


def test_all_arms_run_at_the_rate_that_was_best_for_random_on_validation(tmp_path):
    store = Store(tmp_path)
    done = []
    for run in planned("frozen", store, epochs=[1.0], losses=["bce"], arms=list(ARMS)):
        done.append(run)
        value = 0.5 if run.lr == STUDIES["frozen"].rates[1] else 0.4
        (tmp_path / f"{run.name}.json").write_text(json.dumps(record(run, value)))
    tried, compared = done[: len(STUDIES["frozen"].rates)], done[len(STUDIES["frozen"].rates) :]
    assert {run.arm for run in tried} == {"random"}
    assert {run.lr for run in compared} == {STUDIES["frozen"].rates[1]}
    assert len(compared) == len(ARMS) * STUDIES["frozen"].seeds
    late = planned(
        "frozen-32", store, epochs=[1], losses=["bce"], arms=["random"], lr=0.1, lags=True
    )
    assert {run.options for run in late} == {(), *((("max_lag", lag),) for lag in LAGS)}
    assert len({run.name for run in done}) == len(set(done))


def test_a_run_that_is_done_is_not_done_again(tmp_path, parts, monkeypatch):
    monkeypatch.setattr(runs, "data_of", lambda study, folder: parts)
    first = Store(tmp_path).done(RUN)
    monkeypatch.setattr(runs, "train", None)
    assert Store(tmp_path).done(RUN) == json.loads(json.dumps(first))


def test_changes_are_paired_by_seed_and_skip_other_options():
    records = [record(replace(RUN, seed=seed), 0.2 + 0.02 * seed) for seed in range(3)]
    arm = replace(RUN, arm="importance")
    records += [record(replace(arm, seed=seed), 0.22 + 0.02 * seed) for seed in (0, 1)]
    records += [record(replace(arm, seed=0, options=(("mix", 0.1),)), 0.9)]
    found = cells.change(records, "importance", "macro_auc", study="frozen")
    assert found.seeds == 2
    assert found.change.mean == pytest.approx(100 * (0.46 / 0.42 - 1))
    assert tables.shown(found) == "+9.5%"  # two seeds have no interval
    assert cells.change(records, "balanced", "macro_auc") is None


def at_rates(best, compared):
    """Return fine-tuning at three rates, the given one best, with importance at some of them."""
    found = []
    for lr in (1e-4, 2e-4, 5e-4):
        value = 0.5 if lr == best else 0.4
        found += [_at(each, lr) for each in finetuned([value, 0.41, 0.39])]
        count = compared.get(lr, 0)
        found += [_at(each, lr) for each in finetuned([0.45, 0.44, 0.46][:count], "importance")]
    return found


def _at(found, lr):
    return {**found, "run": {**found["run"], "lr": lr}}


def test_arms_are_compared_at_the_best_rate_with_enough_seeds():
    wanted = cells.one_epoch("finetuned")
    found = at_rates(2e-4, {1e-4: 3, 2e-4: 3})
    assert cells.chosen_rate(found, **wanted) == 2e-4
    assert "with worse ones on both sides" in sentences.edges(found)
    found = at_rates(5e-4, {2e-4: 3, 5e-4: 3})
    assert cells.chosen_rate(found, **wanted) == 5e-4
    assert "5e-4 is the best of three rates, and the highest" in sentences.edges(found)
    assert "5e-4 was added after strategies had run at 2e-4" in sentences.edges(found)
    assert tables.finetuned(found).count("| importance |") == 2  # what ran at 2e-4 is shown, too
    found = at_rates(5e-4, {2e-4: 3, 5e-4: 1})
    assert cells.chosen_rate(found, **wanted) == 2e-4
    assert "sentences on this page are about 2e-4" in sentences.edges(found)
    found = at_rates(5e-4, {})
    assert cells.chosen_rate(found, **wanted) == 5e-4
    assert "**0.500**" in tables.finetuned_rates(found)


def test_sentences_on_claims_follow_the_records():
    base = finetuned([0.30, 0.31, 0.29])
    assert "has not run" in sentences.claims(base)
    better = base + finetuned([0.33, 0.341, 0.321], "importance")
    told = sentences.claims(better)
    assert "all four estimates are above zero" in told
    assert "minority AP, Macro-AP, tuned Macro-F and tuned Micro-F hold." in told
    assert "from 0.29 to 0.31" in told
    worse = base + finetuned([0.27, 0.281, 0.259], "importance")
    told = sentences.claims(worse)
    assert "no estimate is above zero, and no interval lies above zero" in told
    assert "below zero" in told
    assert "none holds" in told
    few = base + finetuned([0.33, 0.34], "importance")
    assert "two seeds all four estimates are above zero, too few for intervals" in (
        sentences.claims(few)
    )


def test_the_advice_follows_the_records():
    plain = finetuned([0.30, 0.31, 0.29], loss="bce")
    same = finetuned([0.30, 0.312, 0.29], "importance", loss="bce")
    weak = finetuned([0.25, 0.26, 0.24]) + finetuned([0.27, 0.281, 0.259], "importance")
    told = sentences.opening(plain + same + weak)
    assert told.startswith(
        "**Start with plain BCE and random batches. If you use a weighted loss for about one epoch, "
        "draw by `importance`.**"
    )
    assert "With plain BCE, `importance` makes no measurable difference." in told
    assert "Other clear changes are of minority AP by -10.0% [" in told
    strong = finetuned([0.25, 0.26, 0.24]) + finetuned([0.37, 0.381, 0.359], "importance")
    told = sentences.opening(plain + same + strong)
    assert told.startswith("**Use a weighted loss and draw by `importance` in fine-tuning.**")
    harm = finetuned([0.25, 0.26, 0.24]) + finetuned([0.20, 0.211, 0.189], "importance")
    assert sentences.opening(plain + harm).startswith("**Start with random batches: ")
    moved = finetuned([0.33, 0.341, 0.319], "importance", loss="bce")
    assert "5 of 5 intervals of `importance` exclude zero" in sentences.opening(
        plain + moved + weak
    )


def test_what_did_not_run_is_said():
    told = sentences.not_run(finetuned([0.3]) + finetuned([0.3], "importance", epochs=2.0))
    assert "`balanced`, `minority`, `importance` and `balanced, corrected` with weighted" in told
    assert "all strategies with plain BCE and one epoch; `random`, `balanced`" in told
    everything = [
        record
        for arm in sentences.PLANNED
        for loss in ("bce", "weighted_bce")
        for epochs in (1.0, 2.0)
        for record in finetuned([0.3], arm, loss=loss, epochs=epochs)
    ]
    assert sentences.not_run(everything) == ""
    assert "Plain BCE, 2 epochs, 10,000 training rows" in tables.finetuned(everything)


def test_the_page_can_be_written_from_more_records_than_are_committed():
    more = [_at(each, 5e-4) for each in finetuned([0.6, 0.5, 0.4, 0.5, 0.45])]
    more += [_at(each, 5e-4) for each in finetuned([0.61, 0.5, 0.42, 0.5, 0.46], "importance")]
    for arm in sentences.PLANNED:
        more += finetuned([0.5, 0.4, 0.5], arm, loss="bce")
        more += finetuned([0.5, 0.4], arm, epochs=2.0)
        more += finetuned([0.5, 0.4], arm, loss="bce", epochs=2.0)
    text = page.page([*read(), *more])
    assert "<!--" not in text
    assert "nan" not in re.sub(r"\w*nan\w+|\w+nan\w*", "", text)
    assert "Weighted BCE, one epoch, 10,000 training rows, rate 5e-4:" in text
    assert "Weighted BCE, one epoch, 10,000 training rows, rate 2e-4:" in text
    assert "Weighted BCE, 2 epochs, 10,000 training rows, rate 2e-4:" in text
    assert "did not run" not in text


def test_no_number_of_a_run_is_typed_by_hand():
    # Percentages, decimals and rates come from the records; so do the sentences around them.
    words = re.sub(r"```.*?```", "", (page.HERE / "finetuning.md").read_text(), flags=re.DOTALL)
    typed = re.findall(r"\d+\.\d+|\d+%|(?<!\w)\.\d+|\de-\d", words)
    assert set(typed) == {"95%"}  # of every interval


def test_the_page_computes_nothing_itself():
    # As in test_reproduction.py; runs.py, variance.py and padding.py train and measure.
    arithmetic = {"groupby", "agg", "pivot", "pivot_table", "value_counts"}
    arithmetic |= {"mean", "median", "quantile", "rank", "std", "var", "sum", "corr", "ppf", "sf"}
    measure = {"runs.py", "variance.py", "padding.py"}
    for path in sorted(page.HERE.glob("*.py")):
        called = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert path.name in measure or not called & arithmetic, path.name


def test_the_committed_page_and_picture_follow_from_the_committed_records(tmp_path, monkeypatch):
    committed = {name: getattr(page, name) for name in ("PAGE", "PICTURE", "SCALE")}
    (tmp_path / page.SCALE.name).write_text(page.SCALE.read_text())
    for name, path in committed.items():
        monkeypatch.setattr(page, name, tmp_path / path.name)
    page.write()
    for path in committed.values():
        written = (tmp_path / path.name).read_text()
        assert written == path.read_text(), f"{path.name}: run `make reproduction`"
