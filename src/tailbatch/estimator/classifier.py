"""The estimator: scikit-learn's API over the training loop."""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from tailbatch import defaults
from tailbatch.data import Columns, Features, MultiLabelDataset, Scaling
from tailbatch.data.columns import giveaway
from tailbatch.data.dataset import checked_features, stored_by_values
from tailbatch.data.labels import label_sets
from tailbatch.errors import DataError, ModelError, setting
from tailbatch.estimator.decisions import (
    HeldOut,
    decided_thresholds,
    decision_said,
    objectives_of,
    weights_of_positives,
)
from tailbatch.estimator.fitted import CARD, FITTED, Fitted, training_facts
from tailbatch.estimator.fitting import Fit, NestedSettings, divided, logits_of, plan_of
from tailbatch.estimator.history import EpochTable, History
from tailbatch.estimator.inputs import (
    Labels,
    checked_sample_weight,
    checked_thresholds,
    encoded,
    fitted_columns,
    read_labels,
    seed_of,
    two_classes,
)
from tailbatch.estimator.reviewed import _rows_to_label, _suggested_labels, _with_reviewed
from tailbatch.estimator.scoring import _predicted_batches
from tailbatch.estimator.texts import (
    columns_with,
    model_of,
    settings_of,
    texts_as_frame,
    with_tokens,
)
from tailbatch.files import replacing
from tailbatch.losses import LossLike
from tailbatch.metrics.scored import dense_labels
from tailbatch.models import ModuleFactory, MultiLabelModel
from tailbatch.results import TrainingPlan
from tailbatch.selection import StrategyLike
from tailbatch.suggestions import EXPLORE, Suggestions
from tailbatch.training import Callback
from tailbatch.training.checkpoints import MALFORMED, load_checkpoint, save_checkpoint

_log = logging.getLogger(__name__)

_FILE = "classifier.safetensors"
_NUMBERS: dict[str, Any] = {
    "accept_sparse": "csr", "dtype": (np.float64, np.float32), "ensure_all_finite": False,
}  # fmt: skip


