"""Running a study: resuming, failing, crashing, forecasting."""

import json
import re
import shutil
from concurrent.futures import BrokenExecutor, Future
from dataclasses import replace

import pytest

from study_samples import Here, contents, run_here, tiny_file, tiny_study
from tailbatch.errors import ResultError, StudyError
from tailbatch.results import ResultStore, TrainingPlan
from tailbatch.study import run, run_study, runner
from tailbatch.study.sources import Forecast


def test_all_runs_are_done_and_kept(tiny, store):
    told = []
    outcome = run_here(tiny_study(tiny), store, listen=told.append)
    assert (outcome.done, outcome.skipped, outcome.failures) == (4, 0, ())
    assert len(store.frame("tiny")) == 4
    assert (told[-1].done, told[-1].total, told[-1].seconds_left) == (4, 4, 0)
    assert list((store.path / "checkpoints").iterdir()) == []


def test_resuming_skips_what_is_done(tiny, store, monkeypatch):
    run_here(tiny_study(tiny), store)
    before = contents(store)
    monkeypatch.setattr(runner, "_perform", None)
    outcome = run_here(tiny_study(tiny), store)
    assert (outcome.done, outcome.skipped) == (0, 4)
    assert contents(store) == before


def test_a_longer_study_does_only_the_new_runs(tiny, store):
    run_here(tiny_study(tiny), store)
    outcome = run_here(tiny_study(tiny, strategies=["random", "adaptive", "hard"]), store)
    assert (outcome.done, outcome.skipped) == (2, 4)


def test_a_damaged_record_is_set_aside_and_run_again(tiny, store, caplog):
    study = tiny_study(tiny)
    run_here(study, store)
    before = contents(store)
    path = next((store.path / "runs").glob("*.json"))
    path.write_text(path.read_text()[:-500])
    outcome = run_here(study, store)
    assert (outcome.done, outcome.skipped) == (1, 3)
    assert "is damaged" in caplog.text
    assert contents(store) == before


def test_what_a_killed_process_left_is_cleared_away(tiny, store):
    study = tiny_study(tiny)
    run_here(study, store)
    spec = store.study("tiny").specs[0]
    store.checkpoint(spec).write_text("it was killed between record and clearing away")
    run_here(study, store)
    assert not store.checkpoint(spec).exists()


def test_two_studies_share_a_store(tiny, store):
    run_here(tiny_study(tiny), store)
    other = tiny_study(tiny, name="other", strategies=["random", "hard"])
    outcome = run_here(other, store)
    assert (outcome.done, outcome.skipped) == (2, 2)
    assert (len(store.frame("tiny")), len(store.frame("other")), len(store.frame())) == (4, 4, 6)


def test_a_name_of_its_own_is_that_of_its_runs(tiny, store, tmp_path):
    def name(**changes):
        study = tiny_study(**{"path": tiny, "name": "compare", "folds": [0]} | changes)
        return run_here(study, store, own_name=True).plan.name

    plain = TrainingPlan(epochs=1, batch_size=16)
    first = name(plan=plain)
    assert re.fullmatch(r"compare-tiny-[0-9a-f]{8}", first)
    moved = tmp_path / "elsewhere" / "tiny.npz"
    moved.parent.mkdir()
    shutil.copy(tiny, moved)
    assert name(plan=plain, path=moved) == first, "where the data lies does not matter"
    assert name(plan=plain, strategies=["adaptive", "random"]) == first, "nor the order"
    other = tmp_path / "other"
    other.mkdir()
    names = [
        first,
        name(plan=replace(plain, lr=0.5)),
        name(plan=plain, path=tiny_file(other, n=100)),  # of the same name, with other content
        name(plan=plain, datasets=[str(tiny), str(tiny_file(other, name="more", n=80))]),
    ]
    assert names[3].startswith("compare-tiny-and-1-more-")
    assert sorted(names) == [plan.name for plan in store.studies()]


