"""What a run is, what it left, and where it is kept: one immutable JSON file a run."""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from tailbatch.errors import ResultError
from tailbatch.files import replacing

SCHEMA = (
    1  # raised when the meaning of a record changes; older and newer records are told apart by it
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a model is trained; the same for every strategy that is compared.

    The defaults are the paper's: Adam with L2 1e-4 and batches of 128, and, from its authors' script,
    learning rate 1e-4 with a linear warm-up over the warm-up epochs, and 100 epochs.

    Parameters
    ----------
    epochs
        Passes of n drawn samples each, the warm-up included.
    batch_size
        Samples a batch.
    lr, weight_decay
        Adam's step size and its L2 penalty (coupled, not AdamW).
    warm_up_epochs
        Plain shuffled epochs at the start, over which the learning rate rises linearly.
    selection_loss
        What the selector hears: ``"bce"``, each label's binary cross-entropy, or ``"model"``, each
        sample's share of the model's own objective.
    best_by
        The validation metric that picks the best epoch.
    early_stopping
        Stop after so many epochs without a better one; None never stops early.
    scheduler, scheduler_options
        A class of ``torch.optim.lr_scheduler`` by name, stepped once an epoch after the warm-up, and
        its arguments.
    gradient_clip
        Largest gradient norm; None does not clip.
    training_loss_every
        Measure objective and BCE over all training rows every so many epochs, 0 never; None: every
        epoch up to 20,000 rows, every tenth above.
    sample_loss_epochs
        Epochs (from 1) after which every training sample's BCE is kept.

    Examples
    --------
    >>> TrainingPlan(epochs=20).batch_size
    128
    >>> TrainingPlan(epochs=0)
    Traceback (most recent call last):
    ...
    tailbatch.errors.ResultError: epochs must be at least 1, got 0
    """

    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-4
    weight_decay: float = 1e-4
    warm_up_epochs: int = 3
    selection_loss: Literal["bce", "model"] = "bce"
    best_by: str = "macro_auc"
    early_stopping: int | None = None
    scheduler: str | None = None
    scheduler_options: Mapping[str, Any] = field(default_factory=dict)
    gradient_clip: float | None = None
    training_loss_every: int | None = None
    sample_loss_epochs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        _at_least(1, early_stopping=self.early_stopping)
        _at_least(0, warm_up_epochs=self.warm_up_epochs, weight_decay=self.weight_decay)
        _at_least(0, training_loss_every=self.training_loss_every)
        _above_zero(lr=self.lr, gradient_clip=self.gradient_clip)
        if self.selection_loss not in ("bce", "model"):
            raise ResultError(
                f'selection_loss must be "bce" or "model", got {self.selection_loss!r}'
            )
        late = [epoch for epoch in self.sample_loss_epochs if not 1 <= epoch <= self.epochs]
        if late:
            raise ResultError(
                f"sample_loss_epochs must lie between 1 and epochs ({self.epochs}), got {late[0]}"
            )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: which data, model, strategy and seed, trained by which plan.

    ``selection_pressure`` is a number, a pair (from, to) for a pressure annealed geometrically over the
    epochs after the warm-up, or None for the strategies that have none. ``dataset_digest`` names the
    dataset's content, so that two files of one name are two datasets.

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12", model="mlp", strategy="adaptive")
    >>> RunSpec.from_dict(spec.to_dict()) == spec
    True
    >>> len(spec.digest)
    32
    """

    dataset: str
    dataset_digest: str
    preparation: str = "full"
    n_folds: int = 5
    fold: int = 0
    model: str = "mlp"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "adaptive"
    selection_pressure: float | tuple[float, float] | None = 16.0
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    plan: TrainingPlan = field(default_factory=TrainingPlan)

    @property
    def digest(self) -> str:
        """The name of the run: equal specs, dataset contents and schemas have equal digests."""
        canonical = json.dumps({"schema": SCHEMA, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON keeps them."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Undo `to_dict`; unknown or missing keys are errors."""
        plan = _checked(TrainingPlan, values.get("plan", {}))
        plan["sample_loss_epochs"] = tuple(plan.get("sample_loss_epochs", ()))
        spec = _checked(cls, values) | {"plan": TrainingPlan(**plan)}
        if isinstance(spec.get("selection_pressure"), list):
            spec["selection_pressure"] = tuple(spec["selection_pressure"])
        return cls(**spec)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a run left; written once.

    Parameters
    ----------
    spec
        The run.
    validation, test
        Every metric at the best validation epoch; None where it is undefined.
    history
        One mapping an epoch: number, steps and seconds so far, losses, validation metrics, shares.
    best_epoch
        Counted from 1.
    warm_up_digest
        Names the weights at the end of the warm-up; compared strategies share it.
    labels
        One mapping a label: name, positives in the training rows, minority or not, test metrics, and
        how often it was drawn against its frequency.
    diagnostics
        What the selector says of its draws.
    max_lag
        Most batches that were drawn before an earlier one was observed.
    seconds
        Training time, evaluation not counted.
    versions, machine
        Packages and hardware, for the record only: they are not part of the digest.
    """

    spec: RunSpec
    validation: Mapping[str, float | None]
    test: Mapping[str, float | None]
    history: tuple[Mapping[str, Any], ...]
    best_epoch: int
    warm_up_digest: str
    labels: tuple[Mapping[str, Any], ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    max_lag: int = 0
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the record as text; NaN becomes null, because JSON has no NaN."""
        values = {"schema": SCHEMA, **asdict(self)}
        return json.dumps(_without_nan(values), indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; anything else is an error that says what is wrong."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ResultError(f"not a run record: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("schema"), int):
            raise ResultError("not a run record: it has no schema number")
        if values["schema"] > SCHEMA:
            raise ResultError(
                f"written by a newer version (schema {values['schema']}, this one reads {SCHEMA}): "
                "upgrade tailbatch"
            )
        values = _checked(cls, {name: item for name, item in values.items() if name != "schema"})
        try:
            values["spec"] = RunSpec.from_dict(values["spec"])
            values["history"], values["labels"] = tuple(values["history"]), tuple(values["labels"])
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise ResultError(f"not a run record: {error}") from error


class ResultStore:
    """A folder of run records, safe to share between processes and machines.

    Records lie in ``runs/<digest>.json``, bulky arrays beside them in ``runs/<digest>.npz``,
    checkpoints of runs under way in ``checkpoints/<digest>.safetensors``. Each file is written whole
    or not at all, and a record is never changed. A record that cannot be read is moved to
    ``damaged/`` with a log message, so that its run is done again.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(Path(tempfile.mkdtemp()))
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12")
    >>> store.has(spec)
    False
    >>> store.add(RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, history=(),
    ...                     best_epoch=1, warm_up_digest=""))
    >>> store.has(spec), store.frame()["macro_f"].tolist()
    (True, [0.5])
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def has(self, spec: RunSpec) -> bool:
        """Whether the run is done."""
        return self._file(spec.digest).exists()

    def add(self, record: RunRecord, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Keep a record, its arrays first, so that a record never lacks them."""
        digest = record.spec.digest
        if arrays:
            with replacing(self._file(digest).with_suffix(".npz")) as temporary:
                np.savez_compressed(temporary, allow_pickle=False, **dict(arrays))
        with replacing(self._file(digest)) as temporary:
            temporary.write_text(record.to_json())

    def get(self, spec: RunSpec) -> RunRecord:
        """Return the record of a run that is done."""
        return self._read(self._file(spec.digest))

    def arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        """Return the arrays kept with a run; none where there are none."""
        path = self._file(spec.digest).with_suffix(".npz")
        if not path.exists():
            return {}
        with np.load(path, allow_pickle=False) as file:
            return dict(file)

    def checkpoint(self, spec: RunSpec) -> Path:
        """Return where a run under way keeps its checkpoint."""
        return self.path / "checkpoints" / f"{spec.digest}.safetensors"

    def records(self) -> Iterator[RunRecord]:
        """Yield every readable record, in the order of digests; set the others aside."""
        for path in sorted((self.path / "runs").glob("*.json")):
            if path.name.startswith("."):
                continue  # another process is writing it
            try:
                yield self._read(path)
            except ResultError as error:
                self._set_aside(path, error)

    def frame(self) -> pd.DataFrame:
        """Return one row a run: the spec's fields, test metrics by name, ``validation_<metric>``, ...

        Columns of the plan are named ``plan_<field>``; then ``best_epoch``, ``seconds``,
        ``max_lag``, ``warm_up_digest`` and ``digest``.
        """
        return pd.DataFrame([_row(record) for record in self.records()])

    def curves(self) -> pd.DataFrame:
        """Return one row a run and epoch: the run's digest and what its history says."""
        rows = [
            {"digest": record.spec.digest, **_flat(epoch)}
            for record in self.records()
            for epoch in record.history
        ]
        return pd.DataFrame(rows)

    def _file(self, digest: str) -> Path:
        return self.path / "runs" / f"{digest}.json"

    def _read(self, path: Path) -> RunRecord:
        try:
            record = RunRecord.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ResultError(f"cannot read {path}: {error}") from error
        if record.spec.digest != path.stem:
            raise ResultError(f"{path.name} holds another run ({record.spec.digest})")
        return record

    def _set_aside(self, path: Path, error: ResultError) -> None:
        aside = self.path / "damaged" / path.name
        aside.parent.mkdir(exist_ok=True)
        path.replace(aside)
        _log.warning(
            "%s is damaged (%s); moved to %s, its run will be done again", path, error, aside
        )


def _row(record: RunRecord) -> dict[str, Any]:
    spec = record.spec.to_dict()
    plan = spec.pop("plan")
    return {
        **spec,
        **{f"plan_{name}": value for name, value in plan.items()},
        **record.test,
        **{f"validation_{name}": value for name, value in record.validation.items()},
        "best_epoch": record.best_epoch,
        "seconds": record.seconds,
        "max_lag": record.max_lag,
        "warm_up_digest": record.warm_up_digest,
        "digest": record.spec.digest,
    }


def _flat(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Return an epoch's values with its validation metrics as ``validation_<metric>``."""
    plain = {name: value for name, value in epoch.items() if name != "validation"}
    metrics = epoch.get("validation") or {}
    return plain | {f"validation_{name}": value for name, value in metrics.items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


def _checked(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` as keyword arguments of the dataclass `kind`; unknown keys are errors."""
    if not isinstance(values, Mapping):
        raise ResultError(f"{kind.__name__} must be a table of values, got {type(values).__name__}")
    unknown = sorted(set(values) - {item.name for item in fields(kind)})
    if unknown:
        raise ResultError(f"{kind.__name__} has no field {unknown[0]!r}")
    return dict(values)


def _at_least(bound: int, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not (math.isfinite(value) and value >= bound):
            raise ResultError(f"{name} must be at least {bound}, got {value}")


def _above_zero(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ResultError(f"{name} must be above 0, got {value}")
