"""A state saved with other settings is refused, by name and with both values, and changes nothing."""

import functools
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from tailbatch.errors import SelectionError
from tailbatch.selection import (
    AdaptiveSelector,
    BalancedSelector,
    ChainSelector,
    Geometric,
    HardSelector,
    LossDrivenSelector,
    MinoritySelector,
    QuantizationLaw,
    RandomSelector,
    RankLaw,
    UniformSelector,
    make_selector,
    mean_loss,
)
from tailbatch.testing.selector_contract import _drain, _same_state

N, B = 23, 5
Y = np.stack([np.arange(N) % 2 == 0, np.arange(N) % 3 == 0, np.arange(N) % 11 == 0], axis=1)
OTHER_Y = Y[::-1]
WEIGHTS = 1.0 + np.arange(N) % 3


def worst_label(losses, index):
    return losses.max(axis=1)


@dataclass(frozen=True)
class Shifted:
    """A score with a setting."""

    by: float

    def __call__(self, losses, index):
        return mean_loss(losses, index) + self.by


class Stepped:
    """A pressure schedule of one's own, which is no dataclass."""

    def __init__(self, first):
        self.first = first

    def __call__(self, epoch, epochs):
        return self.first if epoch == 0 else 1.0


def times(factor, losses, index):
    return factor * mean_loss(losses, index)


def own(score=mean_loss, law=RankLaw, pressure=16, **options):
    law = law() if isinstance(law, type) else law
    return LossDrivenSelector(
        N, score=score, law=law, selection_pressure=pressure, batch_size=B, **options
    )


def adaptive(weights=WEIGHTS, **options):
    return AdaptiveSelector(weights, batch_size=B, **options)


def hard(**options):
    return HardSelector(N, batch_size=B, **options)


def minority(Y=Y, **options):
    return MinoritySelector(Y, batch_size=B, **options)


def warm(epochs=1, shuffle=True, **options):
    return hard(warm_up_epochs=epochs, shuffle=shuffle, **options)


