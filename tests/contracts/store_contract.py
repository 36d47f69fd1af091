"""What every store of run records promises; an implementation inherits `StoreContract`."""

import os
import time

import numpy as np
import pandas as pd
import pytest

from tailbatch.errors import ResultError
from tailbatch.results import DatasetFacts, RunFailure, RunRecord, RunSpec, StudyPlan, TrainingPlan
from tailbatch.results.frames import read_store


def make_spec(**changes):
    return RunSpec(**{"dataset": "debtags", "dataset_digest": "ab12"} | changes)


def make_record(spec=None, **changes):
    values = {
        "spec": spec or make_spec(),
        "validation": {"macro_f": 0.25},
        "test": {"macro_f": 0.5, "macro_auc": None},
        "history": (
            {"number": 1, "steps": 4, "seconds": 0.1, "validation": {"macro_f": 0.2}},
            {"number": 2, "steps": 8, "seconds": 0.2, "validation": {"macro_f": 0.25}},
        ),
        "best_epoch": 2,
        "warm_up_digest": "cd34",
        "labels": ({"name": "rare", "positives": 3}, {"name": "common", "positives": 90}),
    }
    return RunRecord(**values | changes)


class StoreContract:
    """Override the fixture `store` with an empty store."""

    @pytest.fixture
    def store(self):
        raise NotImplementedError

    def test_what_is_added_comes_back(self, store):
        record = make_record()
        store.add(record, {"losses": np.arange(3.0)})
        assert store.has(record.spec)
        assert store.get(record.spec) == record
        assert store.arrays(record.spec)["losses"].tolist() == [0, 1, 2]

    def test_what_was_not_added_is_not_there(self, store):
        assert not store.has(make_spec())
        assert store.arrays(make_spec()) == {}
        assert store.done() == frozenset()
        assert store.frame().empty
        with pytest.raises(ResultError, match="not done yet"):
            store.get(make_spec())

    @pytest.mark.parametrize(
        "change",
        [
            {"dataset_digest": "ef56"},
            {"fold": 1},
            {"seed": 1},
            {"strategy": "hard"},
            {"selection_pressure": (64, 1)},
            {"hyperparameters": {"hidden": [8]}},
            {"plan": TrainingPlan(lr=1e-3)},
        ],
    )
    def test_another_spec_is_another_run(self, store, change):
        store.add(make_record())
        assert not store.has(make_spec(**change))

    def test_adding_twice_keeps_one_run(self, store):
        store.add(make_record())
        store.add(make_record())
        assert len(store.frame()) == 1

    def test_frame_has_one_row_a_run_with_plain_cells(self, store):
        store.add(
            make_record(make_spec(selection_pressure=(64, 1), hyperparameters={"hidden": [8]}))
        )
        store.add(make_record(make_spec(strategy="random", selection_pressure=None)))
        frame = store.frame()
        assert sorted(frame["selection_pressure"]) == ["", "64:1"]
        assert frame["macro_f"].tolist() == [0.5, 0.5]
        assert frame["validation_macro_f"].tolist() == [0.25, 0.25]
        assert set(frame["plan_epochs"]) == {100}
        assert '{"hidden": [8]}' in set(frame["hyperparameters"])
        assert len(frame.groupby(frame.columns.tolist(), dropna=False)) == 2

    def test_frame_survives_csv_and_parquet(self, store, tmp_path):
        store.add(make_record())
        frame = store.frame()
        frame.to_csv(tmp_path / "runs.csv", index=False)
        frame.to_parquet(tmp_path / "runs.parquet")
        assert pd.read_csv(tmp_path / "runs.csv")["macro_f"].tolist() == [0.5]
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "runs.parquet"), frame)

    def test_curves_and_labels_have_one_row_each(self, store):
        store.add(make_record())
        evidence = read_store(store)
        assert evidence.curves["validation_macro_f"].round(6).tolist() == [0.2, 0.25]
        assert evidence.labels["label"].tolist() == ["rare", "common"]
        assert set(evidence.curves["digest"]) == {make_spec().digest}

    def test_a_failure_is_kept_until_the_run_is_done(self, store):
        failure = RunFailure(spec=make_spec(), message="diverged", attempts=2)
        store.keep_failure(failure)
        assert store.failures() == (failure,)
        store.add(make_record())
        assert store.failures() == ()

    def test_two_studies_share_the_runs_they_both_want(self, store):
        shared, other = make_spec(), make_spec(seed=1)
        store.keep_study(StudyPlan(name="one", specs=(shared,), shows=("table-2",)))
        store.keep_study(StudyPlan(name="two", specs=(shared, other)))
        store.add(make_record(shared))
        store.add(make_record(other))
        assert [plan.name for plan in store.studies()] == ["one", "two"]
        assert store.study("one").shows == ("table-2",)
        assert (len(store.frame("one")), len(store.frame("two"))) == (1, 2)
        with pytest.raises(ResultError, match="has no study 'three'; it has: one, two"):
            store.frame("three")

    def test_facts_of_a_dataset_come_back(self, store):
        facts = DatasetFacts(
            name="mine", path="mine.arff", size=3, modified=7, digest="ab12", labels=[1, 2]
        )
        store.keep_dataset(facts, "0a" * 16)
        assert store.datasets() == {"0a" * 16: facts}

    @pytest.mark.parametrize(
        "key", ["key", "../../x", "/tmp/x", f"{'0a' * 16}/x", "0a" * 15 + "\x00a"]
    )
    def test_facts_are_kept_under_a_digest_only(self, store, key):
        facts = DatasetFacts(name="mine", path="", size=3, modified=7, digest="ab12")
        with pytest.raises(ResultError, match="the key of a dataset is 32 hexadecimal digits"):
            store.keep_dataset(facts, key)
        assert store.datasets() == {}

    def test_a_run_is_under_way_for_a_minute_after_its_last_sign_of_life(self, store):
        spec = make_spec()
        assert not store.is_under_way(spec)
        store.note_epoch(spec, 7)
        assert store.is_under_way(spec)
        (sign,) = (store.path / "checkpoints").glob("*.epoch")
        for seconds, is_under_way in ((30, True), (90, False)):
            then = time.time() - seconds
            os.utime(sign, (then, then))
            assert store.is_under_way(spec) == is_under_way

    def test_progress_is_known_until_it_is_forgotten(self, store):
        spec = make_spec()
        assert store.epochs_done(spec) == 0
        store.note_epoch(spec, 7)
        assert store.epochs_done(spec) == 7
        store.forget_progress(spec)
        assert store.epochs_done(spec) == 0
