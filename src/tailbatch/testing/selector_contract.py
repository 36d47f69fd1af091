"""What every selector guarantees, whatever its strategy; the tests of each inherit this class."""

import copy
import io
import pickle
from collections import deque

import numpy as np
import pytest
import torch

from tailbatch.errors import SelectionError

N, B = 23, 5


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda selector: pickle.loads(pickle.dumps(selector)),  # noqa: S301
}


class _Cut(Exception):
    """The power fails."""


def _same_state(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def _take_weights(selector):
    """Do what a loop that trains on ``selector.mean(losses)`` does."""
    for batch in selector._pending:
        selector.importance_weights(batch.index)


def _drain(selector, losses_of, epochs=1):
    """Run epochs of a plain loop and return their batches."""
    batches = []
    for _ in range(epochs):
        for index in selector:
            batches.append(index.tolist())
            _take_weights(selector)
            selector.observe(losses_of(index, len(batches)))
    return batches


def _read_ahead(selector, losses_of, *, lag, epochs, done=(), events=None, at=None):
    """Run a loop behind a loader that reads `lag` batches ahead, until `events` have happened.

    `at` is an event and what to call then, with the batches trained so far.
    """
    done = list(done)
    happened = [0]

    def event():
        happened[0] += 1
        if at is not None and happened[0] == at[0]:
            at[1](done)
        if happened[0] == events:
            raise _Cut

    try:
        while selector.epoch < epochs:
            source, ahead = iter(selector), deque()
            while True:
                while len(ahead) <= lag and (batch := next(source, None)) is not None:
                    ahead.append(batch)
                    event()
                if not ahead:
                    break
                batch = ahead.popleft()
                _take_weights(selector)
                selector.observe(losses_of(batch, len(done)), index=batch)
                done.append(batch.tolist())
                event()
    except _Cut:
        pass
    return done


class SelectorContract:
    """Define `make`; set `per_label` if the strategy needs the loss of each label.

    Set `repeats` if a sample may be in a batch twice, which comes with weights that must be used.
    Set `history_bytes` if it remembers more than a score for each sample.
    """

    per_label = False
    full_batches = False
    repeats = False
    history_bytes = 0

    def make(self, n=N, **settings):
        raise NotImplementedError

    def losses(self, index, step):
        """Losses that depend on the sample and on time, with ties."""
        losses = (np.asarray(index) * 37 + step * 11) % 17 / 10
        return np.stack([losses, losses / 2, losses + 1], axis=1) if self.per_label else losses

    # ---- epochs ----

    @pytest.mark.parametrize(("n", "b"), [(23, 5), (20, 5), (1, 1), (3, 8), (1, 4), (200, 3)])
    def test_an_epoch_is_n_draws_in_batches_of_distinct_samples(self, n, b):
        selector = self.make(n, batch_size=b)
        batches = _drain(selector, self.losses, epochs=2)
        assert len(batches) == 2 * len(selector) == 2 * -(-n // b)
        if not self.full_batches:
            assert sum(map(len, batches)) == 2 * n
        assert self.repeats or all(len(set(batch)) == len(batch) for batch in batches)
        assert all(0 <= i < n for batch in batches for i in batch)
        assert selector.epoch == 2

    def test_batches_are_fresh_integer_arrays(self):
        selector = self.make()
        iterator = iter(selector)
        batch = next(iterator)
        assert batch.dtype == np.int64
        kept = batch.copy()
        batch[:] = -1  # callers may change their batch
        _take_weights(selector)
        selector.observe(self.losses(kept, 0), index=kept)

    def test_the_seed_decides(self):
        first = _drain(self.make(), self.losses, epochs=3)
        assert first == _drain(self.make(), self.losses, epochs=3)
        assert first != _drain(self.make(seed=1), self.losses, epochs=3)

    def test_the_hosts_random_state_is_left_alone(self):
        before = np.random.get_state()[1].copy()
        _drain(self.make(), self.losses)
        assert np.array_equal(before, np.random.get_state()[1])

    def test_looking_changes_nothing(self):
        watched, batches = self.make(), []
        for index in watched:
            _take_weights(watched)
            watched.observe(self.losses(index, len(batches) + 1))
            batches.append(index.tolist())
            watched.diagnostics(), watched.probabilities(), watched.state_dict(), watched.digest()
        assert batches == _drain(self.make(), self.losses)

    def test_probabilities_are_positive_and_sum_to_one(self):
        selector = self.make()
        for _ in range(3):
            p = selector.probabilities()
            assert p.shape == (N,)
            assert (p > 0).all()
            assert p.sum() == pytest.approx(1)
            _drain(selector, self.losses)

    def test_diagnostics(self):
        selector = self.make()
        _drain(selector, self.losses)
        report = selector.diagnostics()
        assert 1 <= report.effective_sample_size <= N + 1e-9
        assert report.effective_pressure >= 1
        assert 0 < report.distinct_share <= 1
        assert report.seconds > 0
        assert (report.epoch, report.lag, report.dropped_batches) == (1, 0, 0)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -0.5])
    def test_unusable_losses_name_their_sample_and_change_nothing(self, value):
        selector = self.make()
        index = next(iterator := iter(selector))
        losses = self.losses(index, 0)
        losses[2] = value
        self.refused(selector, rf"loss of sample {index[2]} is {value}", losses)
        del iterator

    def refused(self, selector, message, losses, index=None):
        before = selector.state_dict()
        _take_weights(selector)
        with pytest.raises(SelectionError, match=message):
            selector.observe(losses, index)
        assert _same_state(before, selector.state_dict())

    def test_set_epoch_repeats_an_epochs_stream(self):
        one, other = self.make(), self.make()
        one.set_epoch(4)
        assert one.epoch == 4
        next(iter(one))
        other.set_epoch(4)
        assert next(iter(other)).tolist() == next(iter(self.at_epoch(4))).tolist()
        with pytest.raises(SelectionError, match="epoch must be a whole number"):
            one.set_epoch(-1)

    def at_epoch(self, epoch):
        selector = self.make()
        selector.set_epoch(epoch)
        return selector

    # ---- state ----

    @pytest.mark.parametrize("lag", [0, 1, 2, 4])
    def test_continuing_from_any_point_gives_the_same_batches(self, lag):
        settings = {"lag": lag, "epochs": 3}
        whole = _read_ahead(self.make(max_lag=lag), self.losses, **settings)
        events = 2 * len(whole)
        for cut in range(1, events):
            before = self.make(max_lag=lag)
            done = _read_ahead(before, self.losses, events=cut, **settings)
            after = self.make(max_lag=lag)
            after.load_state_dict(copy.deepcopy(before.state_dict()))
            assert _read_ahead(after, self.losses, done=done, **settings) == whole, cut

    def test_a_saved_state_does_not_change_any_more(self):
        selector = self.make()
        state = selector.state_dict()
        kept = copy.deepcopy(state)
        _drain(selector, self.losses)
        assert _same_state(state, kept)

    def test_a_state_is_small_plain_and_loads_as_lists(self):
        selector = self.make()
        next(iter(selector))
        state = selector.state_dict()
        arrays = [value for value in state.values() if not isinstance(value, int | str)]
        assert all(isinstance(value, np.ndarray | torch.Tensor) for value in arrays)
        assert sum(value.nbytes for value in arrays) <= (
            (12 + self.history_bytes) * N
            + 8 * (B + 1)
            + 8
            + (8 * N if "held" in state else 0)
            + (8 * (B + 4) if self.repeats else 0)
        )
        other = self.make()
        other.load_state_dict(
            {
                key: value.tolist() if hasattr(value, "tolist") else value
                for key, value in state.items()
            }
        )
        assert _same_state(state, other.state_dict())

    def test_torch_saves_and_loads_a_state_by_default(self):
        before, after = self.make(max_lag=1), self.make(max_lag=1)
        next(iter(before))
        _take_weights(before)
        file = io.BytesIO()
        torch.save({"selector": before.state_dict()}, file)
        file.seek(0)
        after.load_state_dict(torch.load(file)["selector"])
        assert _same_state(before.state_dict(), after.state_dict())
        assert before.digest() == after.digest()

    # ---- copies ----

    @pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
    @pytest.mark.parametrize("lag", [0, 2])
    def test_a_copy_goes_on_where_the_original_stands(self, lag, copied):
        whole = _read_ahead(self.make(max_lag=lag), self.losses, lag=lag, epochs=3)
        for cut in range(1, 2 * len(whole)):
            original = self.make(max_lag=lag)
            # The loop keeps its iterator alive, and the copy is made inside the loop.
            copies = []

            def keep(trained, original=original, copies=copies):
                copies.append((copied(original), list(trained)))

            settings = {"lag": lag, "epochs": 3}
            assert _read_ahead(original, self.losses, at=(cut, keep), **settings) == whole
            ((other, trained),) = copies
            assert _read_ahead(other, self.losses, done=trained, **settings) == whole, cut

    @pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
    def test_a_copy_and_its_original_do_not_disturb_each_other(self, copied):
        original, untouched = self.make(max_lag=1), self.make(max_lag=1)
        iterator, expected = iter(original), iter(untouched)
        for step in range(2):
            index = next(iterator)
            assert index.tolist() == next(expected).tolist()
            _take_weights(original), _take_weights(untouched)
            if step == 0:
                original.observe(self.losses(index, 0))
                untouched.observe(self.losses(index, 0))
        other = copied(original)
        assert other.batches_left == len(other) - 1
        _drain(other, self.losses, epochs=2)
        assert _same_state(original.state_dict(), untouched.state_dict())
        original.observe(self.losses(index, 1))
        untouched.observe(self.losses(index, 1))
        assert next(iterator).tolist() == next(expected).tolist()

    def test_equal_selectors_have_equal_digests(self):
        assert self.make().digest() == self.make().digest()
        assert self.make().digest() != self.make(seed=1).digest()