CASES = {
    "shuffle": (
        lambda: RandomSelector(N, batch_size=B),
        lambda: RandomSelector(N, batch_size=B, shuffle=False),
        "shuffle True, this selector has False",
    ),
    "full_batches": (
        lambda: UniformSelector(N, batch_size=B),
        lambda: UniformSelector(N, batch_size=B, full_batches=True),
        "full_batches False, this selector has True",
    ),
    "balanced power": (
        lambda: BalancedSelector(Y, batch_size=B),
        lambda: BalancedSelector(Y, batch_size=B, power=1),
        "power 0.5, this selector has 1",
    ),
    "balanced labels": (
        lambda: BalancedSelector(Y, batch_size=B),
        lambda: BalancedSelector(OTHER_Y, batch_size=B),
        "law_weights 23 values, digest .*, this selector has 23 values, digest",
    ),
    "pressure": (
        lambda: hard(selection_pressure=2),
        lambda: hard(selection_pressure=64),
        "selection_pressure 2, this selector has 64: make the selector as it was",
    ),
    "schedule": (
        lambda: hard(selection_pressure=Geometric(64, 1), epochs=9),
        lambda: hard(selection_pressure=Geometric(32, 1), epochs=9),
        r"selection_pressure Geometric\(start=64, end=1\), this .* Geometric\(start=32, end=1\)",
    ),
    "epochs of a schedule": (
        lambda: hard(selection_pressure=Geometric(64, 1), epochs=9),
        lambda: hard(selection_pressure=Geometric(64, 1), epochs=10),
        "epochs 9, this selector has 10",
    ),
    "own schedule": (
        lambda: hard(selection_pressure=Stepped(4)),
        lambda: hard(selection_pressure=Stepped(5)),
        "selection_pressure Stepped, digest .*, this selector has Stepped, digest",
    ),
    "renewal": (
        lambda: hard(reference_renewal="epoch"),
        lambda: hard(),
        "reference_renewal epoch, this selector has batch",
    ),
    "corrected": (
        lambda: make_selector("uniform", Y, batch_size=N, corrected=True),
        lambda: make_selector("uniform", Y, batch_size=N),
        "corrected True, this selector has False",
    ),
    "weights": (
        lambda: adaptive(),
        lambda: adaptive(2 * WEIGHTS),
        "weights 23 values, digest .*, this selector has 23 values",
    ),
    "one weight": (
        lambda: adaptive(1.0, n_samples=N),
        lambda: adaptive(2.0, n_samples=N),
        "weights 1, this selector has 2",
    ),
    "cap": (
        lambda: adaptive(cap_quantile=0.8),
        lambda: adaptive(),
        "cap_quantile 0.8, this selector has None",
    ),
    "chain labels": (
        lambda: ChainSelector(1.0, Y, batch_size=B),
        lambda: ChainSelector(1.0, OTHER_Y, batch_size=B),
        "Y 23 x 3 values, digest",
    ),
    "minority power": (
        lambda: minority(selection_pressure=4),
        lambda: minority(selection_pressure=4, power=2),
        "power 0.5, this selector has 2",
    ),
    "minority labels": (
        lambda: minority(selection_pressure=4),
        lambda: minority(OTHER_Y, selection_pressure=4),
        "Y 23 x 3 values, digest",
    ),
    "score": (
        lambda: own(),
        lambda: own(worst_label),
        r"score tailbatch\.selection\.loss_driven\.mean_loss, this .*test_settings\.worst_label",
    ),
    "a score's setting": (
        lambda: own(Shifted(1)),
        lambda: own(Shifted(2)),
        r"score Shifted\(by=1\), this selector has Shifted\(by=2\)",
    ),
    "a score with a bound argument": (
        lambda: own(functools.partial(times, 2.0)),
        lambda: own(functools.partial(times, 3.0)),
        "score partial, digest .*, this selector has partial, digest",
    ),
    "law": (
        lambda: own(),
        lambda: own(law=QuantizationLaw),
        "law RankLaw, this selector has QuantizationLaw",
    ),
    "a law's cap": (
        lambda: own(law=QuantizationLaw(cap_quantile=0.5)),
        lambda: own(law=QuantizationLaw(cap_quantile=0.9)),
        "cap_quantile 0.5, this selector has 0.9",
    ),
    "warm-up": (
        lambda: warm(epochs=1),
        lambda: warm(epochs=2),
        "warm_up_epochs 1, this selector has 2",
    ),
    "warm-up order": (
        lambda: warm(),
        lambda: warm(shuffle=False),
        "shuffle True, this selector has False",
    ),
    "pressure behind a warm-up": (
        lambda: warm(selection_pressure=2),
        lambda: warm(selection_pressure=64),
        "selection_pressure 2, this selector has 64",
    ),
}


def losses(index, step):
    return np.outer(1 + (index * 37 + step * 11) % 17, [0.1, 0.2, 0.3])


@pytest.mark.parametrize(("saved", "other", "message"), CASES.values(), ids=CASES)
def test_a_state_of_other_settings_is_refused(saved, other, message):
    before, selector = saved(), other()
    _drain(before, losses)
    _drain(selector, losses, epochs=2)
    unchanged = selector.state_dict()
    with pytest.raises(SelectionError, match=message):
        selector.load_state_dict(before.state_dict())
    assert _same_state(unchanged, selector.state_dict())
    assert before.digest() != saved().digest()
    again = saved()
    again.load_state_dict(before.state_dict())
    assert _drain(again, losses) == _drain(before, losses)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: hard(selection_pressure=16), lambda: hard(selection_pressure=np.float32(16))),
        (lambda: hard(epochs=3), lambda: hard(epochs=30)),
        (lambda: hard(initial_losses=np.arange(N)), lambda: hard()),
        (lambda: minority(), lambda: minority(sparse.csr_array(Y))),
        (lambda: minority(), lambda: minority(sparse.csc_array(Y.astype(np.int8)))),
        (lambda: minority(), lambda: minority(np.asfortranarray(Y))),
        (
            lambda: hard(selection_pressure=Geometric(64, 1), epochs=9),
            lambda: hard(selection_pressure=Geometric(64.0, 1.0), epochs=9),
        ),
        (
            lambda: make_selector("hard", Y, selection_pressure=16, epochs=20),
            lambda: make_selector("hard", Y, epochs=40),
        ),
    ],
)
def test_the_same_settings_may_be_written_otherwise(one, other):
    before, after = one(), other()
    _drain(before, losses)
    after.load_state_dict(before.state_dict())
    assert _drain(after, losses) == _drain(before, losses)
