"""Facts about strategies for reports: their order, colors and default pressures."""

from typing import NamedTuple

from tailbatch.results import Pressure
from tailbatch.selection import default_pressure

# The order of strategies in tables and legends, and the fixed colors of those that most reports
# compare: positions in the report's palette, whose first is the baseline's.
_COLORS = {
    "random": None,
    "uniform": 6,
    "balanced": 5,
    "hard": 2,
    "adaptive": 1,
    "chain": 3,
    "minority": 4,
    "importance": 7,
}


class StrategyFacts(NamedTuple):
    """A strategy's position in reports, its color if it has a fixed one, and its default pressure."""

    place: int
    color: int | None
    pressure: Pressure


def facts(strategy: str) -> StrategyFacts:
    """Return the facts about a strategy for reports; unknown ones come last, by name.

    Examples
    --------
    >>> facts("adaptive")
    StrategyFacts(place=4, color=1, pressure=16.0)
    >>> facts("mine").place > facts("minority").place
    True
    """
    known = list(_COLORS)
    place = known.index(strategy) if strategy in _COLORS else len(known)
    return StrategyFacts(place, _COLORS.get(strategy), default_pressure(strategy))
