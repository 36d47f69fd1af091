"""In any order of writes, kills and damage, a store contains what a dict would contain."""

import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.store_contract import make_record, make_spec
from tailbatch import files
from tailbatch.errors import ResultError
from tailbatch.files import replacing
from tailbatch.results import ResultStore, RunFailure

SPECS = [make_spec(seed=seed) for seed in range(4)]
HEX = "d41d8cd98f00b204e9800998ecf8427e"
WHICH = st.integers(0, len(SPECS) - 1)
DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a flipped bit": lambda content: content.replace(b"0.25", b"0.26"),
    "not text": lambda content: b"\xff\xfe" + content,
}
#: Steps taken by all machines of this process, for the promises page.
STEPS = {"rules": 0}


class AnyOrder(RuleBasedStateMachine):
    """Two writers of one folder, against a dict from digest to record."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stores = [ResultStore(self.folder / "store") for _ in range(2)]
        self.records, self.failures = {}, {}
        self.damaged = set()  # damaged files that have not been read since
        self.foreign = set()  # files of others
        self.writers = []  # live ones, in the middle of a file
        self.killed = set()  # folders of killed ones, not removed yet

    def teardown(self):
        for context, _ in self.writers:
            context.gen.close()
        shutil.rmtree(self.folder)

    @rule(who=st.integers(0, 1), which=WHICH, value=st.sampled_from([0.25, 0.5]))
    def add(self, who, which, value):
        STEPS["rules"] += 1
        spec = SPECS[which]
        record = make_record(spec, validation={"macro_f": 0.25}, test={"macro_f": value})
        self.stores[who].add(record, {"losses": np.full(3, value)})
        self.records[spec.digest] = record
        self.failures.pop(spec.digest, None)
        self.damaged.discard(spec.digest)

    @rule(who=st.integers(0, 1), which=WHICH)
    def fail(self, who, which):
        STEPS["rules"] += 1
        failure = RunFailure(spec=SPECS[which], message="diverged", attempts=2)
        self.stores[who].keep_failure(failure)
        self.failures[SPECS[which].digest] = failure

    @rule(which=WHICH)
    def begin_to_write(self, which):
        """A writer is in the middle of a file while everything else continues."""
        STEPS["rules"] += 1
        if len(self.writers) < 2:
            context = replacing(self.folder / "store" / "runs" / f"{SPECS[which].digest}.json")
            temporary = context.__enter__()
            temporary.write_text('{"half": ')
            self.writers.append((context, temporary))

    @precondition(lambda self: self.writers)
    @rule()
    def the_writer_gives_up(self):
        STEPS["rules"] += 1
        context, temporary = self.writers.pop()
        assert temporary.exists(), "a living writer's folder was swept away"
        assert not context.__exit__(RuntimeError, RuntimeError("given up"), None)
        assert not temporary.exists()

    @rule(which=WHICH, inside=st.booleans())
    def a_writer_is_killed(self, which, inside):
        """It leaves its folder behind, with a free lock and half a file."""
        STEPS["rules"] += 1
        runs = self.folder / "store" / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        left = runs / f".tailbatch-{files._this_machine()}-{uuid4().hex}"
        left.mkdir()
        (left / files._LOCK).touch()
        if inside:
            (left / f"{SPECS[which].digest}.json").write_text('{"half": ')
        self.killed.add(left)

    @precondition(lambda self: self.records)
    @rule(which=WHICH, damage=st.sampled_from(sorted(DAMAGES)))
    def damage(self, which, damage):
        STEPS["rules"] += 1
        digest = SPECS[which].digest
        if digest in self.records and digest not in self.damaged:
            path = self.folder / "store" / "runs" / f"{digest}.json"
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
            self.damaged.add(digest)

    @rule(who=st.integers(0, 1))
    def look_at_all(self, who):
        STEPS["rules"] += 1
        self._damaged_ones_are_gone()
        assert {each.spec.digest: each for each in self.stores[who].records()} == self.records
        assert self.stores[who].done() == self.records.keys()
        found = {each.spec.digest: each for each in self.stores[who].failures()}
        assert found == self.failures

    @rule(who=st.integers(0, 1))
    def tidy(self, who):
        STEPS["rules"] += 1
        self.stores[who].tidy()
        assert all(temporary.exists() for _, temporary in self.writers), "swept away"
        assert not [folder for folder in self.killed if folder.exists()], "left over"
        self.killed.clear()

    @rule(place=st.sampled_from(["notes", f".backup-{HEX}", f"runs/.backup-{HEX}"]))
    def keep_something_of_ones_own(self, place):
        STEPS["rules"] += 1
        path = self.folder / "store" / place / "thesis.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        self.foreign.add(path)

    @rule(who=st.integers(0, 1))
    def reopen(self, who):
        STEPS["rules"] += 1
        self.stores[who] = ResultStore(self.folder / "store")

    @invariant()
    def single_runs_are_what_they_should_be(self):
        for spec in SPECS:
            for store in self.stores:
                assert store.has(spec) == (spec.digest in self.records)
            if spec.digest in self.damaged:
                with pytest.raises(ResultError):
                    self.stores[0].get(spec)
            elif spec.digest in self.records:
                record = self.records[spec.digest]
                assert self.stores[0].get(spec) == record
                assert set(self.stores[1].arrays(spec)["losses"]) == {record.test["macro_f"]}

    @invariant()
    def what_is_not_ours_stays(self):
        assert all(path.read_text() == "mine" for path in self.foreign)

    def _damaged_ones_are_gone(self):
        """Forget the damaged records: reading all records moves them aside."""
        for digest in self.damaged:
            del self.records[digest]
        self.damaged.clear()


def test_any_order_gives_what_a_dict_gives():
    walk(examples=20, steps=20)


def everything_hidden(folder):
    for path in folder.glob(".*"):
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("sweep", "noticed"),
    [(lambda folder: None, "left over"), (everything_hidden, "swept away|thesis")],
)
def test_the_walk_notices_a_sweep_that_removes_too_little_or_too_much(sweep, noticed, monkeypatch):
    monkeypatch.setattr("tailbatch.results.store.sweep", sweep)
    with pytest.raises((AssertionError, OSError), match=noticed):
        walk(examples=20, steps=20, phases=[Phase.generate])


@pytest.mark.slow
def test_any_order_many_times(capsys):
    before = STEPS["rules"]
    walk(examples=60, steps=30)
    with capsys.disabled():
        print(f"\nstore: 60 walks, {STEPS['rules'] - before:,} steps, no difference")  # noqa: T201


def walk(*, examples, steps, phases=tuple(Phase)):
    machine = AnyOrder.TestCase
    machine.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
