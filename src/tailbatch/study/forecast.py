"""The cost of runs: the order in which they run, cheapest first, and how long the rest will take."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tailbatch.results import DatasetFacts, RunSpec

Cell: TypeAlias = tuple[str, str, str, int, int]

#: Rough seconds per run of each model relative to the MLP, used only for ordering.
_MODELS: dict[str, float] = {"mlp": 1, "c2ae": 2, "mpvae": 3, "clif": 5, "dela": 8, "paca": 20}
_MODELS |= {"logistic": 0.1, "balanced_logistic": 0.1, "forest": 0.2, "boosting": 20}
#: Runs of one dataset and model after which more would not change a forecast much.
_ENOUGH = 3


def cost(spec: RunSpec, facts: Mapping[str, DatasetFacts]) -> float:
    """Return a rough, unitless cost of a run: rows x epochs x width x model.

    Examples
    --------
    >>> sizes = {"full": {"n_samples": 100, "n_features": 10, "n_labels": 2}}
    >>> known = DatasetFacts(name="a", path="", size=0, modified=0, digest="", facts=sizes)
    >>> mlp, dela = (RunSpec(dataset="a", dataset_digest="", model=name) for name in ("mlp", "dela"))
    >>> cost(mlp, {"a": known}) < cost(dela, {"a": known})
    True
    """
    known = facts.get(spec.dataset)
    size = known.facts.get(spec.preparation, {}) if known else {}
    width = 500 + size.get("n_features", 0) + 20 * size.get("n_labels", 0)
    n_samples = int(size.get("n_samples", 1))
    rows = n_samples * spec.plan.n_epochs(n_samples)
    return float(rows * width * _MODELS.get(spec.model, 1))


def epochs_of(spec: RunSpec, facts: Mapping[str, DatasetFacts]) -> int:
    """Return how many epochs a run has, as far as the size of its dataset is known.

    Examples
    --------
    >>> epochs_of(RunSpec(dataset="a", dataset_digest=""), {})
    100
    """
    known = facts.get(spec.dataset)
    size = known.facts.get(spec.preparation, {}) if known else {}
    if "n_samples" not in size:
        return spec.plan.epochs
    return spec.plan.n_epochs(round(size["n_samples"] * (1 - 1 / spec.n_folds)))


def cheapest_first(
    specs: Iterable[RunSpec], facts: Mapping[str, DatasetFacts]
) -> tuple[RunSpec, ...]:
    """Return the runs ordered by cost; runs that are compared cost the same and stay together."""
    return tuple(sorted(specs, key=lambda spec: cost(spec, facts)))


class Forecast:
    """Predicts from finished runs how long others take.

    The prediction is the average time of runs with the same dataset and model; if there are none yet,
    it follows from the cost.

    Parameters
    ----------
    facts
        Sizes of the datasets, by name.

    Examples
    --------
    >>> forecast = Forecast({})
    >>> spec = RunSpec(dataset="a", dataset_digest="")
    >>> forecast.seconds([spec]) is None
    True
    >>> forecast.learn(spec, 3.0)
    >>> forecast.seconds([spec, spec])
    6.0
    """

    def __init__(self, facts: Mapping[str, DatasetFacts]) -> None:
        self._facts = facts
        self._done: Counter[Cell] = Counter()
        self._seconds: dict[Cell, float] = defaultdict(float)
        self._cost = self._time = 0.0

    def learn(self, spec: RunSpec, seconds: float) -> None:
        """Learn from a finished run."""
        self._done[_cell(spec)] += 1
        self._seconds[_cell(spec)] += seconds
        self._cost += cost(spec, self._facts)
        self._time += seconds

    def knows(self, spec: RunSpec) -> bool:
        """Whether enough runs like this one have been learned from."""
        return self._done[_cell(spec)] >= _ENOUGH

    def seconds(self, specs: Iterable[RunSpec]) -> float | None:
        """Return how long these runs take in sequence; None before the first run has finished."""
        if not self._cost:
            return None
        return sum(self._one(spec) for spec in specs)

    def share_done(self, spec: RunSpec, epochs: int) -> float:
        """Return which share of a run is done after so many epochs."""
        return min(1.0, epochs / epochs_of(spec, self._facts))

    def _one(self, spec: RunSpec) -> float:
        cell = _cell(spec)
        if cell in self._done:
            return self._seconds[cell] / self._done[cell]
        return cost(spec, self._facts) * self._time / self._cost


def _cell(spec: RunSpec) -> Cell:
    return spec.dataset, spec.preparation, spec.model, spec.plan.epochs, spec.plan.batch_size
