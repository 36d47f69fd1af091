"""Records of runs, failures and the plans of studies: plain values that JSON can hold."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tailbatch.errors import ResultError
from tailbatch.results.schema import SCHEMA, upgraded, upgraded_spec
from tailbatch.results.spec import RunSpec, known_fields, pressure_text

_SEAL = re.compile(rb',\n "digest": "(\w+)",\n "checksum": "(\w+)"\n}\n\Z')
_OWN_SCHEMA = re.compile(rb'\n "schema": %d,' % SCHEMA)  # keys of the outermost table, and sorted
_SPEC = b'\n "spec": '
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half a surrogate pair, which no text file can hold
_FILE_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f]{1,100}")
_SEAL_KEYS = ("digest", "checksum")


def validation_column(metric: str) -> str:
    """Return the column name of a metric on the validation rows.

    Examples
    --------
    >>> validation_column("macro_auc")
    'validation_macro_auc'
    """
    return f"validation_{metric}"


class NewerRecordError(ResultError):
    """A record written by a newer version: it is intact, so it is never set aside."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
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
        Packages and hardware, for the record only: they are not part of the digest.

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

    def to_json(self) -> str:
        """Return the record as text, sealed; NaN becomes null, because JSON has no NaN."""
        return _seal(to_json(asdict(self)), self.spec.digest)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; invalid text is an error that says what is wrong."""
        return cls.from_dict({k: v for k, v in from_json(text).items() if k not in _SEAL_KEYS})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a record from plain JSON values."""
        values = known_fields(cls, values)
        try:
            values["spec"] = RunSpec.from_dict(values["spec"])
            values["history"] = tuple(values["history"])
            values["labels"] = tuple(values.get("labels", ()))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ResultError(f"not a run record: {error}") from error

    def row(self) -> dict[str, Any]:
        """Return the run as one row of a table: plain cells only, for CSV and Parquet."""
        spec = self.spec.to_dict()
        plan = spec.pop("plan")
        for name, code in spec.pop("code", {}).items():
            # Runs of two versions of one's code are told apart by the end of the name.
            spec[name] = f"{spec[name].removesuffix(f'_{code[:8]}')}_{code[:8]}"
        spec["selection_pressure"] = pressure_text(self.spec.selection_pressure)
        spec["loss"] = self.spec.loss or ""
        cells = {
            **spec,
            **{f"plan_{name}": value for name, value in plan.items()},
            **self.test,
            **{validation_column(name): value for name, value in self.validation.items()},
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
class RunFailure:
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a failure from plain JSON values."""
        values = known_fields(cls, values)
        try:
            return cls(**values | {"spec": RunSpec.from_dict(values["spec"])})
        except (KeyError, TypeError) as error:
            raise ResultError(f"not the failure of a run: {error}") from error


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
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

    def __post_init__(self) -> None:
        # Its file is named after it, and must be inside the store.
        if not _FILE_NAME.fullmatch(self.name):
            raise ResultError(
                "a study's name has 1 to 100 printable characters, without / or \\, and does not "
                f"start with a dot, got {self.name[:120]!r}"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a study's plan from plain JSON values."""
        values = known_fields(cls, values)
        try:
            values["specs"] = tuple(RunSpec.from_dict(spec) for spec in values["specs"])
            values["shows"] = tuple(values.get("shows", ()))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ResultError(f"not the plan of a study: {error}") from error


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """A dataset's content and size, kept so that a study need not read its file to start.

    Parameters
    ----------
    name, path, labels, columns
        Its name, the file it was read from, which columns are its labels, and how the others were read,
        if specified.
    size, modified
        The file's size in bytes and modification time in nanoseconds; if either differs, the content
        may have changed.
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the facts from plain JSON values."""
        try:
            return cls(**known_fields(cls, values))
        except TypeError as error:
            raise ResultError(f"not the facts of a dataset: {error}") from error


def to_json(values: Mapping[str, Any]) -> str:
    """Return plain values and the schema number as text; NaN becomes null."""
    numbered = {"schema": SCHEMA, **values}
    return json.dumps(without_nan(numbered), indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str) -> dict[str, Any]:
    """Undo `to_json`: return the values without the schema number, upgraded to the current schema."""
    try:
        values = json.loads(text)
        if _HALF.search(text):  # only if needed, as it costs as much as reading
            json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ResultError(f"not a run record: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("schema"), int):
        raise ResultError("not a run record: it has no schema number")
    schema = values.pop("schema")
    if schema > SCHEMA:
        raise NewerRecordError(
            f"written by a newer version (schema {schema}, this one reads {SCHEMA}): "
            "upgrade tailbatch"
        )
    return values if schema == SCHEMA else dict(upgraded(values))


def _seal(text: str, digest: str) -> str:
    """Add the run's digest and a checksum of everything before, as the last two keys of the object."""
    body = text.removesuffix("\n}\n")
    return f'{body},\n "digest": "{digest}",\n "checksum": "{_checksum(body.encode())}"\n}}\n'


def sealed_digest(text: bytes) -> str | None:
    r"""Return the digest of the run that a record's text is about; None if the text was changed.

    Twenty times as fast as reading the record, so that resuming can check every one.

    Examples
    --------
    >>> text = _seal('{\n "seed": 0\n}\n', "ab12")
    >>> sealed_digest(text.encode()), sealed_digest(text.replace("0", "1", 1).encode())
    ('ab12', None)
    """
    seal = _SEAL.search(text, max(0, len(text) - 200))
    if seal is None or seal[2].decode() != _checksum(text[: seal.start()]):
        return None
    return seal[1].decode()


def current_digest(text: bytes, sealed: str) -> str:
    r"""Return the current digest of the run that a sealed text is about, reading only its spec.

    Examples
    --------
    >>> old = b'{\n "schema": 1,\n "spec": {"dataset": "a", "dataset_digest": "", "model": "dela"}\n}'
    >>> current_digest(old, "ab12") == RunSpec(dataset="a", dataset_digest="", model="dela").digest
    True
    >>> current_digest(old.replace(b"1", b"2"), "ab12")
    'ab12'
    """
    if _OWN_SCHEMA.search(text):
        return sealed
    spec, _ = json.JSONDecoder().raw_decode(text[text.index(_SPEC) + len(_SPEC) :].decode())
    return RunSpec.from_dict(upgraded_spec(spec)).digest


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def _cell(value: Any) -> Any:
    """Return a value that a data frame can group by and a file can hold."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def without_nan(value: Any) -> Any:
    """Return nested values with None for every number that JSON cannot represent.

    Examples
    --------
    >>> without_nan({"auc": float("nan"), "shares": (0.5, float("inf"))})
    {'auc': None, 'shares': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value
