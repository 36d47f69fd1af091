"""Records of runs, failures and the plans of studies: plain values that JSON can hold."""

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from tailbatch.errors import ResultError, require
from tailbatch.registry import plain_names
from tailbatch.results.spec import SCHEMA, RunSpec, known_fields, pressure_text

if TYPE_CHECKING:
    import pandas as pd

_SEAL = re.compile(rb',\n "digest": "(\w+)",\n "checksum": "(\w+)"\n}\n\Z')
_OWN_SCHEMA = re.compile(rb'\n "schema": %d,' % SCHEMA)  # keys of the outermost table, and sorted
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half a surrogate pair, which no text file can hold
_FILE_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f]{1,100}")
_SEAL_KEYS = ("digest", "checksum")
_Kept = TypeVar("_Kept")


class OtherVersionError(ResultError):
    """A record written by another version: it is intact, so it is never set aside."""


class _Plain:
    """A dataclass that is read from plain JSON values."""

    _what: ClassVar[str]
    # What reads a field, where it is not plain.
    _reading: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make one from plain JSON values; unknown fields are errors."""
        values = known_fields(cls, values)
        try:
            made = {
                name: make(values[name]) for name, make in cls._reading.items() if name in values
            }
            return cls(**values | made)
        except (KeyError, TypeError) as error:
            raise ResultError(f"not {cls._what}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RunRecord(_Plain):
    """The record of a run; written once.

    Parameters
    ----------
    spec
        The run.
    validation, test
        Every metric at the best validation epoch; None if it is undefined. ``tuned_<metric>`` is the
        same with each label's threshold tuned on the validation rows.
    history
        One mapping per epoch: number, steps and seconds so far, losses, validation metrics, shares.
    best_epoch
        Counted from 1.
    warm_up_digest
        Identifies the weights at the end of the warm-up; compared strategies share it.
    labels
        One mapping per label: name, positives in the training rows, minority or not, test metrics, and
        how often it was drawn relative to its frequency.
    diagnostics
        The selector's facts about its draws, and the numbers of steps and drawn samples.
    max_lag
        The most batches drawn before an earlier one was observed.
    seconds
        Training time, excluding evaluation.
    versions, machine
        Packages and hardware: not part of the digest.

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12")
    >>> record = RunRecord(spec=spec, validation={}, test={"macro_f": 0.5}, history=(),
    ...                    best_epoch=1, warm_up_digest="")
    >>> RunRecord.from_json(record.to_json()) == record
    True
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

    _what = "a run record"
    _reading: ClassVar = {"spec": RunSpec.from_dict, "history": tuple, "labels": tuple}

    def to_json(self) -> str:
        """Return the record as text, sealed; NaN becomes null, because JSON has no NaN."""
        return _seal(to_json(asdict(self)), self.spec.digest)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; invalid text is an error that says what is wrong."""
        return cls.from_dict({k: v for k, v in from_json(text).items() if k not in _SEAL_KEYS})

    @staticmethod
    def sealed_digest(text: bytes) -> str | None:
        """Return the digest of the run that a record of this version is about; None if it was changed.

        Twenty times as fast as reading the record, so that resuming can check every one.
        """
        seal = _SEAL.search(text, max(0, len(text) - 200))
        if seal is None or not _OWN_SCHEMA.search(text):
            return None
        return seal[1].decode() if seal[2].decode() == _checksum(text[: seal.start()]) else None

    def row(self) -> dict[str, Any]:
        """Return the run as one row of a table: plain cells only, for CSV and Parquet."""
        spec = self.spec.to_dict()
        plan = spec.pop("plan")
        del spec["by_default"]
        for name, code in spec.pop("code").items():
            # Runs of two versions of one's code are told apart by the end of the name.
            spec[name] = f"{(spec[name] or '').removesuffix(f'_{code[:8]}')}_{code[:8]}"
        spec["selection_pressure"] = pressure_text(self.spec.selection_pressure)
        spec["loss"] = spec["loss"] or ""
        cells = {
            **spec,
            **{f"plan_{name}": value for name, value in plan.items()},
            **self.test,
            **{f"validation_{name}": value for name, value in self.validation.items()},
            "best_epoch": self.best_epoch,
            "seconds": self.seconds,
            "max_lag": self.max_lag,
            "steps": self.diagnostics.get("steps"),
            "drawn_samples": self.diagnostics.get("drawn_samples"),
            "warm_up_digest": self.warm_up_digest,
            "digest": self.spec.digest,
        }
        return {name: _cell(value) for name, value in cells.items()}


@dataclass(frozen=True, kw_only=True)
class RunFailure(_Plain):
    """Why a run failed.

    Examples
    --------
    >>> spec = RunSpec(dataset="debtags", dataset_digest="ab12")
    >>> RunFailure(spec=spec, message="the loss is no longer a number").attempts
    1
    """

    spec: RunSpec
    message: str
    traceback: str = ""
    attempts: int = 1

    _what = "the failure of a run"
    _reading: ClassVar = {"spec": RunSpec.from_dict}


@dataclass(frozen=True, kw_only=True)
class StudyPlan(_Plain):
    """The runs a study wants, whether they are done or not.

    ``shows`` names the tables and figures of the paper that the runs reproduce.

    Examples
    --------
    >>> StudyPlan(name="mine", specs=()).shows
    ()
    """

    name: str
    specs: tuple[RunSpec, ...]
    title: str = ""
    shows: tuple[str, ...] = ()

    _what = "the plan of a study"
    _reading: ClassVar = {
        "specs": lambda specs: tuple(map(RunSpec.from_dict, specs)),
        "shows": tuple,
    }

    def __post_init__(self) -> None:
        # Its file is named after it, and must be inside the store.
        if not _FILE_NAME.fullmatch(self.name):
            raise ResultError(
                "a study's name has 1 to 100 printable characters, without / or \\, and does not "
                f"start with a dot, got {self.name[:120]!r}"
            )


@dataclass(frozen=True, kw_only=True)
class DatasetFacts(_Plain):
    """A dataset's content and size, kept so that a study need not read its file to start.

    Parameters
    ----------
    name, path, labels, columns
        Its name, the file it was read from, which columns are its labels, and how the others were read.
    size, modified
        The file's bytes and modification time in nanoseconds; if either differs, it is read again.
    digest
        Identifies the content.
    facts
        For each preparation: n_samples, n_features, n_labels, label_cardinality, label_density and
        mean_imbalance_ratio of the whole dataset.

    Examples
    --------
    >>> DatasetFacts(name="mine", path="mine.arff", size=10, modified=0, digest="ab12").facts
    {}
    """

    name: str
    path: str
    size: int
    modified: int
    digest: str
    labels: int | str | list[Any] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    _what = "the facts of a dataset"


def to_json(values: Mapping[str, Any], *, on_one_line: bool = False) -> str:
    """Return plain values and the schema number as text; NaN becomes null."""
    plain = _without_nan({"schema": SCHEMA, **values})
    layout: dict[str, Any] = {"separators": (",", ":")} if on_one_line else {"indent": 1}
    return json.dumps(plain, sort_keys=True, allow_nan=False, **layout) + "\n"


def from_json(text: str) -> dict[str, Any]:
    """Undo `to_json`: return the values without the schema number."""
    try:
        values = json.loads(text)
        if _HALF.search(text):  # only if needed, as it costs as much as reading
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ResultError(f"not a run record: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("schema"), int):
        raise ResultError("not a run record: it has no schema number")
    schema = values.pop("schema")
    if schema != SCHEMA:
        raise OtherVersionError(
            f"written by another version (schema {schema}, this one reads {SCHEMA}): "
            "use that version, or another folder"
        )
    return values


def _seal(text: str, digest: str) -> str:
    """Add the run's digest and a checksum of everything before, as the last two keys of the object."""
    body = text.removesuffix("\n}\n")
    return f'{body},\n "digest": "{digest}",\n "checksum": "{_checksum(body.encode())}"\n}}\n'


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def _cell(value: Any) -> Any:
    """Return a value that a data frame can group by and a file can hold."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _without_nan(value: Any) -> Any:
    """Return nested values with None for every number that JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


