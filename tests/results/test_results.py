"""Run specifications, records, and the store with one file per run."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.store_contract import StoreContract, make_record, make_spec
from tailbatch import files
from tailbatch.errors import ResultError, StudyError
from tailbatch.files import replacing
from tailbatch.models import MLP
from tailbatch.results import (
    ResultStore,
    RunRecord,
    RunSpec,
    TrainingPlan,
    parse_pressure,
    pressure_text,
)
from tailbatch.results.archive import open_records
from tailbatch.results.record import _seal
from tailbatch.study import Study, load_study

FINITE = st.floats(allow_nan=False, allow_infinity=False)
METRIC = st.dictionaries(st.text(min_size=1), FINITE | st.none(), max_size=4)


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")


class TestResultStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return ResultStore(tmp_path / "store")


@given(test=METRIC, validation=METRIC, seconds=FINITE, seed=st.integers(0, 2**70), label=st.text())
def test_writing_then_reading_gives_the_same_record(test, validation, seconds, seed, label):
    record = make_record(
        make_spec(seed=seed), test=test, validation=validation, seconds=seconds,
        labels=({"name": label},),
    )  # fmt: skip
    assert RunRecord.from_json(record.to_json()) == record


def test_nan_becomes_null():
    record = make_record(test={"macro_auc": float("nan")}, diagnostics={"shares": [float("inf")]})
    values = json.loads(record.to_json())
    assert values["test"]["macro_auc"] is None
    assert values["diagnostics"]["shares"] == [None]


def test_one_pressure_is_one_run_however_it_is_written():
    assert make_spec(selection_pressure=16).digest == make_spec(selection_pressure=16.0).digest
    assert (
        make_spec(selection_pressure=[64, 1]).digest
        == make_spec(selection_pressure=(64.0, 1.0)).digest
    )


def test_a_digest_does_not_change_between_versions():
    # Stored runs are looked up by it: changing the meaning of a field requires a new SCHEMA.
    assert make_spec().digest == "1e25b739fa3b2b74fbf435cae9242d7d"


def test_a_changed_default_neither_renames_a_run_nor_makes_it_another(monkeypatch):
    study = Study(name="try", datasets=["debtags"], models=["logistic", "mlp"], strategies=["balanced"],
                  losses=["focal"], folds=[0])  # fmt: skip
    before = study.specs({"debtags": "ab12"})
    monkeypatch.setattr(
        MLP.__init__, "__kwdefaults__", {**MLP.__init__.__kwdefaults__, "dropout": 0.4}
    )
    again = {
        "models": [{"name": "mlp", "dropout": 0.2}],
        "strategies": [{"name": "balanced", "power": 0.5}],
    }
    changed = replace(study, models=["mlp"]).specs({"debtags": "ab12"})
    given = replace(study, **again).specs({"debtags": "ab12"})
    assert changed[0].digest != before[1].digest == given[0].digest
    assert before[1].by_default["model"]["dropout"] == 0.2
    assert RunSpec.from_dict(before[1].to_dict()) == before[1]


def test_a_new_setting_that_is_off_leaves_runs_their_names(monkeypatch):
    study = Study(name="try", datasets=["debtags"], models=["mlp"], folds=[0])
    before, made = study.specs({"debtags": "ab12"}), MLP.__init__

    def init(self, n_features, n_labels, *, hidden=(512,), dropout=0.2, reduction="sum",
             prior_bias=True, norm=None, residual=False):  # fmt: skip
        made(self, n_features, n_labels, hidden=hidden)

    monkeypatch.setattr(MLP, "__init__", init)
    assert [s.digest for s in replace(study).specs({"debtags": "ab12"})] == [
        s.digest for s in before
    ]


def test_the_plan_is_not_part_of_a_run_without_batches():
    alone = {"model": "logistic", "strategy": "none", "selection_pressure": None}
    assert make_spec(**alone).digest == make_spec(**alone, plan=TrainingPlan(epochs=3)).digest
    assert make_spec().digest != make_spec(plan=TrainingPlan(epochs=3)).digest


def test_a_record_says_which_scaling_was_used(store):
    with pytest.raises(
        ResultError, match='a record says how features were scaled, got scale "auto"'
    ):
        store.add(make_record(make_spec(scale="auto")))
    study = Study(name="try", datasets=["debtags"], scale="auto", folds=[0])
    specs = study.specs({"debtags": "ab12"}, {("debtags", "full"): "tfidf"})
    assert {spec.scale for spec in specs} == {"tfidf"}
    named = replace(study, scale="tfidf").specs({"debtags": "ab12"})
    assert [spec.digest for spec in named] == [spec.digest for spec in specs]


def test_options_of_a_loss_need_a_loss():
    with pytest.raises(ResultError, match="loss_options need a loss, got"):
        make_spec(loss_options={"power": 1.0})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "linear"}, 'schedule must be "constant" or "cosine", got \'linear\''),
        ({"optimizer": "sgd"}, 'optimizer must be "adam" or "adamw" or "adam_mini", got \'sgd\''),
        ({"ema": 1.0}, "ema must lie between 0 and 1, got 1.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, got 0"),
        ({"warm_up_share": 1.0}, r"warm_up_share must be in \[0, 1\), got 1.0"),
        (
            {"schedule": "cosine", "scheduler": "StepLR"},
            "schedule=\"cosine\" already sets every rate, so scheduler='StepLR' cannot",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ResultError, match=message):
        TrainingPlan(**fields)


def test_steps_say_how_many_epochs_there_are():
    assert TrainingPlan(steps=100).n_epochs(1000) == 13
    assert TrainingPlan(steps=96).n_epochs(1000) == 12
    assert TrainingPlan(epochs=7).n_epochs(1000) == 7
    assert TrainingPlan(steps=3).n_epochs(5) == 3


@given(st.floats(1, 1e6) | st.tuples(st.integers(1, 999), st.integers(1, 999)))
def test_a_pressure_reads_as_it_is_written(pressure):
    written = pressure_text(pressure)
    assert pressure_text(parse_pressure(written)) == written


@pytest.mark.parametrize("text", ["", "0.5", "nan", "inf", "64:", "64:1:2", "64:0", "a:b"])
def test_a_pressure_that_is_none_is_refused(text):
    with pytest.raises(ResultError, match="selection pressure must be a number from 1"):
        parse_pressure(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_spec(fold=5), "fold must be below n_folds"),
        (lambda: make_spec(n_folds=1), "n_folds must be at least 2, got 1"),
        (lambda: make_spec(seed=-1), "seed must be at least 0"),
        (lambda: make_spec(code={"fold": "ab"}), 'code must be "model" or "loss" or "strategy"'),
        (lambda: TrainingPlan(lr=0), "lr must be above 0"),
        (lambda: TrainingPlan(selection_loss="mse"), 'selection_loss must be "bce" or "model"'),
        (lambda: TrainingPlan(epochs=5, sample_loss_epochs=(9,)), "between 1 and epochs"),
        (lambda: RunSpec.from_dict({"dataset": "a", "color": 1}), "RunSpec has no field 'color'"),
        (lambda: RunSpec.from_dict({"plan": 3}), "TrainingPlan must be a table of values, got int"),
    ],
)
def test_impossible_values_are_refused(make, message):
    with pytest.raises(ResultError, match=message):
        make()


DAMAGES = {
    "empty": lambda text: "",
    "cut in half": lambda text: text[: len(text) // 2],
    "not JSON": lambda text: "\x00" * 40,
    "not UTF-8": lambda text: b"\xff\xfe\xfa",
    "another type": lambda text: "[1]",
    "no schema": lambda text: text.replace('"schema"', '"scheme"'),
    "a wrong cell": lambda text: text.replace('"history": [', '"history": ["a", '),
    "no test": lambda text: text.replace('"test":', '"tset":'),
    "another run": lambda text: text.replace('"seed": 0', '"seed": 1'),
    "a changed digit": lambda text: text.replace("0.25", "0.26"),
    "no seal": lambda text: text[: text.rindex(',\n "digest"')] + "\n}\n",
    "too deep": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_is_reported_and_set_aside(store, caplog, damage):
    record, good = make_record(), make_record(make_spec(seed=7))
    store.add(record)
    store.add(good)
    path = store.path / "runs" / f"{record.spec.digest}.json"
    damaged = damage(path.read_text())
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    assert store.done() == {good.spec.digest}
    assert not store.has(record.spec)
    assert (store.path / "damaged" / path.name).exists()
    assert "is damaged" in caplog.text


def test_a_record_under_the_name_of_another_run_is_set_aside(store):
    record, other = make_record(), make_spec(seed=7)
    store.add(record)
    path = store.path / "runs" / f"{record.spec.digest}.json"
    path.rename(path.with_stem(other.digest))
    with pytest.raises(ResultError, match=f"holds another run \\({record.spec.digest}\\)"):
        store.get(other)
    assert store.done() == frozenset()
    assert list(store.records()) == []
    assert (store.path / "damaged" / f"{other.digest}.json").exists()


def test_arrays_are_written_again_if_the_folder_was_deleted_before_the_record(store, monkeypatch):
    record, arrays = make_record(), {"losses": np.arange(3.0)}

    def deleting(path, **settings):
        if path.suffix == ".json":
            path.with_suffix(".npz").unlink(missing_ok=True)
        return replacing(path, **settings)

    monkeypatch.setattr("tailbatch.results.store.replacing", deleting)
    store.add(record, arrays)
    assert store.arrays(record.spec)["losses"].tolist() == [0, 1, 2]


def special_files(folder):
    """Yield things that are not regular files, or are too large for what they claim to be."""
    os.mkfifo(folder / "pipe")
    (folder / "zeros").symlink_to("/dev/zero")
    with (folder / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    return [folder / name for name in ("pipe", "zeros", "sparse")]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", ["runs", "failures", "studies", "datasets"])
def test_only_regular_files_of_a_sensible_size_are_read(kind, place, store, tmp_path, caplog):
    path = store.path / kind / f"{make_spec().digest}.json"
    path.parent.mkdir(parents=True)
    special_files(tmp_path)[place].rename(path)
    assert (store.done(), list(store.records())) == (frozenset(), [])
    assert (store.failures(), store.studies(), store.datasets()) == ((), (), {})
    assert "not a regular file" in caplog.text or "larger than 64 MiB" in caplog.text
    assert (store.path / "damaged" / path.name).is_symlink() == (place == 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_study_files_archives_and_progress_are_regular_files(place, store, tmp_path):
    special = special_files(tmp_path)[place]
    study = special.rename(special.with_suffix(".toml"))
    with pytest.raises(StudyError, match=r"not a regular file|larger than 1 MiB"):
        load_study(str(study))
    if place < 2:
        with pytest.raises(ResultError, match="there is no store at"):
            open_records(study)
    spec = make_spec()
    sign = store.checkpoint(spec).with_suffix(".epoch")
    sign.parent.mkdir(parents=True)
    study.rename(sign)
    assert store.epochs_done(spec) == 0


@pytest.mark.parametrize("schema", [2, 99])
def test_a_record_of_another_version_is_left_where_it_is(schema, store):
    record = make_record()
    values = json.loads(record.to_json()) | {"schema": schema}
    path = store.path / "runs" / f"{record.spec.digest}.json"
    path.parent.mkdir(parents=True)
    plain = {key: value for key, value in values.items() if key not in ("digest", "checksum")}
    path.write_text(_seal(json.dumps(plain, indent=1, sort_keys=True) + "\n", record.spec.digest))
    for look in (store.frame, store.done):
        with pytest.raises(
            ResultError, match=rf"schema {schema}, this one reads 3\): use that version"
        ):
            look()
    assert path.exists()


def test_a_full_disk_is_said_clearly(store, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tailbatch.files.os.fsync", full)
    with pytest.raises(ResultError, match=r"cannot be written \(No space left on device\): free"):
        store.add(make_record())
    assert not store.has(make_spec())
    assert list((store.path / "runs").iterdir()) == []


def test_a_store_inside_a_file_is_said_clearly(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(ResultError, match="choose another folder"):
        ResultStore(tmp_path / "store").add(make_record())


def test_what_killed_writers_left_is_removed_and_nothing_else(store):
    store.add(make_record())
    dead = store.path / "runs" / f".tailbatch-{files._this_machine()}-{'0' * 32}"
    foreign = store.path / "runs" / f".x-{'0' * 32}"
    for folder in (dead, foreign):
        folder.mkdir()
        (folder / "x.json").write_text("half a rec")
    (dead / files._LOCK).touch()  # and no process holds it
    with replacing(store.path / "runs" / "y.json") as living:
        living.write_text("{")
        store.tidy()
        assert living.exists()
        living.write_text("{}")
    assert not dead.exists()
    assert (foreign / "x.json").exists()
    assert len(list((store.path / "runs").iterdir())) == 3
