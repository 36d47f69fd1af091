"""The fine-tuning study: its runs, and a page that follows from the committed records."""

import json
from dataclasses import replace

import numpy as np
import pytest
from reproduction.finetune import page, runs
from reproduction.finetune.runs import ARMS, LAGS, STUDIES, Run, Store, planned

from tailbatch.data import MultiLabelDataset, Parts

RUN = Run(study="frozen", arm="random", loss="weighted_bce", epochs=1.0, lr=0.02, seed=0)


def record(run, value):
    return {
        "run": json.loads(json.dumps(vars(run))),
        "test": dict.fromkeys(page.METRICS, value),
        "validation": {"macro_average_precision": value},
    }


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
    assert found["test"].keys() >= page.METRICS.keys()
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
    change, seeds = page.change(records, "importance", "macro_auc", study="frozen")
    assert seeds == 2
    assert change.estimate == pytest.approx(0.46 / 0.42 - 1)
    assert page.change(records, "balanced", "macro_auc") is None


def test_the_committed_page_and_picture_follow_from_the_committed_records(tmp_path, monkeypatch):
    committed = {name: getattr(page, name) for name in ("PAGE", "PICTURE", "SCALE")}
    (tmp_path / page.SCALE.name).write_text(page.SCALE.read_text())
    for name, path in committed.items():
        monkeypatch.setattr(page, name, tmp_path / path.name)
    page.write()
    for path in committed.values():
        written = (tmp_path / path.name).read_text()
        assert written == path.read_text(), f"{path.name}: run `make reproduction`"
