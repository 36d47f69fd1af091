"""How arms look, the same in every figure and on the page."""

from collections.abc import Iterable
from dataclasses import dataclass

from tailbatch.analysis.keys import Arm


@dataclass(frozen=True)
class Look:
    """The look of one arm: its place in the palette, its dashes and its marker."""

    color: int
    dash: tuple[int, ...]
    marker: str


#: Colors on light and dark backgrounds: gray, then Okabe and Ito's, which color-blind readers can tell
#: apart, darkened or lightened for contrast.
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
#: Places in the palette of strategies that most reports compare; the first color is the baseline's.
_COLORS = {
    "adaptive": 1,
    "hard": 2,
    "chain": 3,
    "minority": 4,
    "balanced": 5,
    "uniform": 6,
    "importance": 7,
}
# Dashes and markers distinguish the lines without color.
_DASHES = ((5, 4), (), (8, 3), (2, 3), (8, 3, 2, 3), (12, 3), (4, 2, 1, 2), (1, 2))
_MARKERS = "os^DvPXh"

#: Looks and names of samples with no, one, two, and three or more minority labels.
GROUPS = tuple(Look(color, _DASHES[color], _MARKERS[color]) for color in (0, 5, 2, 4))
GROUP_NAMES = ("no minority label", "1 minority label", "2 minority labels", "3 and more")


def looks(arms: Iterable[Arm], baseline: Arm | None) -> dict[Arm, Look]:
    """Return a look for each arm, in order; the baseline is the gray, dashed one.

    Primary arms of well-known strategies keep their colors from one report to the next.

    Examples
    --------
    >>> [look.marker for look in looks([Arm("adaptive"), Arm("random")], Arm("random")).values()]
    ['o', 's']
    """
    ordered = sorted(set(arms))
    places = {
        arm: _COLORS[arm.strategy] for arm in ordered if arm.is_primary and arm.strategy in _COLORS
    }
    places |= {arm: 0 for arm in ordered if arm == baseline}
    free = [color for color in range(1, len(PALETTE)) if color not in places.values()]
    free = free or list(range(1, len(PALETTE)))
    others = [arm for arm in ordered if arm not in places]
    places |= {arm: free[turn % len(free)] for turn, arm in enumerate(others)}
    return {arm: Look(places[arm], _DASHES[places[arm]], _MARKERS[places[arm]]) for arm in ordered}


def shown_arms(arms: Iterable[Arm]) -> list[Arm]:
    """Return the arms that figures show: one per strategy, or all arms of a single strategy.

    Examples
    --------
    >>> arms = [Arm("random"), Arm("adaptive"), Arm("adaptive", 64.0)]
    >>> [str(arm) for arm in shown_arms(arms)], [str(arm) for arm in shown_arms(arms[1:])]
    (['random', 'adaptive'], ['adaptive', 'adaptive 64'])
    """
    ordered = sorted(set(arms))
    primary = [arm for arm in ordered if arm.is_primary]
    return primary if len(primary) > 1 else ordered