def test_any_file_name_gives_a_name(tiny, store, tmp_path):
    odd = shutil.copy(tiny, tmp_path / f"{'a (1) ü%' * 12}.npz")
    study = tiny_study(odd, name="compare", strategies=[])
    assert run_here(study, store, own_name=True).plan.name.startswith("compare-a-1-ü-a-1-ü")


def test_a_dataset_that_cannot_be_read_fails_its_runs_only(tiny, store, tmp_path):
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"no archive")
    study = tiny_study(tiny, datasets=[str(broken), str(tiny)])
    outcome = run_here(study, store)
    assert (outcome.done, len(outcome.failures)) == (4, 4)
    assert {failure.spec.dataset for failure in outcome.failures} == {"broken"}
    assert len(store.failures()) == 4
    tiny_file(tmp_path, name="broken", n=100)
    again = run_here(study, store)
    assert (again.done, again.skipped, again.failures) == (4, 4, ())
    assert len(store.frame("tiny")) == 8


def test_a_run_that_diverges_is_tried_twice_and_listed_while_the_rest_goes_on(tiny, store):
    plan = TrainingPlan(epochs=6, batch_size=16, lr=1e30, warm_up_epochs=0)
    bad = tiny_study(tiny, name="bad", plan=plan, folds=[0], strategies=["random"])
    outcome = run_here(bad, store)
    assert outcome.done == 0
    (failure,) = outcome.failures
    assert failure.attempts == 2
    assert "no longer a number" in failure.message
    assert "Traceback" in failure.traceback
    assert store.failures() == (failure,)


def test_a_failure_that_passes_is_made_good(tiny, store, monkeypatch):
    real, calls = runner._run_and_keep, []

    def fails_once(spec, *rest):
        calls.append(spec)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")
        real(spec, *rest)

    monkeypatch.setattr(runner, "_run_and_keep", fails_once)
    outcome = run_here(tiny_study(tiny), store)
    assert (outcome.done, outcome.failures, len(calls)) == (4, (), 5)
    assert calls[-1] == calls[0]  # at the end, after the others


@pytest.mark.parametrize("number", [28, 30])
def test_a_full_or_read_only_disk_stops_the_study(tiny, store, monkeypatch, number):
    calls = []

    def no_room(spec, *_):
        calls.append(spec)
        raise OSError(number, "no room")

    monkeypatch.setattr(runner, "_run_and_keep", no_room)
    with pytest.raises(StudyError, match="no room"):
        run_here(tiny_study(tiny), store)
    assert len(calls) == 1


