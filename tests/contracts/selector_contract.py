"""What the base class of selectors decides, whatever the strategy; the tests of ours inherit it.

`tailbatch.testing.SelectorContract` holds what a strategy of one's own could break.
"""

from collections import deque

import numpy as np
import pytest

from tailbatch.errors import SelectionError, StaleSelectionError
from tailbatch.testing.selector_contract import (
    COPIES,
    B,
    N,
    SelectorContract,
    _drain,
    _same_state,
    _take_weights,
)


class WholeSelectorContract(SelectorContract):
    """Every guarantee of a selector, those of the base class included."""

    def test_losses_come_as_lists_arrays_and_per_label(self):
        selector = self.make()
        for step, index in enumerate(selector):
            losses = self.losses(index, step)
            if not self.per_label and step % 2:
                losses = np.stack([losses, losses], axis=1)
            _take_weights(selector)
            selector.observe(losses.tolist(), index=index.tolist())

    def test_losses_of_the_wrong_shape_change_nothing(self):
        selector = self.make()
        index = next(iterator := iter(selector))
        for losses in (
            [0.1],
            self.losses(index, 0)[:-1],
            np.zeros((B, 0)),
            np.zeros((B, 1, 1)),
            0.3,
        ):
            self.refused(selector, r"losses must have shape \(5,\) or \(5, n_labels\)", losses)
        del iterator

    def test_observing_before_drawing_or_twice_is_an_error(self):
        selector = self.make()
        self.refused(selector, "no batch is waiting for losses", [0.1] * B)
        index = next(iterator := iter(selector))
        _take_weights(selector)
        selector.observe(self.losses(index, 0))
        self.refused(selector, "no batch is waiting for losses", self.losses(index, 0))
        self.refused(selector, "is not pending", self.losses(index, 0), index)
        del iterator

    def test_an_index_that_was_never_drawn_is_an_error(self):
        selector = self.make()
        index = next(iterator := iter(selector))
        wrong = np.setdiff1d(np.arange(N), index)[:B]
        self.refused(selector, "is not pending", self.losses(wrong, 0), wrong)
        self.refused(selector, "is not pending", self.losses(index, 0), index[::-1])
        del iterator

    def test_reading_ahead_beyond_the_lag_says_what_to_do(self):
        selector = self.make(max_lag=1)
        iterator = iter(selector)
        first, second = next(iterator), next(iterator)
        if not selector.needs_losses:
            _take_weights(selector)
            for _ in iterator:
                _take_weights(selector)
            return
        with pytest.raises(StaleSelectionError, match=r"workers, prefetch.*max_lag=2"):
            next(iterator)
        _take_weights(selector)
        selector.observe(self.losses(second, 0), index=second)
        selector.observe(self.losses(first, 0))
        assert selector.diagnostics().lag == 1

    def test_losses_without_an_index_belong_to_the_oldest_batch(self):
        plain, named = self.make(max_lag=2), self.make(max_lag=2)
        for selector in (plain, named):
            source, ahead, step = iter(selector), deque(), 0
            while True:
                while len(ahead) <= 2 and (batch := next(source, None)) is not None:
                    ahead.append(batch)
                if not ahead:
                    break
                batch, step = ahead.popleft(), step + 1
                losses = self.losses(batch, step)
                if selector is plain:
                    selector.mean(losses)
                    selector.observe(losses)
                else:
                    selector.mean(losses, batch)
                    selector.observe(losses, batch)
        assert _same_state(plain.state_dict(), named.state_dict())

    def test_leaving_early_drops_what_is_pending(self):
        selector = self.make(max_lag=2)
        for step, _ in enumerate(selector):
            if step == 1:
                break
        assert len(_drain(selector, self.losses)) == len(selector)
        assert selector.epoch == 2
        assert selector.diagnostics().dropped_batches == (2 if selector.needs_losses else 0)

    def test_a_second_live_iterator_is_an_error(self):
        selector = self.make(max_lag=4)
        first = iter(selector)
        next(first)
        with pytest.raises(SelectionError, match="another iterator"):
            next(iter(selector))
        _take_weights(selector)
        next(first)
        selector.set_epoch(7)
        with pytest.raises(SelectionError, match="this iterator has ended"):
            next(first)

    def test_a_loaded_state_says_how_many_batches_are_left(self):
        before, after = self.make(max_lag=1), self.make(max_lag=1)
        assert before.batches_left == len(before)
        iterator = iter(before)
        first, second = next(iterator), next(iterator)
        _take_weights(before)
        before.observe(self.losses(first, 0), index=first)
        after.load_state_dict(before.state_dict())
        left = after.batches_left
        assert left == len(after) - 1, "the one that waits for its losses is handed out again"
        resumed = iter(after)
        assert next(resumed).tolist() == second.tolist()
        del resumed
        after.load_state_dict(before.state_dict())
        assert len(_drain(after, self.losses)) == left
        assert after.batches_left == len(after)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("strategy", "other"),
            ("n_samples", N + 1),
            ("batch_size", 7),
            ("seed", 9),
        ],
    )
    def test_a_state_of_another_selector_is_refused(self, key, value):
        selector = self.make()
        _drain(selector, self.losses)
        before = selector.state_dict()
        message = f"saved with {key} {value}, this selector has {before[key]}"
        with pytest.raises(SelectionError, match=message):
            selector.load_state_dict({**before, key: value})
        for missing in before:
            partial = {name: entry for name, entry in before.items() if name != missing}
            with pytest.raises(SelectionError, match=r"the saved state (lacks|does not say its)"):
                selector.load_state_dict(partial)
        with pytest.raises(SelectionError, match="times_drawn"):
            selector.load_state_dict({**before, "times_drawn": np.zeros(3)})
        beyond = np.full(len(before["times_drawn"]), 2**40)  # would wrap around
        with pytest.raises(SelectionError, match="times_drawn"):
            selector.load_state_dict({**before, "times_drawn": beyond})
        assert _same_state(before, selector.state_dict())

    def test_a_state_of_another_version_is_refused(self):
        selector = self.make()
        other = {**selector.state_dict(), "version": 1}
        with pytest.raises(SelectionError, match=r"of version 1, this package reads .*start again"):
            selector.load_state_dict(other)

    @pytest.mark.parametrize("settings", [None, 3, "", "[]", "{", "[" * 100_000, '{"power": [1]}'])
    def test_a_state_with_unreadable_settings_is_refused(self, settings):
        selector = self.make()
        before = selector.state_dict()
        with pytest.raises(SelectionError, match=r"does not say its 'settings'|saved with"):
            selector.load_state_dict({**before, "settings": settings})
        assert _same_state(before, selector.state_dict())

    def test_what_only_allows_or_is_looked_at_may_differ(self):
        before, after = self.make(), self.make(max_lag=3, labels=np.ones((N, 2), bool))
        done = _drain(before, self.losses)
        after.load_state_dict(before.state_dict())
        more = [_drain(selector, self.losses) for selector in (before, after)]
        assert done != more[0] == more[1]

    def test_saving_looks_at_the_settings_once(self, monkeypatch):
        calls = []
        monkeypatch.setattr(
            "tailbatch.selection.record._digest_of",
            lambda *values: calls.append(values) or "0" * 32,
        )
        selector = self.make()
        selector.state_dict()
        once = len(calls)
        _drain(selector, self.losses)
        selector.state_dict()
        assert len(calls) == once

    @pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
    def test_a_copy_made_between_epochs_begins_the_next_one(self, copied):
        selector = self.make()
        for _epoch in range(2):
            _drain(selector, self.losses)
            other = copied(selector)
            assert _same_state(selector.state_dict(), other.state_dict())
            for _ in selector:  # left early: both start the next epoch
                break
            left = copied(selector)
            assert _drain(copied(left), self.losses) == _drain(selector, self.losses)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"batch_size": 0}, "batch_size must be a whole number from 1, got 0"),
            ({"batch_size": -3}, "batch_size must be a whole number from 1, got -3"),
            ({"batch_size": 2.5}, "batch_size must be a whole number from 1, got 2.5"),
            ({"seed": -1}, "seed must be a whole number from 0, got -1"),
            ({"max_lag": -1}, "max_lag must be a whole number from 0, got -1"),
            ({"labels": np.ones((3, 2), bool)}, "one row for each of the 23 samples, got 3"),
            ({"labels": np.ones((0, 2), bool)}, "at least one row and one column"),
            ({"labels": [[2, 0]] * N}, "labels must be 0 or 1, got 2 in row 0, label column 0"),
        ],
    )
    def test_unusable_settings_say_so(self, settings, message):
        with pytest.raises(SelectionError, match=message):
            self.make(**settings)