class TailbatchClassifier(ClassifierMixin, NestedSettings):  # type: ignore[misc] # no stubs
    """A deep multi-label classifier that learns rare labels, too, with random or chosen batches.

    Parameters
    ----------
    model
        ``"ensemble"``, which was best on validation rows (docs/training.md), ``"mlp"``, ``"c2ae"``,
        ``"mpvae"``, ``"paca"``, ``"clif"``, ``"dela"`` or another registered name, a
        `tailbatch.models.MultiLabelModel` class, or a function of (n_features, n_labels) that returns a
        ``torch.nn.Module`` from features to logits.
    strategy
        ``"random"``, ``"uniform"``, ``"balanced"``, ``"hard"``, ``"adaptive"``, ``"chain"``,
        ``"importance"``, ``"minority"`` or another registered name, a `tailbatch.selection.Selector`
        class, or a function that makes one, as for `make_selector`.
    selection_pressure
        How much likelier the hardest sample is than the easiest, from 1; ``"imbalance"`` for MeanIR
        of the training rows; None for the strategy's own; or ``"auto"``: 2, 8, 16 and 64 are trained one
        after the other, and the best on the validation rows wins.
    loss
        What the model is trained on: ``"bce"``, ``"weighted_bce"``, ``"focal"`` or another name of
        `tailbatch.losses`, a table with a name and options, or a loss of your own. None is the model's
        own, for most ``"bce"``; C2AE and MPVAE take no other.
    class_weight
        What missing a positive costs, where a false alarm costs 1: ``"balanced"`` for negatives over
        positives of the training rows, a table from names of labels to weights, or a weight per label;
        for a (n,) Y a table from class to weight. Positives weigh as much in the loss (``bce`` only), and
        `predict` counts the costs: a label is predicted from a lower probability on. Probabilities stay
        probabilities.
    epochs, batch_size, lr, weight_decay, warm_up_epochs
        See `tailbatch.results.TrainingPlan`. None is what suits the model
        (`tailbatch.defaults.recipe_of`): for ``"ensemble"`` 40 epochs within 400 and 800 steps, or
        five epochs where these are more; for the others the paper's plan at a rate of 1e-3.
    cross_fit
        How many parts the rows are dealt to, stratified by label. Each part is held out from a fifth of
        the members (for five parts), so all rows train, and all have an honest score: thresholds,
        probabilities and the card rest on these. Within ``"ensemble"`` it takes one training; other
        models are trained once for each part, which also chooses the epoch, and averaged. 0 is off. None
        is 5 for ``"ensemble"``, unless validation rows are split off or given, and else 0.
    validation_fraction
        Share of the rows, stratified by label, that is split off for the same purpose and to choose the
        best epoch; 0 keeps the last one. None is a tenth without `cross_fit`.
    thresholds
        The probability above which a label is predicted, one for all or one for each; or ``"tuned"`` by
        the objective on held-out rows: the fewer positives a label has, the nearer to a common one
        (`tailbatch.metrics.tune_thresholds`). None is ``"tuned"`` for many labels, of which few rows with
        a rare one reach 0.5; and 0.5 for a (n,) Y, with `class_weight`, and without held-out rows.
    objective
        What thresholds are tuned for: ``"f1"``, a level such as ``"precision>=0.9"`` or
        ``"recall>=0.8"``, or a list or a table by label name with one for each.
    missing_labels
        ``"error"`` refuses NaN in Y, naming row and column; ``"mask"`` learns from the labels that are
        there: a missing one costs nothing, no metric counts it, and no threshold is tuned on it. C2AE,
        MPVAE and PACA need every label.
    scale
        How features are scaled, by the training rows: ``"minmax"`` (or True) maps each to [0, 1],
        ``"maxabs"`` divides by the largest absolute value, ``"bounded"`` does where that is above 1,
        ``"standard"`` divides by the deviation from the mean, ``"tfidf"`` weights counts and words by
        their rarity, with rows of length 1, ``"auto"`` chooses by what the features are
        (`tailbatch.data.suggested_scaling`); False leaves them. None is ``"auto"`` for
        ``"ensemble"``, else ``"minmax"``.
    label_names
        Names of the columns of Y; the columns of a data frame bring their own.
    columns
        What to take the columns of a data frame X for, and how to fill in missing values, see
        `tailbatch.data.Columns`. None finds out by their values.
    encoder
        What makes embeddings of text, which are features beside its words: ``"minilm"`` (extra ``text``),
        a folder or hub name of any encoder of transformers, or a function of a list of texts that
        returns an array (n, k). None is words alone.
    finetune
        Whether to train the encoder, ``"minilm"`` if none is named, with a linear model of words, numbers
        and categories beside it (`tailbatch.models.FineTuned`).
    label_texts
        What the output of a trained encoder starts from: ``"names"``, the meaning of the labels' names; a
        table from labels to sentences; None is nothing. It helps labels with few positives whose names
        are words, and a label without any row is scored by its text.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ...
    random_state
        An integer for the same result every time; a ``RandomState`` gives one up; None is fresh.
        Global random states are never read or changed.
    warm_start
        Whether another `fit` starts from the weights and the scaling of the one before. Features and
        labels must be the same.
    verbose
        1 prints a line per epoch.
    callbacks
        Listeners to the training, see `tailbatch.training.Callback`.
    checkpoint_folder
        Where to save a training in progress, and to resume from if `fit` is called again as before.
    time_limit
        Seconds that training may take: the learning rate falls to zero by then. Where that ends a
        training early, another machine or moment gives another model.
    **model__options
        Nested settings: ``model__latent=64`` for the model's hyperparameters, ``loss__power=1.0`` for
        options of the loss, ``strategy__power=1.0`` for options of `make_selector`,
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
    oof_scores_
        (n, q) probability of each label for each training row, by members that have not seen it; None
        without `cross_fit`. Not saved.
    calibration_
        The `tailbatch.metrics.held_out.Calibration` of logits to probabilities; None where it was not
        fitted, for want of held-out rows.
    minority_labels_
        (q,) whether a label is rare in the training rows (`tailbatch.imbalance.rare_labels`).
    selection_pressure_
        The pressure in use, None for the strategy's own.
    history_, best_epoch_
        A `History` of one `tailbatch.training.Epoch` per epoch, with a plot, and the number of the epoch
        whose weights are kept.
    model_
        The trained module.
    columns_
        How the columns of a data frame become features, None for numbers.
    facts_
        What the model card tells: sizes, and how well each label is found on held-out rows.

    Notes
    -----
    A Y of shape (n, q), dense or sparse, gives predictions, probabilities and logits of shape (n, q),
    also for q = 1. A Y of shape (n,) is scikit-learn's binary problem, with any two classes:
    `predict` and `decision_function` give (n,), `predict_proba` (n, 2). `score` is scikit-learn's
    accuracy, for many labels the share of rows with every label right.

    A loss that weights positives by w learns logits that are log w too high. `decision_function` and
    `predict_proba` take that off again, so probabilities are as frequent as they say.

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

    model_: MultiLabelModel

    def __init__(
        self,
        model: str | ModuleFactory = defaults.MODEL,
        strategy: StrategyLike = defaults.STRATEGY,
        selection_pressure: float | str | None = None,
        loss: LossLike | None = defaults.LOSS,
        class_weight: Any = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        warm_up_epochs: int | None = None,
        cross_fit: int | None = None,
        validation_fraction: float | None = None,
        thresholds: float | str | Sequence[float] | None = None,
        objective: str | Sequence[str] | Mapping[str, str] = "f1",
        missing_labels: str = "error",
        scale: bool | str | None = None,
        label_names: Sequence[str] | None = None,
        columns: Columns | None = None,
        encoder: Any = None,
        finetune: bool = False,
        label_texts: Any = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
        checkpoint_folder: str | Path | None = None,
        time_limit: float | None = None,
        **model__options: Any,
    ) -> None:
        self.model = model
        self.strategy = strategy
        self.selection_pressure = selection_pressure
        self.loss = loss
        self.class_weight = class_weight
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.warm_up_epochs = warm_up_epochs
        self.cross_fit = cross_fit
        self.validation_fraction = validation_fraction
        self.thresholds = thresholds
        self.objective = objective
        self.missing_labels = missing_labels
        self.scale = scale
        self.label_names = label_names
        self.columns = columns
        self.encoder = encoder
        self.finetune = finetune
        self.label_texts = label_texts
        self.device = device
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint_folder = checkpoint_folder
        self.time_limit = time_limit
        self._set_nested(model__options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        validation_data: tuple[Any, Any] | None = None,
        X_reviewed: Any = None,
        Y_reviewed: Any = None,
        origin: Any = None,
    ) -> Self:
        """Train on all rows, each held out from some members, and decide by the scores of these.

        Parameters
        ----------
        X
            (n, d) numbers: an array, a SciPy sparse matrix or a data frame; a data frame with columns of
            text, categories and dates; or (n,) texts: a list, an array or a series.
        y
            Y, (n, q) zeros and ones or booleans: an array, a sparse matrix or a data frame, whose
            columns name the labels; a list or set of names for each row, such as
            ``[["bug", "billing"], []]``; or (n,) with two classes.
        sample_weight
            (n,) what each row's share of the objective is multiplied by, relative to the mean. Held-out
            scores and the losses that select batches are not weighted.
        groups
            (n,) the group of each row, such as a patient or an author, whose rows are held out together.
        validation_data
            ``(X, Y)`` to choose the epoch and tune thresholds on, in place of rows of X.
        X_reviewed, Y_reviewed
            Further rows, and labels (m, q) of which somebody answered some, NaN for the others; see
            `suggest`. `sample_weight` and `groups` go on for them.
        origin
            ``"random"`` or ``"suggested"`` for each reviewed row, or for each row of X without such; or
            whether it was drawn at random, also (m, q). Suggested rows are trained on, but thresholds,
            calibration, card and metrics rest on rows drawn at random. None is suggested, if reviewed.
        """
        # Everything a user can get wrong is looked at before anything is trained.
        settings = settings_of(self.get_params(deep=False))
        plan, seed = plan_of(settings), seed_of(self.random_state)
        start, scale = self._start()
        data = self._training_data(X, y, (X_reviewed, Y_reviewed), origin)
        settings = with_tokens(settings, self.columns_)
        given = None if validation_data is None else self._validation_data(validation_data)
        objectives = objectives_of(self.objective, self.label_names_)
        parts, kept, part, scaling = divided(
            data, given, settings, groups=groups, scale=scale, seed=seed
        )
        part, rows_digest = self._same_parts(start, data, part)
        is_held_out = part is not None or parts.validation.n_samples > 0
        thresholds = self._fixed_thresholds(plan, is_held_out=is_held_out)
        weights = costs = None
        if sample_weight is not None:
            weights = checked_sample_weight(sample_weight, data.n_samples, kept)
        if self.class_weight is not None:
            classes = self.classes_ if self._is_binary else None
            costs = weights_of_positives(self.class_weight, parts.train, classes)
        if self.verbose:
            settings["callbacks"] = (*self.callbacks, EpochTable(plan.best_by))
        fit = Fit(settings, plan, parts, part, weights, costs, seed, start)
        best = fit.train()
        # Only now, so that a fit that fails leaves the model of an earlier one with its own scaling.
        self.selection_pressure_, self.model_, self.scaling_ = best.pressure, best.model, scaling
        self.best_epoch_ = best.training.best_epoch
        self.history_ = History(
            best.training.epochs, best_epoch=self.best_epoch_, best_by=plan.best_by
        )
        self._dealt = rows_digest, part
        self.minority_labels_, self.calibration_, self.oof_scores_ = parts.minority, None, None
        held_out = None
        if best.logits is not None:
            # A tenth of the rows is too few to find more than thresholds on.
            calibrated = part is not None or given is not None
            held_out, self.calibration_ = HeldOut.of(
                fit.held_out, parts.minority, best.logits, part, calibrated=calibrated
            )
            if part is not None:
                self.oof_scores_ = held_out.probabilities
        self.thresholds_ = decided_thresholds(thresholds, costs, held_out, objectives)
        tuned_for = objectives if thresholds is None else None
        self.facts_ = training_facts(parts, self.thresholds_, held_out, tuned_for)
        said = decision_said(self.facts_, self.thresholds_, is_binary=self._is_binary)
        _log.info("%s", said)
        if self.verbose:
            sys.stdout.write(f"{said}\n")
        return self

    def _same_parts(
        self,
        start: MultiLabelModel | None,
        data: MultiLabelDataset,
        part: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.int64] | None, str]:
        """Return the parts of the fit that is continued, if its rows are these, and their digest."""
        if part is None or not self.warm_start:
            return part, ""
        digest, (former, dealt) = data.digest, getattr(self, "_dealt", ("", None))
        if digest == former and dealt is not None and dealt.max() == part.max():
            return dealt, digest
        if start is not None:
            _log.warning(
                "warm_start: these are not the rows of the former fit, so members may have learned from "
                "rows they hold out now; scores, thresholds and the card look better than they are"
            )
        return part, digest

    def _fixed_thresholds(
        self, plan: TrainingPlan, *, is_held_out: bool
    ) -> NDArray[np.float64] | None:
        """Return the thresholds that are given, (q,); None if they are to be tuned on held-out rows."""
        needs = {
            f"plan__early_stopping={plan.early_stopping}": plan.early_stopping is not None,
            'selection_pressure="auto"': self.selection_pressure == "auto",
            'thresholds="tuned"': isinstance(self.thresholds, str) and self.thresholds == "tuned",
            f"objective={self.objective!r:.60}": self.objective != "f1",
        }
        for asked, is_asked in needs.items():
            if is_asked and not is_held_out:
                raise DataError(
                    f"{asked} needs validation rows: set {setting('validation_fraction')} above 0 or "
                    "cross_fit=5, or give validation_data"
                )
        given: Any = self.thresholds
        if given is None and self.objective == "f1":
            # Costs and scikit-learn's two classes have a threshold of their own.
            own = self._is_binary or self.class_weight is not None or not is_held_out
            given = 0.5 if own else "tuned"
        elif given is None:
            given = "tuned"
        elif self.objective != "f1" and not isinstance(given, str):
            raise DataError(
                f"objective={self.objective!r:.60} is what thresholds are tuned for: leave "
                f"{setting('thresholds')} out"
            )
        return checked_thresholds(given, len(self.label_names_))

    def _start(self) -> tuple[MultiLabelModel | None, bool | str | Scaling]:
        """Return the model to start from, if any, and the scaling to fit, or to keep."""
        if self.warm_start and hasattr(self, "thresholds_"):
            return self.model_, self.scaling_ or False
        return None, defaults.recipe_of(
            model_of(self.get_params(deep=False))
        ).scale if self.scale is None else self.scale

    def decision_function(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return logits, (n, q), above 0 where a label is likelier than not; (n,) for a (n,) Y."""
        check_is_fitted(self, "thresholds_")
        features = self._features(X)
        if self.scaling_ is not None:
            features = self.scaling_.transform(features)
        logits = logits_of(self.model_, features)
        if self.calibration_ is not None:
            logits = self.calibration_(logits).astype(np.float32)
        return logits[:, 0] if self._is_binary else logits

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each label's probability, (n, q); for a (n,) Y both classes' probabilities, (n, 2)."""
        # Double precision keeps confident scores apart, and below 1.
        probabilities: NDArray[np.float64] = expit(self.decision_function(X).astype(np.float64))
        if self._is_binary:
            return np.column_stack([1 - probabilities, probabilities])
        return probabilities

    def predict(self, X: ArrayLike, *, as_sets: bool = False) -> Any:
        """Return the labels whose probability is above their threshold, zeros and ones (n, q).

        For a (n,) Y the class of each row.

        Parameters
        ----------
        X
            (n, d) features as in `fit`.
        as_sets
            Whether to return a list with the set of each row's label names instead.
        """
        probabilities = self.predict_proba(X)
        if self._is_binary:
            if as_sets:
                raise DataError("as_sets=True is for many labels; Y had one column of classes")
            positive = probabilities[:, 1] > self.thresholds_[0]
            return np.asarray(self.classes_[positive.astype(np.int64)])
        labels = (probabilities > self.thresholds_).astype(np.int64)
        return label_sets(labels, self.label_names_) if as_sets else labels

    def predict_batches(
        self, source: Any, *, kind: str = "proba", rows: int | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the rows of a file or stream piece by piece, each with what is predicted for it.

        Parameters
        ----------
        source
            A CSV, TSV, JSON lines or Parquet file, read in pieces, so it may be larger than memory; or
            an iterable of batches (b, d) as for `predict`.
        kind
            ``"proba"`` for `predict_proba`, ``"labels"`` for `predict`, ``"sets"`` for sets of names.
        rows
            Rows of a piece of a file; None is as many as fit into 32 MB of features, at most 65,536.

        Examples
        --------
        >>> X = np.random.default_rng(0).random((60, 3))
        >>> classifier = TailbatchClassifier(epochs=2, random_state=0).fit(X, X > 0.5)
        >>> stream = (X[start : start + 25] for start in range(0, 60, 25))
        >>> [proba.shape for _, proba in classifier.predict_batches(stream)]
        [(25, 3), (25, 3), (10, 3)]
        """
        check_is_fitted(self, "thresholds_")
        return _predicted_batches(self, source, kind=kind, rows=rows)

    def suggest(
        self,
        X: ArrayLike,
        n: int = 100,
        labels: Sequence[str | int] | None = None,
        *,
        strategy: str = "mixed",
        explore: float = EXPLORE,
        reviewed: ArrayLike = (),
        labeled: ArrayLike | None = None,
        seed: int = 0,
    ) -> Suggestions:
        """Return which rows of X a person should label next, for which labels, and why.

        Labels share the rows by their positives in training, and by their average precision on held-out
        rows. Near-duplicates of rows that are chosen or labeled already are passed over.

        Parameters
        ----------
        X
            (N, d) unlabeled rows, as in `fit`.
        n, labels, strategy, explore, reviewed, seed
            As for `tailbatch.suggest`.
        labeled
            (m, d) rows that are labeled already.

        Examples
        --------
        >>> X = np.random.default_rng(0).random((300, 3))
        >>> Y = X[:200] > [0.5, 0.6, 0.95]
        >>> classifier = TailbatchClassifier(epochs=30, random_state=0).fit(X[:200], Y)
        >>> chosen = classifier.suggest(X[200:], 5, labels=[2], explore=0.2)
        >>> len(chosen), int(chosen.is_random.sum()), chosen.label_names
        (5, 1, ('label_2',))
        """
        check_is_fitted(self, "thresholds_")
        options = {"strategy": strategy, "explore": explore, "reviewed": reviewed, "seed": seed}
        return _rows_to_label(self, X, labeled, n=n, labels=labels, **options)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows with every label right, looking only at labels that are there.

        Parameters
        ----------
        X, y
            Features and labels in any form that `fit` takes.
        sample_weight
            (n,) how much each row counts.
        """
        check_is_fitted(self, "thresholds_")
        if self._is_binary:  # the classes may be texts, which scikit-learn compares itself
            accuracy: float = super().score(X, y, sample_weight)
            return accuracy
        labels = self._labels(y)
        right = self.predict(X) == dense_labels(labels.values)
        if labels.missing is not None:  # what nobody knows cannot be wrong
            right |= dense_labels(labels.missing)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(right.all(axis=1), weights=weights))

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier to a folder, replacing an earlier one whole.

        The file holds tensors and JSON only, so reading it cannot execute anything. A model card,
        README.md, lies beside it.

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
        settings = self.get_params(deep=False)
        attributes: Any = {name: getattr(self, name, None) for name in FITTED}
        fitted = Fitted(**attributes)
        save_checkpoint(Path(folder) / _FILE, fitted.state(settings))
        with replacing(Path(folder) / CARD) as temporary:
            temporary.write_text(fitted.card(settings), encoding="utf-8")

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
            settings, fitted = Fitted.restored(load_checkpoint(path), model, device)
            classifier = cls(**settings)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
        except MALFORMED as error:
            raise ModelError(f"{path} does not hold a classifier: {error}") from error
        for name, value in vars(fitted).items():
            # Scikit-learn asks whether the names of the columns are there, not whether they are None.
            if name != "feature_names_in_" or value is not None:
                setattr(classifier, name, value)
        return classifier

    # ---- data -------------------------------------------------------------------------------

    def _training_data(
        self, X: ArrayLike, Y: ArrayLike, reviewed: tuple[Any, Any], origin: Any
    ) -> MultiLabelDataset:
        """Check X and Y and set what they fix: `classes_`, `label_names_`, feature names."""
        given = read_labels(Y, self.label_names, self.missing_labels)
        n_before = 0
        if any(part is not None for part in reviewed):
            n_before = np.shape(given.values)[0]
            X, given = _with_reviewed(X, given, *reviewed)
        table = texts_as_frame(X, self.columns)
        columns = columns_with(
            self.columns, self.encoder, finetune=self.finetune, is_text=table is not X
        )
        X = table
        self.columns_, encoded_X = fitted_columns(columns, X)
        # Scikit-learn checks shapes and kinds; NaN is named by `checked_features`, with its column.
        features, labels = validate_data(
            self,
            encoded_X,
            given.values,
            **_NUMBERS,
            ensure_min_samples=2,
            multi_output=True,
        )
        names = getattr(self, "feature_names_in_", None)
        if self.columns_ is not None:
            names = self.columns_.feature_names
            # As scikit-learn's column transformers: what went in, not what became of it.
            given_names: Any = getattr(X, "columns", ())
            self.feature_names_in_ = np.array(list(map(str, given_names)), dtype=object)
            self.n_features_in_ = len(given_names)
        if labels.ndim == 1:
            self.classes_ = two_classes(labels)
            labels = (labels == self.classes_[1])[:, None]
        else:
            self.classes_ = np.arange(labels.shape[1])
        data = MultiLabelDataset.from_arrays(
            features, labels, feature_names=names, label_names=given.names
        )
        self.label_names_ = tuple(data.label_names)
        told = self.columns_ and giveaway(self.columns_, data.X, data.Y, data.label_names)
        if told:  # a column written after the labels makes every score too good to be true
            _log.warning("%s", told)
        # A model must not depend on the container that its rows came in.
        suggested = None
        if n_before or origin is not None:
            suggested = _suggested_labels(origin, n_before, data.Y.shape)
        return replace(data, X=stored_by_values(data.X), missing=given.missing, suggested=suggested)

    def _validation_data(self, given: Any) -> MultiLabelDataset:
        """Check validation rows, which have the columns of the training rows."""
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise DataError(f"validation_data must be a pair (X, Y), got {given!r:.60}")
        features, labels = self._features(given[0]), self._labels(given[1])
        try:
            data = MultiLabelDataset.from_arrays(
                features, labels.values, label_names=self.label_names_
            )
            return replace(data, missing=labels.missing)
        except DataError as error:
            raise DataError(f"validation_data: {error}") from None

    def _features(self, X: ArrayLike) -> Features:
        """Return features with the columns of the training rows, not yet scaled."""
        if self.columns_ is not None:
            X = texts_as_frame(X, self.columns_)
        X = encoded(self.columns_, X)
        if self.columns_ is None:
            features = validate_data(self, X, reset=False, **_NUMBERS)
            return checked_features(features, getattr(self, "feature_names_in_", None))
        return checked_features(check_array(X, **_NUMBERS), self.columns_.feature_names)

    @property
    def _is_binary(self) -> bool:
        """Whether Y had one column of two classes: more classes than labels."""
        return len(self.classes_) > len(self.label_names_)

    def _labels(self, Y: Any) -> Labels:
        """Return labels with the columns of the training rows."""
        if self._is_binary:
            return Labels((np.asarray(Y) == self.classes_[1])[:, None], self.label_names_, None)
        # By name, because columns in another order would be learned as other labels.
        columns = getattr(Y, "columns", None)
        if columns is not None and tuple(map(str, columns)) != self.label_names_:
            raise DataError(
                f"Y has the columns {list(columns)!r:.80}, the training rows had "
                f"{list(self.label_names_)!r:.80}"
            )
        return read_labels(Y, self.label_names_, self.missing_labels)
