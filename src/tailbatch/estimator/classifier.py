"""The estimator: scikit-learn's grammar over the training loop."""

import copy
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tailbatch.data import (
    Features,
    MultiLabelDataset,
    Parts,
    fit_scaling,
    stratified_split,
)
from tailbatch.errors import DataError, ModelError, TrainingError
from tailbatch.estimator.inputs import (
    refuse_missing_labels,
    refuse_not_finite,
    seed_of,
    two_classes,
)
from tailbatch.estimator.saving import restore, state_of
from tailbatch.imbalance import minority_labels
from tailbatch.losses import Loss, LossLike
from tailbatch.losses.make import loss_table
from tailbatch.metrics import METRICS, tune_thresholds
from tailbatch.models import ModuleFactory, MultiLabelModel, make_model
from tailbatch.results import TrainingPlan, default_lr
from tailbatch.selection import DEFAULT_STRATEGY, StrategyLike, make_selector
from tailbatch.training import (
    Callback,
    Epoch,
    Rows,
    Trainer,
    Training,
    check_scheduler,
    prefers_sparse,
    score_rows,
)
from tailbatch.training.checkpoints import MALFORMED, load_checkpoint, save_checkpoint

PRESSURES = (2.0, 8.0, 16.0, 64.0)
"""What ``selection_pressure="auto"`` tries, as in the paper."""

_NESTED = ("model__", "loss__", "strategy__", "plan__")
_FILE = "classifier.safetensors"

_log = logging.getLogger(__name__)


class _Attempt(NamedTuple):
    """A training and what it was trained with."""

    pressure: float | None
    model: MultiLabelModel
    training: Training


class TailbatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # no stubs
    """A deep multi-label classifier whose mini-batches are chosen, not shuffled.

    Parameters
    ----------
    model
        ``"mlp"``, ``"c2ae"``, ``"mpvae"``, ``"paca"``, ``"clif"``, ``"dela"`` or another registered
        name, a `tailbatch.models.MultiLabelModel` class, or a function of (n_features, n_labels) that
        returns a ``torch.nn.Module`` from features to logits.
    strategy
        ``"random"``, ``"uniform"``, ``"balanced"``, ``"hard"``, ``"adaptive"``, ``"chain"``,
        ``"importance"`` or ``"minority"``, which with the MLP and plain BCE ranked first on the
        validation rows of imbalanced datasets (docs/reproduction.md); another registered name, a
        `tailbatch.selection.Selector` class, or a function that makes one, as for `make_selector`.
    selection_pressure
        How much likelier the hardest sample is than the easiest, from 1; ``"imbalance"`` for MeanIR
        of the training rows; None for the strategy's own, which is that for ``"minority"`` and 16 for
        the others; or ``"auto"``: 2, 8, 16 and 64 are trained one after the other, and the best
        on the validation rows wins. A strategy without a pressure takes None only.
    loss
        What the model is trained on: ``"bce"``, ``"weighted_bce"``, ``"focal"``, ``"asymmetric"``,
        ``"class_balanced"``, ``"distribution_balanced"``, ``"two_way"``, ``"equalized"``, a table with a
        name and options, or a loss of your own (`tailbatch.losses`). None is the model's own, for most
        ``"bce"``; C2AE and MPVAE take no other.
    epochs, batch_size, weight_decay, warm_up_epochs
        See `tailbatch.results.TrainingPlan`.
    lr
        Adam's learning rate. None is 1e-3, at which models had a better validation Macro-AUC than at
        the paper's 1e-4 in nearly all runs (docs/reproduction.md).
    validation_fraction
        Share of the rows, stratified by label, that chooses the best epoch; 0 keeps the last one.
    thresholds
        The probability above which a label is predicted; or ``"tuned"``: for each label one with a
        good F on the validation rows, the nearer to a common one the fewer positives it has there
        (`tailbatch.metrics.tune_thresholds`).
    scale
        How features are scaled, by the training rows: ``"minmax"`` (or True) maps each to [0, 1],
        ``"maxabs"`` divides by the largest absolute value, ``"standard"`` by the deviation from the
        mean, ``"tfidf"`` weights counts and words by their rarity, with rows of length 1, ``"auto"``
        chooses by what the features are (`tailbatch.data.suggested_scaling`); False leaves them.
    label_names
        Names of the columns of Y; the columns of a data frame bring their own.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    random_state
        An integer for the same result every time; a ``RandomState`` gives one up; None is fresh.
        Global random states are never read or changed.
    verbose
        1 logs every epoch (to stderr where no logging is set up).
    callbacks
        Listeners to the training, see `tailbatch.training.Callback`.
    checkpoint_folder
        Where to save a training under way, and to continue from when `fit` is called again with the
        same data and settings.
    **model__options
        Nested settings: ``model__latent=64`` for the model's hyperparameters, ``loss__power=1.0`` for
        options of the loss,
        ``strategy__power=1.0`` for options of `tailbatch.selection.make_selector`,
        ``plan__early_stopping=10`` for further fields of the training plan. Each epoch records only
        the plan's ``best_by``, and the loss over all training rows only with
        ``plan__training_loss_every=1``.

    Attributes
    ----------
    label_names_
        Names of the labels.
    classes_
        The two classes of a one-dimensional Y, else ``0 ... n_labels - 1``.
    thresholds_
        (q,) probabilities above which each label is predicted.
    minority_labels_
        (q,) whether a label is a minority label of the training rows.
    selection_pressure_
        The pressure in use, None for the strategy's own.
    history_, best_epoch_
        A `tailbatch.training.Epoch` for each epoch, and the number of the one whose weights are kept.
    model_
        The trained module.

    Notes
    -----
    A Y of shape (n, q), dense or sparse, gives predictions, probabilities and logits of shape (n, q),
    also for q = 1. A Y of shape (n,) is scikit-learn's binary problem, with any two classes:
    `predict` and `decision_function` give (n,), `predict_proba` (n, 2). `score` is scikit-learn's
    accuracy, for many labels the share of rows with every label right.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((200, 5))
    >>> Y = X[:, :3] > 0.7
    >>> classifier = TailbatchClassifier(epochs=30, lr=0.01, batch_size=32, random_state=0)
    >>> classifier.fit(X, Y).predict(X).shape
    (200, 3)
    >>> classifier.score(X, Y) > 0.8
    True
    """

    def __init__(
        self,
        model: str | ModuleFactory = "mlp",
        strategy: StrategyLike = DEFAULT_STRATEGY,
        selection_pressure: float | str | None = None,
        loss: LossLike | None = None,
        epochs: int = 100,
        batch_size: int = 128,
        lr: float | None = None,
        weight_decay: float = 1e-4,
        warm_up_epochs: int = 3,
        validation_fraction: float = 0.1,
        thresholds: float | str = 0.5,
        scale: bool | str = True,
        label_names: Sequence[str] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
        checkpoint_folder: str | Path | None = None,
        **model__options: Any,
    ) -> None:
        self.model = model
        self.strategy = strategy
        self.selection_pressure = selection_pressure
        self.loss = loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.warm_up_epochs = warm_up_epochs
        self.validation_fraction = validation_fraction
        self.thresholds = thresholds
        self.scale = scale
        self.label_names = label_names
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint_folder = checkpoint_folder
        self._set_nested(model__options)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, nested ones such as ``model__latent`` included."""
        params: dict[str, Any] = super().get_params(deep=deep)
        return params | {key: vars(self)[key] for key in vars(self) if key.startswith(_NESTED)}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, nested ones such as ``model__latent`` included."""
        nested = {key: value for key, value in params.items() if key.startswith(_NESTED)}
        super().set_params(**{key: params[key] for key in params.keys() - nested.keys()})
        self._set_nested(nested)
        return self

    def _set_nested(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if not key.startswith(_NESTED):
                raise TypeError(
                    f"TailbatchClassifier has no setting {key!r}; nested ones begin with "
                    + ", ".join(_NESTED)
                )
            setattr(self, key, value)

    def _nested(self, prefix: str) -> dict[str, Any]:
        settings = self.get_params(deep=False)
        return {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, Y: ArrayLike) -> Self:
        """Split off validation rows, train, and keep the best epoch's weights.

        Parameters
        ----------
        X
            (n, d) numbers: an array, a SciPy sparse matrix or a data frame.
        Y
            (n, q) zeros and ones or booleans: an array, a sparse matrix or a data frame, whose
            columns name the labels; or (n,) with two classes.
        """
        plan = self._plan()
        check_scheduler(plan)
        data = self._training_data(X, Y)
        seed = seed_of(self.random_state)
        parts = self._parts(data, seed)
        with _shown_epochs(self.verbose):
            best = self._best_training(parts, plan, seed)
        self.selection_pressure_ = best.pressure
        self.model_ = best.model
        self.history_ = best.training.epochs
        self.best_epoch_ = best.training.best_epoch
        self.minority_labels_ = minority_labels(parts.train.Y)
        self.thresholds_ = self._chosen_thresholds(parts.validation)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return logits, (n, q), above 0 where a label is likelier than not; (n,) for a (n,) Y."""
        logits = self._logits(self._scaled(self._checked_features(X)))
        return logits[:, 0] if self._is_binary else logits

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each label's probability, (n, q); for a (n,) Y both classes' probabilities, (n, 2)."""
        probabilities = _probabilities(self.decision_function(X))
        if self._is_binary:
            return np.column_stack([1 - probabilities, probabilities])
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the labels whose probability is above their threshold, zeros and ones (n, q).

        For a (n,) Y: the class of each row.
        """
        probabilities = self.predict_proba(X)
        if self._is_binary:
            positive = probabilities[:, 1] > self.thresholds_[0]
            return np.asarray(self.classes_[positive.astype(np.int64)])
        return (probabilities > self.thresholds_).astype(np.int64)

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier to a folder, replacing an earlier one whole.

        The file holds tensors and JSON only, so reading it cannot execute anything.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> X = np.random.default_rng(0).random((50, 3))
        >>> classifier = TailbatchClassifier(epochs=2, random_state=0).fit(X, X > 0.5)
        >>> classifier.save(folder)
        >>> again = TailbatchClassifier.load(folder)
        >>> bool((again.predict_proba(X) == classifier.predict_proba(X)).all())
        True
        """
        check_is_fitted(self, "thresholds_")
        save_checkpoint(Path(folder) / _FILE, state_of(self))

    @classmethod
    def load(
        cls, folder: str | Path, *, model: ModuleFactory | None = None, device: str = "auto"
    ) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        folder
            As given to `save`.
        model
            The function that builds the module, for a classifier fitted with one.
        device
            Where to predict.
        """
        path = Path(folder) / _FILE
        if not path.is_file():
            raise ModelError(f"there is no classifier in {folder}: {_FILE} is missing")
        try:
            return restore(cls, load_checkpoint(path), model, device)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
        except MALFORMED as error:
            raise ModelError(f"{path} does not hold a classifier: {error}") from error

    def _training_data(self, X: ArrayLike, Y: ArrayLike) -> MultiLabelDataset:
        """Check X and Y and set what they fix: `classes_`, `label_names_`, feature names."""
        names = getattr(Y, "columns", None) if self.label_names is None else self.label_names
        refuse_missing_labels(Y)
        features, labels = validate_data(
            self,
            X,
            Y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=2,
            multi_output=True,
        )
        refuse_not_finite(features, getattr(self, "feature_names_in_", None))
        self._is_binary = labels.ndim == 1
        if self._is_binary:
            self.classes_ = two_classes(labels)
            labels = (labels == self.classes_[1])[:, None]
        else:
            self.classes_ = np.arange(labels.shape[1])
        data = MultiLabelDataset.from_arrays(features, labels, label_names=names)
        self.label_names_ = tuple(data.label_names)
        return data

    def _checked_features(self, X: ArrayLike) -> Features:
        check_is_fitted(self, "thresholds_")
        features = validate_data(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
        )
        refuse_not_finite(features, getattr(self, "feature_names_in_", None))
        return features

    def _parts(self, data: MultiLabelDataset, seed: int) -> Parts:
        """Split off validation rows, at least one unless the fraction is 0, and scale."""
        fraction = self.validation_fraction and max(self.validation_fraction, 1 / data.n_samples)
        fold = stratified_split(data.Y, validation=fraction, test=0, seed=seed)
        train, validation = data.take(fold.train), data.take(fold.validation)
        self.scaling_ = fit_scaling(self.scale, train.X)
        train, validation = (replace(part, X=self._scaled(part.X)) for part in (train, validation))
        return Parts(train, validation, test=data.take(fold.test))

    def _scaled(self, X: Features) -> Features:
        return X if self.scaling_ is None else self.scaling_.transform(X)

    def _best_training(self, parts: Parts, plan: TrainingPlan, seed: int) -> _Attempt:
        """Train with the pressure asked for, or with each of `PRESSURES`, and keep the best."""
        if self.selection_pressure != "auto":
            return self._train(parts, plan, seed, self.selection_pressure)
        if parts.validation.n_samples == 0:
            raise DataError(
                'selection_pressure="auto" needs validation rows: set validation_fraction above 0'
            )
        attempts = (self._train(parts, plan, seed, pressure) for pressure in PRESSURES)
        return max(attempts, key=partial(_validation_score, best_by=plan.best_by))

    def _train(self, parts: Parts, plan: TrainingPlan, seed: int, pressure: Any) -> _Attempt:
        model = make_model(
            self.model, parts.train, seed=seed, loss=self._loss(), **self._nested("model__")
        )
        selector = make_selector(
            self.strategy,
            parts.train.Y,
            X=parts.train.X,
            batch_size=self.batch_size,
            selection_pressure=pressure,
            warm_up_epochs=self.warm_up_epochs,
            epochs=plan.n_epochs(parts.train.n_samples),
            seed=seed,
            loss=model.loss,
            **self._nested("strategy__"),
        )
        trainer = Trainer(
            plan,
            seed=seed,
            device=self.device,
            callbacks=(*self.callbacks, *([_LogEpochs()] if self.verbose else [])),
            checkpoint=self._checkpoint(pressure),
            metrics=(),
        )
        return _Attempt(pressure, model, trainer.fit(model, parts, selector))

    def _loss(self) -> LossLike | None:
        """Return the loss with its nested options; a ready one as a copy, since it may learn, too."""
        options = self._nested("loss__")
        if not options:
            return copy.deepcopy(self.loss) if isinstance(self.loss, Loss) else self.loss
        if not isinstance(self.loss, str | Mapping):
            raise ModelError(
                f"loss__{min(options)} needs a loss by name, such as loss='weighted_bce', "
                f"got loss={self.loss!r:.60}"
            )
        name, given = loss_table(self.loss)
        return {"name": name, **given, **options}

    def _checkpoint(self, pressure: float | None) -> Path | None:
        if self.checkpoint_folder is None:
            return None
        name = f"training-{pressure:g}" if self.selection_pressure == "auto" else "training"
        return Path(self.checkpoint_folder) / f"{name}.safetensors"

    def _plan(self) -> TrainingPlan:
        try:
            return TrainingPlan(
                epochs=self.epochs,
                batch_size=self.batch_size,
                lr=default_lr([self.model]) if self.lr is None else self.lr,
                weight_decay=self.weight_decay,
                warm_up_epochs=self.warm_up_epochs,
                # A pass over all training rows for numbers that are read only where asked for.
                **{"training_loss_every": 0, **self._nested("plan__")},
            )
        except TypeError as error:
            raise TrainingError(f"a setting of the training plan does not fit: {error}") from error

    def _chosen_thresholds(self, validation: MultiLabelDataset) -> NDArray[np.float64]:
        if self.thresholds == "tuned":
            if validation.n_samples == 0:
                raise DataError(
                    'thresholds="tuned" needs validation rows: set validation_fraction above 0'
                )
            return tune_thresholds(validation.Y, _probabilities(self._logits(validation.X)))
        if isinstance(self.thresholds, str) or not 0 < self.thresholds < 1:
            raise ModelError(
                f'thresholds must be "tuned" or a probability between 0 and 1, got {self.thresholds!r}'
            )
        return np.full(len(self.label_names_), self.thresholds, dtype=np.float64)

    def _logits(self, X: Features) -> NDArray[np.float32]:
        """Return the model's logits for scaled features, (n, q)."""
        device = next(self.model_.parameters()).device
        self.model_.eval()
        rows = Rows(X, device, sparse_batches=prefers_sparse(self.model_, X, device))
        return score_rows(self.model_, rows)


class _LogEpochs(Callback):
    def on_epoch(self, epoch: Epoch) -> None:
        scores = "".join(
            f", validation {METRICS[name].title} {value:.4f}"
            for name, value in epoch.validation.items()
        )
        _log.info("epoch %d: loss %.4f%s", epoch.number, epoch.batch_objective, scores)


@contextmanager
def _shown_epochs(verbose: int) -> Iterator[None]:
    """Make the epochs' log lines visible on stderr where the host has set up no logging."""
    if not verbose or _log.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.setLevel(level)
        _log.removeHandler(handler)


def _probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logits' sigmoid; double precision keeps confident scores apart, and below 1."""
    probabilities: NDArray[np.float64] = expit(logits.astype(np.float64))
    return probabilities


def _validation_score(attempt: _Attempt, best_by: str) -> float:
    """Return how good an attempt is, the higher the better."""
    score = attempt.training.best.validation[best_by]
    if math.isnan(score):
        return -math.inf
    return score if METRICS[best_by].higher_is_better else -score
