"""Specs, records and the store of one file a run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.store_contract import StoreContract, make_record, make_spec
from tailbatch.errors import ResultError
from tailbatch.files import replacing
from tailbatch.results import (
    ResultStore,
    RunRecord,
    RunSpec,
    TrainingPlan,
    parse_pressure,
    pressure_text,
)

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
    # Stored runs are found by it: whoever changes a field's meaning raises SCHEMA.
    assert make_spec().digest == "d419ff7507a1e031ba482e31e2bf348f"


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


def test_a_newer_record_is_left_where_it_is(store):
    record = make_record()
    store.add(record)
    path = store.path / "runs" / f"{record.spec.digest}.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(ResultError, match=r"schema 99, this one reads 1\): upgrade tailbatch"):
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
    dead = store.path / "runs" / f".x-{'0' * 32}"
    dead.mkdir()
    (dead / "x.json").write_text("half a rec")
    with replacing(store.path / "runs" / "y.json") as living:
        living.write_text("{")
        store.tidy()
        assert living.exists()
        living.write_text("{}")
    assert not dead.exists()
    assert len(list((store.path / "runs").iterdir())) == 2