def test_a_store_that_cannot_be_made_is_said_at_once(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        run_here(tiny_study(tiny), ResultStore(tmp_path / "file"))


def test_a_record_of_a_newer_version_stops_the_study_and_stays(tiny, store):
    run_here(tiny_study(tiny), store)
    path = next((store.path / "runs").glob("*.json"))
    path.write_text(json.dumps({"schema": 99}))
    with pytest.raises(ResultError, match="use that version"):
        run_here(tiny_study(tiny), store)
    assert path.exists()


def test_a_checkpoint_of_another_training_fails_once_and_is_dropped(tiny, store):
    study, other = tiny_study(tiny, folds=[0]), tiny_study(tiny, folds=[0], epochs=7)
    digest = study.sources[0].load().digest
    spec, foreign = study.specs({"tiny": digest})[0], other.specs({"tiny": digest})[0]
    run(foreign, source=study.sources[0], checkpoint=store.checkpoint(spec), checkpoint_every=2)
    assert store.checkpoint(spec).exists()
    outcome = run_here(study, store)
    assert (outcome.done, outcome.failures) == (2, ())


class Fragile(Here):
    """An executor whose workers die when they get one of the fatal runs."""

    fatal: tuple[str, ...] = ()
    handed: list = []  # noqa: RUF012 - emptied by the fixture
    deaths = 0
    patience = 100

    def submit(self, fn, job):
        Fragile.handed.append((job.spec.strategy, job.spec.fold))
        future = Future()
        if job.spec.strategy in self.fatal and Fragile.deaths < self.patience:
            Fragile.deaths += 1
            future.set_exception(BrokenExecutor("killed"))
            return future
        return super().submit(fn, job)


@pytest.fixture
def fragile(monkeypatch):
    monkeypatch.setattr(Fragile, "handed", [])
    monkeypatch.setattr(Fragile, "deaths", 0)
    return Fragile


def test_runs_whose_worker_died_are_done_again(tiny, store, fragile, monkeypatch):
    monkeypatch.setattr(fragile, "fatal", ("hard",))
    monkeypatch.setattr(fragile, "patience", 1)
    study = tiny_study(tiny, strategies=["random", "hard", "adaptive"])
    outcome = run_study(study, store, fragile, workers=2)
    assert (outcome.done, outcome.failures) == (6, ())


def test_a_run_that_kills_its_worker_fails_and_spares_the_others(tiny, store, fragile, monkeypatch):
    monkeypatch.setattr(fragile, "fatal", ("hard",))
    study = tiny_study(tiny, strategies=["random", "hard", "adaptive"])
    outcome = run_study(study, store, fragile, workers=3)
    assert outcome.done == 4
    assert {failure.spec.strategy for failure in outcome.failures} == {"hard"}
    assert "its worker process died" in outcome.failures[0].message


def test_a_run_under_way_elsewhere_is_left_for_last(tiny, store, fragile):
    study = tiny_study(tiny)
    run_here(study, ResultStore(store.path.parent / "plan"))
    first = ResultStore(store.path.parent / "plan").study("tiny").specs[0]
    store.note_epoch(first, 2)
    run_study(study, store, fragile, workers=1)
    assert fragile.handed[-1] == (first.strategy, first.fold)


def test_an_interrupted_run_is_handed_out_again(tiny, store, monkeypatch):
    real, calls = runner._run_and_keep, []

    def interrupted_once(spec, *rest):
        calls.append(spec)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(spec, *rest)

    monkeypatch.setattr(runner, "_run_and_keep", interrupted_once)
    outcome = run_here(tiny_study(tiny), store)
    assert (outcome.done, outcome.failures) == (4, ())
    assert calls[1] == calls[0]


def test_the_cheapest_runs_come_first(tiny, store, tmp_path):
    large = tiny_file(tmp_path, name="large", n=400)
    study = tiny_study(tiny, datasets=[str(large), str(tiny)], models=["dela", "mlp"])
    facts, _ = runner._look_up(study, store)
    specs = Forecast(facts).cheapest_first(study.specs({"tiny": "", "large": ""}))
    cells = list(dict.fromkeys((spec.dataset, spec.model) for spec in specs))
    assert cells == [("tiny", "mlp"), ("large", "mlp"), ("tiny", "dela"), ("large", "dela")]
    assert [spec.strategy for spec in specs[:2]] == ["random", "adaptive"]


def test_the_forecast_learns_each_cell_and_guesses_the_rest(tiny, store):
    study = tiny_study(tiny, models=["mlp", "dela"])
    facts, _ = runner._look_up(study, store)
    specs = study.specs({"tiny": ""})
    mlp = [spec for spec in specs if spec.model == "mlp"]
    dela = [spec for spec in specs if spec.model == "dela"]
    forecast = Forecast(facts)
    forecast.learn(mlp[0], 1.0)
    forecast.learn(mlp[1], 3.0)
    assert forecast.seconds(mlp) == 2.0 * len(mlp)
    assert forecast.seconds(dela) > forecast.seconds(mlp)
    forecast.learn(dela[0], 5.0)
    assert forecast.seconds(dela) == 5.0 * len(dela)


def test_a_model_that_ignores_the_losses_is_named_in_the_log(tiny, store, caplog):
    models = ["mlp", {"name": "logistic", "C": 1}]
    run_here(
        tiny_study(tiny, models=models, losses=["focal"], epochs=2, strategies=["random"]), store
    )
    assert "logistic takes no loss: losses apply to mlp" in caplog.text
