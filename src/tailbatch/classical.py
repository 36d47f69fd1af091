"""Learners without batches: scikit-learn's classifiers on the same rows, as baselines for the networks.

They have no objective, no epochs and no batches, and choose their settings by a metric on the
validation rows; so they are next to `tailbatch.training`, not among the models. A label that is constant
in the training rows gets that constant as its score. scikit-learn is imported when a learner is fitted,
so that studies without one do not wait for it.
"""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from tailbatch.data import Features, Parts
from tailbatch.errors import ModelError, check_number
from tailbatch.metrics import macro_average_precision
from tailbatch.metrics.scored import dense_labels
from tailbatch.registry import check_known
from tailbatch.seeds import BoolArray, FloatArray, integer_seed

MAX_BYTES = 2**31
"""Limit on a learner's largest array; beyond it, the learner raises an error."""

_STEPS = 1000  # the solver's maximum; a few dozen are enough for nearly all labels
_TREES = 10  # grown at a time, because a tree keeps every label's share in each of its nodes


_log = logging.getLogger(__name__)


class _Learned(NamedTuple):
    """Scores in [0, 1] of the validation and test rows, (n, q) each, and the chosen setting."""

    validation: FloatArray
    test: FloatArray
    chosen: dict[str, float]


@dataclass(frozen=True)
class _ClassicalModel(ABC):
    """A learner without batches; its fields are its hyperparameters."""

    name: ClassVar[str]

    def learn(self, parts: Parts, *, seed: int) -> _Learned:
        """Learn from the training rows on one thread, and score the validation and test rows.

        Of several settings, the one with the best Macro-AP on the validation rows is chosen. The features
        of `parts` are scaled as for the networks.
        """
        labels, truth = dense_labels(parts.train.Y), dense_labels(parts.validation.Y)
        share = labels.mean(axis=0)
        varied = np.flatnonzero((share > 0) & (share < 1))
        held_out = _stacked(parts.validation.X, parts.test.X)
        n_validation, best = len(truth), -np.inf
        with threadpool_limits(1):
            tried = self._tried(_plain(parts.train.X), labels[:, varied], held_out, seed)
            for setting, found in tried:
                scores = np.tile(share, (len(found), 1))
                scores[:, varied] = found
                value = macro_average_precision(truth, scores[:n_validation])
                # It is nan where no label has a validation positive.
                if best == -np.inf or value > best:
                    best = -np.inf if np.isnan(value) else value
                    learned = _Learned(scores[:n_validation], scores[n_validation:], setting)
        return learned

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            name = f"{item.name} of {self.name}"
            check_number(name, value, least=1, whole=True, error=ModelError)

    @abstractmethod
    def _tried(
        self, X: Features, Y: BoolArray, held_out: Features, seed: int
    ) -> Iterator[tuple[dict[str, float], FloatArray]]:
        """Yield each setting to try and its scores of the held-out rows.

        Every label has rows with and without it; there may be no labels at all.
        """


