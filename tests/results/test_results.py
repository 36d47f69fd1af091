"""Run specifications, records, and the store with one file per run."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.store_contract import StoreContract, make_record, make_spec
from tailbatch import files
from tailbatch.errors import ResultError, StudyError
from tailbatch.files import replacing
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
from tailbatch.results.schema import digest_of
from tailbatch.study import load_study, study_progress

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
    assert make_spec().digest == "36d39e2e52f1e7265a930768535388d6"


# What version 0.1 wrote: the spec as it stood in a record, and the digest it had.
SCHEMA_1 = {
    "dataset": "debtags", "dataset_digest": "ab12", "fold": 0, "hyperparameters": {}, "model": "mlp",
    "n_folds": 5, "preparation": "full", "seed": 0, "selection_pressure": 16.0,
    "strategy": "adaptive", "strategy_options": {},
    "plan": {
        "batch_size": 128, "best_by": "macro_auc", "early_stopping": None, "epochs": 100,
        "gradient_clip": None, "lr": 0.0001, "sample_loss_epochs": [], "scheduler": None,
        "scheduler_options": {}, "selection_loss": "bce", "training_loss_every": None,
        "warm_up_epochs": 3, "weight_decay": 0.0001,
    },
}  # fmt: skip
AVERAGED = {"reduction": "mean", "prior_bias": False}


def schema_1(**changes):
    return {**SCHEMA_1, **changes}


def old_text(spec):
    """A record as version 0.1 sealed it."""
    values = json.loads(make_record().to_json())
    del values["digest"], values["checksum"]
    text = json.dumps(values | {"schema": 1, "spec": spec}, indent=1, sort_keys=True) + "\n"
    return _seal(text, digest_of(spec, schema=1))


def test_the_digest_of_version_1_is_worked_out_again():
    assert digest_of(SCHEMA_1, schema=1) == "d419ff7507a1e031ba482e31e2bf348f"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"hyperparameters": AVERAGED}),
        (
            {"hyperparameters": {"objective": "weighted_bce", "hidden": [8]}},
            {"hyperparameters": {**AVERAGED, "hidden": [8]}, "loss": "weighted_bce"},
        ),
        ({"model": "dela"}, {"model": "dela"}),
        ({"model": "mpvae"}, {"model": "mpvae", "plan": TrainingPlan(lr=1e-3)}),
        (
            {"model": "mpvae", "plan": {**SCHEMA_1["plan"], "lr": 3e-4}},
            {"model": "mpvae", "plan": TrainingPlan(lr=3e-3)},
        ),
        (
            {"model": "mpvae", "hyperparameters": {"lr_ratio": 2.0, "latent": 8}},
            {"model": "mpvae", "hyperparameters": {"latent": 8}, "plan": TrainingPlan(lr=2e-4)},
        ),
    ],
)
def test_records_of_version_1_say_in_todays_words_what_was_run(store, old, new):
    spec, text = make_spec(**new), old_text(schema_1(**old))
    record = RunRecord.from_json(text)
    assert record.spec == spec
    assert record.spec.digest == spec.digest
    assert record.test == make_record().test
    # In a store it keeps its name, and is found under both names.
    path = store.path / "runs" / f"{record.spec.former_digest}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert store.done() == {spec.digest}
    assert list(store.records()) == [record]
    assert store.frame()["digest"].tolist() == [spec.digest]
    assert path.read_text() == text
    if "lr_ratio" not in old.get("hyperparameters", {}):  # which can no longer be requested
        assert spec.former_digest == path.stem
        assert store.has(spec)
        assert store.get(spec) == record
        np.savez(path.with_suffix(".npz"), losses=np.arange(3.0))
        assert store.arrays(spec)["losses"].tolist() == [0, 1, 2]
    # The seal it was written with reveals one changed digit.
    path.write_text(text.replace("0.25", "0.26"))
    assert store.done() == frozenset()


@pytest.mark.parametrize(
    "new",
    [
        {},  # the MLP of today sums over labels
        {"hyperparameters": AVERAGED, "loss": "focal"},
        {"hyperparameters": AVERAGED, "loss": "weighted_bce", "loss_options": {"power": 1.0}},
        {"model": "dela", "loss": "weighted_bce"},
    ],
)
def test_what_version_1_could_not_say_has_no_digest_of_it(new):
    assert make_spec(**new).former_digest is None


def test_studies_and_failures_of_version_1_are_read_in_todays_words(store):
    for kind, values in {
        "studies": {"name": "old", "specs": [schema_1(), schema_1(model="mpvae")]},
        "failures": {"spec": schema_1(model="dela"), "message": "diverged"},
    }.items():
        (store.path / kind).mkdir(parents=True)
        (store.path / kind / "old.json").write_text(json.dumps({"schema": 1, **values}))
    mlp, mpvae = store.study("old").specs
    assert (mlp.hyperparameters, mpvae.plan.lr) == (AVERAGED, 1e-3)
    assert store.failures()[0].spec.model == "dela"
    (store.path / "runs").mkdir()
    (store.path / "runs" / f"{mlp.former_digest}.json").write_text(old_text(schema_1()))
    assert len(list(store.records("old"))) == 1
    assert study_progress(store)["old"].done == 1


def test_a_failure_of_version_1_goes_with_the_success(store):
    spec = make_spec(model="dela")
    (store.path / "failures").mkdir(parents=True)
    text = json.dumps({"schema": 1, "spec": schema_1(model="dela"), "message": "diverged"})
    (store.path / "failures" / f"{spec.former_digest}.json").write_text(text)
    assert store.failures()[0].spec == spec
    store.add(make_record(spec))
    assert store.failures() == ()


def test_options_of_a_loss_need_a_loss():
    with pytest.raises(ResultError, match="loss_options need a loss, got"):
        make_spec(loss_options={"power": 1.0})


LATER = {
    "schedule": "cosine",
    "warm_up_share": 0.2,
    "optimizer": "adamw",
    "ema": 0.99,
    "steps": 500,
    "evaluate_every": 50,
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_field_of_the_plan_is_written_only_where_it_is_set(name):
    changed = make_spec(plan=TrainingPlan(**{name: LATER[name]}))
    assert name not in make_spec(plan=TrainingPlan()).to_dict()["plan"]
    assert changed.to_dict()["plan"][name] == LATER[name]
    assert RunSpec.from_dict(changed.to_dict()) == changed
    assert changed.digest != make_spec(plan=TrainingPlan()).digest


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


def test_a_newer_record_is_left_where_it_is(store):
    record = make_record()
    store.add(record)
    path = store.path / "runs" / f"{record.spec.digest}.json"
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 99'))
    with pytest.raises(ResultError, match=r"schema 99, this one reads 2\): upgrade tailbatch"):
        store.frame()
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
