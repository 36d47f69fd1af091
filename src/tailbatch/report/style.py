"""How strategies and metrics look and are called, the same in every table, figure and page."""

from collections.abc import Iterable
from dataclasses import dataclass

#: The order of strategies in tables and legends; others follow by name.
STRATEGIES = ("random", "uniform", "balanced", "hard", "adaptive", "chain", "minority")


@dataclass(frozen=True)
class Look:
    """The look of one arm: its place in the palette, its dashes and its marker."""

    color: int
    dash: tuple[int, ...]
    marker: str


#: Colors on light and on dark paper: gray, then Okabe and Ito's, which people with color-blindness can
#: tell apart, darkened or lightened until they are easy to read.
PALETTE = (
    ("#5f6670", "#a7afba"),
    ("#0072b2", "#5cb3e8"),
    ("#c2500a", "#f08a4b"),
    ("#008060", "#3cc4a0"),
    ("#a8568a", "#e19ac6"),
    ("#9a6700", "#e6b54a"),
    ("#3f51a3", "#93a2ee"),
    ("#7d4b2a", "#c99e7f"),
)
# Dashes and markers tell the lines apart without any color.
_DASHES = ((5, 4), (), (8, 3), (2, 3), (8, 3, 2, 3), (12, 3), (4, 2, 1, 2), (1, 2))
_MARKERS = "os^DvPXh"
# The strategies that most reports compare keep their colors from one report to the next.
_KEPT = {"adaptive": 1, "hard": 2, "chain": 3, "minority": 4, "balanced": 5, "uniform": 6}


#: Looks and names of the samples with no, one, two, and three or more minority labels.
GROUPS = tuple(Look(color, _DASHES[color], _MARKERS[color]) for color in (0, 5, 2, 4))
GROUP_NAMES = ("no minority label", "1 minority label", "2 minority labels", "3 and more")


def looks(arms: Iterable[str], baseline: str) -> dict[str, Look]:
    """Return a look for each arm, in order; the baseline is the gray, dashed one.

    Examples
    --------
    >>> [look.marker for look in looks(["adaptive", "random"], "random").values()]
    ['o', 's']
    """
    ordered = sorted(set(arms), key=arm_order)
    places = {arm: _KEPT[arm] for arm in ordered if arm in _KEPT} | {baseline: 0}
    free = [place for place in range(1, len(PALETTE)) if place not in places.values()]
    free = free or list(range(1, len(PALETTE)))
    others = [arm for arm in ordered if arm not in places]
    places |= {arm: free[turn % len(free)] for turn, arm in enumerate(others)}
    return {arm: Look(places[arm], _DASHES[places[arm]], _MARKERS[places[arm]]) for arm in ordered}


def shown_arms(arms: Iterable[str]) -> list[str]:
    """Return the arms that figures show: one a strategy, or all where there is one strategy only.

    Examples
    --------
    >>> shown_arms(["random", "adaptive", "adaptive 64"]), shown_arms(["adaptive", "adaptive 64"])
    (['random', 'adaptive'], ['adaptive', 'adaptive 64'])
    """
    ordered = sorted(set(arms), key=arm_order)
    primary = [arm for arm in ordered if " " not in arm]
    return primary if len(primary) > 1 else ordered


def arm_order(arm: str) -> tuple[int, str, float, str]:
    """Return a key that sorts arms: known strategies first, then by pressure.

    Examples
    --------
    >>> sorted(["mine", "adaptive 8", "adaptive", "adaptive 64", "random"], key=arm_order)
    ['random', 'adaptive', 'adaptive 8', 'adaptive 64', 'mine']
    """
    strategy, _, rest = arm.partition(" ")
    place = STRATEGIES.index(strategy) if strategy in STRATEGIES else len(STRATEGIES)
    first = rest.partition("→")[0].partition(" ")[0]
    pressure = float(first) if first.replace(".", "", 1).isdigit() else -1.0
    return place, strategy, pressure, rest
