"""Whatever the order of draws, losses, copies and saves: a selector does what a naive model does.

The model keeps no law and no arrays: it is the list of all that ever happened to the selector, told
again to a fresh one for each question, and plain lists for what is pending and what is left.
"""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.selection import STRATEGIES, make_selector
from tailbatch.testing.selector_contract import _take_weights

N, B, LAG = 7, 3, 2
Y = np.stack([np.arange(N) % 2 == 0, np.arange(N) % 3 == 0, np.arange(N) == 4], axis=1)
LENGTH = -(-N // B)
#: Strategies that also draw otherwise, each with its correction.
WAYS = {"corrected": {"corrected": True}, "gradient": {"score": "gradient"}}
CASES = [
    *STRATEGIES,
    *(f"{each} corrected" for each in ("balanced", "hard", "adaptive", "minority")),
    "importance gradient",
]
#: Steps taken by all machines of this process, for the promises page.
STEPS = {"rules": 0}


def make(strategy):
    strategy, _, way = strategy.partition(" ")
    options = {"weights": 1.0} if strategy in ("adaptive", "chain") else {}
    options |= WAYS.get(way, {})
    if strategy == "d2ace":
        options["X"] = np.arange(len(Y))[:, None] % 7
    return make_selector(
        strategy, Y, batch_size=B, warm_up_epochs=1, max_lag=LAG, epochs=4, **options
    )


def losses_of(index, salt):
    return np.outer(1 + (np.asarray(index) * 5 + salt) % 7, [0.1, 0.2, 0.3])


class Model:
    """A selector in plain lists: where it stands, what is pending, and the scores' history."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.needs_losses = make(strategy).needs_losses
        self.epoch, self.number, self.under_way, self.resuming = 0, 0, False, False
        self.pending, self.heard = [], False
        self.again = []  # pending batches of a loaded state that are still to be handed out
        self.events = []  # ("epoch", e) and ("losses", index, salt): all that a law can know

    def drawn(self):
        """Draw the next batch with a fresh selector that is told the whole history."""
        fresh = make(self.strategy)
        for kind, *rest in self.events:
            if kind == "epoch":
                if rest[0] >= fresh.warm_up_epochs:
                    fresh._start_epoch(rest[0] - fresh.warm_up_epochs)
            else:
                fresh._learn(losses_of(*rest), np.array(rest[0]))
        return fresh._drawn(self.epoch, self.number).index.tolist()

    def begin(self):
        if self.resuming:
            self.resuming, self.again = False, list(self.pending)
            return
        if self.under_way:
            self.epoch += 1
        elif self.needs_losses and len(self.pending) > LAG:
            raise StaleSelectionError
        self.pending, self.again = [], []
        self.number, self.under_way = 0, True
        self.events.append(("epoch", self.epoch))

    def next(self):
        """Return the next batch, None at the end of the epoch."""
        while self.again:
            batch = self.again.pop(0)
            if any(batch is other for other in self.pending):
                return batch[1]
        if self.number == LENGTH:
            self.epoch, self.number, self.under_way = self.epoch + 1, 0, False
            return None
        if self.needs_losses and len(self.pending) > LAG:
            raise StaleSelectionError
        if not self.needs_losses:
            del self.pending[: max(len(self.pending) - LAG, 0)]
        self.pending.append((self.epoch, self.drawn()))
        self.number += 1
        return self.pending[-1][1]

    def observe(self, place, salt):
        (_, index) = self.pending.pop(place)
        self.events.append(("losses", index, salt))
        self.heard = True

    def set_epoch(self, epoch):
        if epoch == self.epoch and (self.resuming or not self.under_way):
            return False
        if self.under_way:
            self.pending = []
        self.epoch, self.number, self.under_way, self.resuming = epoch, 0, False, False
        return True

    def loaded(self, *, heard):
        """Return what goes on from a state saved now."""
        other = copy.deepcopy(self)
        wanted = self.pending and (self.needs_losses or self.heard)
        if wanted and not self.under_way and self.pending[0][0] == self.epoch - 1:
            other.epoch, other.number, other.under_way = self.epoch - 1, LENGTH, True
        other.resuming, other.again, other.heard = other.under_way, [], heard
        other.pending = [(other.epoch, index) for _, index in other.pending]
        return other

    def copied(self, *, live):
        """Return what a copy does: as loaded while an iterator lives, else as the original."""
        other = self.loaded(heard=self.heard)
        return other if live or other.epoch < self.epoch else copy.deepcopy(self)


class AnyOrder(RuleBasedStateMachine):
    """Random walks over all that one may do with a selector."""

    strategy = "adaptive"

    def __init__(self):
        super().__init__()
        self.selector, self.model = make(self.strategy), Model(self.strategy)
        self.iterator, self.begun = None, False
        self.saved = []

    @rule()
    def draw(self):
        STEPS["rules"] += 1
        _take_weights(self.selector)
        if self.iterator is None:
            self.iterator, self.begun = iter(self.selector), False
        try:
            if not self.begun:
                self.model.begin()
                self.begun = True
            expected = self.model.next()
        except StaleSelectionError:
            with pytest.raises(StaleSelectionError):
                next(self.iterator)
            self.iterator = None  # an iterator that has raised is over
            return
        found = next(self.iterator, None)
        assert (None if found is None else found.tolist()) == expected
        if expected is None:
            self.iterator = None

    @precondition(lambda self: self.model.pending)
    @rule(place=st.integers(0, LAG), salt=st.integers(0, 6))
    def observe(self, place, salt):
        STEPS["rules"] += 1
        place = min(place, len(self.model.pending) - 1)
        index = self.model.pending[place][1]
        _take_weights(self.selector)
        self.selector.observe(losses_of(index, salt), index)
        # Equal batches are the same to the selector, which takes the first.
        place = [each for _, each in self.model.pending].index(index)
        self.model.observe(place, salt)

    @rule()
    def observe_what_is_not_pending(self):
        with pytest.raises(SelectionError):
            self.selector.observe(losses_of([0, 0], 0), [0, 0])

    @rule()
    def leave_early(self):
        STEPS["rules"] += 1
        if self.iterator is not None:
            self.iterator.close()
        self.iterator = None

    @rule(epoch=st.integers(0, 4))
    def set_epoch(self, epoch):
        STEPS["rules"] += 1
        self.selector.set_epoch(epoch)
        if self.model.set_epoch(epoch):
            self.iterator = None

    @rule()
    def save(self):
        STEPS["rules"] += 1
        self.saved.append((self.selector.state_dict(), self.model.loaded(heard=False)))

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 9), fresh=st.booleans())
    def load(self, which, fresh):
        STEPS["rules"] += 1
        state, model = self.saved[which % len(self.saved)]
        heard = self.model.heard and not fresh
        if fresh:
            self.selector = make(self.strategy)
        self.selector.load_state_dict(state)
        self.model, self.iterator = copy.deepcopy(model), None
        self.model.heard = heard

    @rule(pickled=st.booleans(), follow=st.booleans())
    def copy(self, pickled, follow):
        STEPS["rules"] += 1
        live = self.selector._iterator is not None
        other = (
            pickle.loads(pickle.dumps(self.selector))  # noqa: S301
            if pickled
            else copy.deepcopy(self.selector)
        )
        if follow:
            self.selector, self.model = other, self.model.copied(live=live)
            self.iterator = None

    @invariant()
    def stands_where_the_model_stands(self):
        state = self.selector.state_dict()
        cuts = np.cumsum(state["pending_sizes"])[:-1]
        pending = [part.tolist() for part in np.split(state["pending"], cuts)]
        assert pending[: len(state["pending_sizes"])] == [each for _, each in self.model.pending]
        assert self.selector.epoch == self.model.epoch
        assert len(self.selector._pending) == len(self.model.pending)


@pytest.mark.parametrize("strategy", CASES)
def test_any_order_gives_what_the_model_gives(strategy):
    walk(strategy, examples=15, steps=30)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", CASES)
def test_any_order_many_times(strategy, capsys):
    before = STEPS["rules"]
    walk(strategy, examples=100, steps=60)
    with capsys.disabled():
        print(f"\n{strategy}: 100 walks, {STEPS['rules'] - before:,} steps, no difference")  # noqa: T201


def walk(strategy, *, examples, steps):
    machine = type(
        f"AnyOrder_{strategy}".replace(" ", "_"), (AnyOrder,), {"strategy": strategy}
    ).TestCase
    machine.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