class RecordSource(ABC):
    """Records that can be read from `path`: a folder (`ResultStore`), or one file."""

    path: Path

    @abstractmethod
    def records(self, study: str | None = None) -> Iterator[RunRecord]:
        """Yield the records in the order of digests, or only those of one study."""

    @abstractmethod
    def arrays(self, spec: RunSpec) -> dict[str, np.ndarray]:
        """Return the arrays kept with a run; empty if there are none."""

    @abstractmethod
    def _kept(
        self, kind: str, made: Callable[[Mapping[str, Any]], _Kept]
    ) -> Iterator[tuple[str, _Kept]]:
        """Yield the name and content of what is kept of a kind, by name."""

    def studies(self) -> tuple[StudyPlan, ...]:
        """Return the studies that the records are for, by name."""
        return tuple(plan for _, plan in self._kept("studies", StudyPlan.from_dict))

    def failures(self) -> tuple[RunFailure, ...]:
        """Return why runs failed, in the order of digests."""
        return tuple(failure for _, failure in self._kept("failures", RunFailure.from_dict))

    def datasets(self) -> dict[str, DatasetFacts]:
        """Return the facts of all datasets, by the key they were kept under."""
        return dict(self._kept("datasets", DatasetFacts.from_dict))

    def study(self, name: str) -> StudyPlan:
        """Return the study of that name."""
        plans = {plan.name: plan for plan in self.studies()}
        if name not in plans:
            raise ResultError(
                f"{self.path} has no study {name!r}; it has: {', '.join(plans) or 'none'}"
            )
        return plans[name]

    def frame(self, study: str | None = None) -> "pd.DataFrame":
        """Return one row per run: the spec's fields, test metrics by name, ``validation_<metric>``, ...

        Columns of the plan are named ``plan_<field>``. Pressures are written as in study files (``"16"``,
        ``"64:1"``, ``""`` for none), tables as JSON. Code of the user's own has its plain name, and a
        digest only beside another version of it.
        """
        rows = [record.row() for record in self.records(study)]
        return self.with_plain_names(require("pandas", extra="cli").DataFrame(rows))

    @staticmethod
    def with_plain_names(*frames: "pd.DataFrame") -> Any:
        """Return frames of runs with the names of models, losses and strategies as readers want them."""
        shown = list(frames)
        for column in ("model", "loss", "strategy"):
            columns = [frame[column] for frame in frames if column in frame]
            plain = plain_names(name for names in columns for name in names.unique())
            shown = [
                frame.assign(**{column: frame[column].map(plain)}) if column in frame else frame
                for frame in shown
            ]
        return shown[0] if len(shown) == 1 else shown
