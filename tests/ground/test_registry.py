"""Names of strategies, models and losses: added ones, those of other packages, and typos."""

from importlib.metadata import EntryPoint

import pytest

from tailbatch import registry
from tailbatch.errors import SelectionError
from tailbatch.registry import Registry


@pytest.fixture
def numbers(monkeypatch):
    offered = [
        EntryPoint("half", "fractions:Fraction", "tailbatch.numbers"),
        EntryPoint("broken", "no_such_module:thing", "tailbatch.numbers"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: offered)
    numbers = Registry("number", "tailbatch.numbers", SelectionError)
    numbers.add("one", 1)
    return numbers


def test_the_entry_point_of_another_package_is_loaded_when_it_is_asked_for(numbers):
    from fractions import Fraction

    assert numbers["half"] is Fraction
    assert list(numbers) == ["one", "half", "broken"]
    assert len(numbers) == 3


def test_a_package_that_cannot_be_loaded_is_named(numbers):
    with pytest.raises(SelectionError, match="'broken' of the package"):
        numbers["broken"]


def test_an_unknown_name_gets_the_nearest_one(numbers):
    with pytest.raises(SelectionError, match="unknown number 'hlf'; did you mean 'half'"):
        numbers["hlf"]
    assert "hlf" not in numbers


def test_a_name_is_taken_once(numbers):
    numbers.add("one", 1)  # again, as when a module is loaded twice
    with pytest.raises(SelectionError, match="already is a number 'one'"):
        numbers.add("one", 2)
    numbers.add("one", 2, replace=True)
    assert numbers["one"] == 2


def test_a_name_is_a_word(numbers):
    with pytest.raises(SelectionError, match="letters, digits and underscores, got 'two words'"):
        numbers.add("two words", 2)