@dataclass(frozen=True)
class _Logistic(_ClassicalModel):
    """One logistic regression per label, with L2 (lbfgs; sparse features stay sparse).

    ``C`` is the inverse of the penalty, the same for all labels; None tries 0.1, 1 and 10.
    """

    name: ClassVar[str] = "logistic"
    class_weight: ClassVar[str | None] = None

    C: float | None = None

    def __post_init__(self) -> None:
        if self.C is not None:
            check_number(f"C of {self.name}", self.C, above=0, error=ModelError)

    def _tried(
        self, X: Features, Y: BoolArray, held_out: Features, seed: int
    ) -> Iterator[tuple[dict[str, float], FloatArray]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        # Each label's solution for one C is the starting point for the next.
        models = [
            LogisticRegression(class_weight=self.class_weight, max_iter=_STEPS, warm_start=True)
            for _ in range(Y.shape[1])
        ]
        for C in (0.1, 1.0, 10.0) if self.C is None else (self.C,):
            scores = np.empty((held_out.shape[0], len(models)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                for label, model in enumerate(models):
                    model.set_params(C=C).fit(X, Y[:, label])
                    scores[:, label] = model.predict_proba(held_out)[:, 1]
            late = sum(int(model.n_iter_[0]) >= _STEPS for model in models)
            if late:
                _log.warning("%s, C = %g: %d labels did not converge", self.name, C, late)
            yield {"C": C}, scores


@dataclass(frozen=True)
class _BalancedLogistic(_Logistic):
    """The same with ``class_weight="balanced"``: positives and negatives have equal total weight."""

    name: ClassVar[str] = "balanced_logistic"
    class_weight: ClassVar[str | None] = "balanced"


@dataclass(frozen=True)
class _Forest(_ClassicalModel):
    """One scikit-learn random forest for all labels together (sparse features stay sparse).

    It is grown ten trees at a time, and only the scores of earlier trees are kept.
    """

    name: ClassVar[str] = "forest"

    n_estimators: int = 100

    def _tried(
        self, X: Features, Y: BoolArray, held_out: Features, seed: int
    ) -> Iterator[tuple[dict[str, float], FloatArray]]:
        from sklearn.ensemble import RandomForestClassifier

        n, q = Y.shape
        _refuse_above(2 * n * q * 2 * 8 * _TREES, self.name, f"{n:,} rows and {q:,} labels")
        total = np.zeros((held_out.shape[0], q))
        for start in range(0, self.n_estimators if q else 0, _TREES):
            count = min(_TREES, self.n_estimators - start)
            forest = RandomForestClassifier(count, random_state=_random_state(seed, start))
            forest.fit(X, Y if q > 1 else Y[:, 0])
            by_label = forest.predict_proba(held_out)
            by_label = by_label if q > 1 else [by_label]
            total += count * np.stack([classes[:, 1] for classes in by_label], axis=1)
        # Rounding may push sums of shares above 1.
        yield {}, np.clip(total / self.n_estimators, 0, 1)


@dataclass(frozen=True)
class _Boosting(_ClassicalModel):
    """One histogram gradient boosting per label; its trees need dense features.

    Sparse features are therefore made dense, except those present in fewer rows than a leaf needs
    (20): no tree could split on them, so the result is the same without them.
    """

    name: ClassVar[str] = "boosting"
    min_samples_leaf: ClassVar[int] = 20

    max_iter: int = 100

    def _tried(
        self, X: Features, Y: BoolArray, held_out: Features, seed: int
    ) -> Iterator[tuple[dict[str, float], FloatArray]]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        if not isinstance(X, np.ndarray):
            kept = np.flatnonzero(X.count_nonzero(axis=0) >= self.min_samples_leaf)
            rows = X.shape[0] + held_out.shape[0]
            _refuse_above(8 * rows * len(kept), self.name, f"{rows:,} rows, {len(kept):,} features")
            few: Any = held_out[:, kept]
            X, held_out = X[:, kept].toarray(), few.toarray()
        scores = np.tile(Y.mean(axis=0), (held_out.shape[0], 1))
        for label in range(Y.shape[1] if X.shape[1] else 0):
            model = HistGradientBoostingClassifier(
                max_iter=self.max_iter,
                min_samples_leaf=self.min_samples_leaf,
                early_stopping=False,  # it would hold out training rows
                random_state=_random_state(seed, label),
            )
            scores[:, label] = model.fit(X, Y[:, label]).predict_proba(held_out)[:, 1]
        yield {}, scores


CLASSICAL: dict[str, type[_ClassicalModel]] = {
    model.name: model for model in (_Logistic, _BalancedLogistic, _Forest, _Boosting)
}
"""Every learner without batches by name."""


def make_classical(name: str, hyperparameters: Mapping[str, Any]) -> _ClassicalModel:
    """Return a learner of `CLASSICAL` with these hyperparameters.

    Examples
    --------
    >>> make_classical("forest", {"n_estimators": 50})
    _Forest(n_estimators=50)
    >>> make_classical("forest", {"n_estimator": 50})
    Traceback (most recent call last):
    ...
    tailbatch.errors.ModelError: unknown hyperparameter of forest 'n_estimator'; did you mean ...
    """
    kind: Any = CLASSICAL[name]
    known = [item.name for item in fields(kind)]
    for given in hyperparameters:
        check_known(f"hyperparameter of {name}", given, known, error=ModelError)
    model: _ClassicalModel = kind(**hyperparameters)
    return model


def _stacked(first: Features, second: Features) -> Features:
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    return _plain(sparse.vstack([first, second], format="csr"))


def _plain(X: Features) -> Features:
    """Return sparse features with the 32-bit indices that scikit-learn's trees need."""
    if isinstance(X, np.ndarray) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    if X.nnz > np.iinfo(np.int32).max:
        raise ModelError(f"scikit-learn takes at most 2^31 - 1 sparse values, got {X.nnz:,}")
    parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sparse.csr_array(parts, shape=X.shape)


def _random_state(seed: int, part: int) -> int:
    return integer_seed(seed, "classical", part) % 2**32


def _refuse_above(n_bytes: int, name: str, what: str) -> None:
    if n_bytes > MAX_BYTES:
        raise ModelError(
            f"{name} would need {n_bytes / 2**30:.1f} GiB for {what}, but the limit is "
            f"{MAX_BYTES / 2**30:g}: leave it out, or choose fewer of them"
        )
