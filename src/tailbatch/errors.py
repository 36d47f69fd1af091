"""The exceptions of the package, and the import of optional packages."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral, Real
from types import ModuleType
from typing import Any

_BREAK = re.compile(r"\s*[\r\n\t]\s*")


Spelling = Callable[[str, Any], str | None]
"""How a setting is written, by its name in Python and its value; None for as in Python."""


_spelling: ContextVar[Spelling] = ContextVar("spelling", default=lambda name, value: None)


def setting(name: str, value: Any = None) -> str:
    """Return a setting for an error message, as whoever called would write it.

    That is Python unless `spelled` says otherwise, as the command line does. Without a value, it is the
    name of the argument alone.

    Examples
    --------
    >>> f"pass {setting('missing', 'impute')} or lower {setting('epochs')}"
    "pass missing='impute' or lower epochs"
    """
    in_python = name if value is None else f"{name}={value!r}"
    return _spelling.get()(name, value) or in_python


@contextmanager
def spelled(how: Spelling) -> Iterator[None]:
    """Let error messages write settings in another way, where it has one.

    Examples
    --------
    >>> with spelled(lambda name, value: f"--{name} {value}"):
    ...     print(f"pass {setting('missing', 'impute')}")
    pass --missing impute
    """
    former = _spelling.set(how)
    try:
        yield
    finally:
        _spelling.reset(former)


class TailbatchError(Exception):
    r"""Base class of all errors of this package; each message says what to do instead.

    A message is one printable line: control characters from a quoted file cannot reach the terminal.

    Examples
    --------
    >>> str(TailbatchError("the label 'a\x1b[2J' is\n  unknown"))
    "the label 'a\\x1b[2J' is unknown"
    """

    def __str__(self) -> str:
        return printable(_BREAK.sub(" ", super().__str__()))


def printable(text: str) -> str:
    r"""Return the text with control characters escaped, so that it cannot control a terminal.

    Examples
    --------
    >>> printable("red\x1b[31m")
    'red\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def markdown_escaped(text: str) -> str:
    r"""Return text that Markdown prints literally on one line, with any HTML and control characters.

    Examples
    --------
    >>> markdown_escaped("<b> | *x*")
    '&lt;b> \\| \\*x\\*'
    """
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", printable(" ".join(text.split())))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of an error message for an unknown name: the closest match, and all names.

    Examples
    --------
    >>> did_you_mean("focl", ["bce", "focal"])
    "; did you mean 'focal'? Known: bce, focal"
    """
    names = list(known)
    near = closest(name, names) if name is not None else None
    guess = f"; did you mean {near!r}?" if near else "."
    return f"{guess} Known: {', '.join(names) or 'none'}"


#: Names of one thing here and in other libraries.
_SYNONYMS = (
    ("batch_size", "train_batch_size", "per_device_train_batch_size"),
    ("best_by", "metric", "monitor", "scoring"),
    ("class_weight", "pos_weight", "weights"),
    ("early_stopping", "early_stop", "n_iter_no_change", "patience"),
    ("epochs", "max_epochs", "max_iter", "n_epochs", "n_iter", "num_epochs", "num_train_epochs"),
    ("hidden", "hidden_layer_sizes", "hidden_size"),
    ("kinds", "as"),
    ("loss", "criterion", "objective"),
    ("lr", "learning_rate", "learning_rate_init"),
    ("model", "module"),
    ("n_folds", "folds", "cv", "n_splits"),
    ("out", "output"),
    ("scale", "scaling"),
    ("schedule", "lr_schedule"),
    ("seed", "random_state"),
    ("selection_pressure", "pressure"),
    ("selection_pressures", "pressures"),
    ("steps", "max_steps"),
    ("strategy", "sampler"),
    ("thresholds", "threshold"),
    ("validation_fraction", "validation", "validation_split"),
    ("warm_up_epochs", "warm_up"),
    ("weight_decay", "alpha"),
)


def synonym(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of what other libraries call `name`; None if there is none.

    Examples
    --------
    >>> synonym("learning_rate", ["lr", "epochs"]), synonym("rate", ["lr"])
    ('lr', None)
    """
    same = {word for group in _SYNONYMS if name in group for word in group} - {name}
    return next((word for word in known if word in same), None)


def closest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known name of the same meaning or spelled most alike; None where none is near.

    Spellings are compared from 0 to 1, and must be as similar as `cutoff`.

    Examples
    --------
    >>> closest("tag", ["length", "tags"]), closest("patience", ["lr", "early_stopping"])
    ('tags', 'early_stopping')
    """
    names = list(known)
    near = get_close_matches(str(name), names, n=1, cutoff=cutoff)
    return synonym(str(name), names) or next(iter(near), None)


class DataError(TailbatchError, ValueError):
    """A file, array or fold that cannot be used as a multi-label dataset."""


class DownloadError(TailbatchError, OSError):
    """A dataset could not be downloaded, or the download is not the expected file."""


class SelectionError(TailbatchError, ValueError):
    """A selector was given something it cannot use."""


class StaleSelectionError(SelectionError):
    """A batch was requested while too many earlier ones still lack their losses."""


class ModelError(TailbatchError, ValueError):
    """A model was given something it cannot use."""


class TrainingError(TailbatchError, RuntimeError):
    """Training cannot continue, for instance because the loss is not finite."""


class TrainingInterrupted(TailbatchError):
    """Training was interrupted; its state is saved. `signal_name` is the signal that asked for it."""

    signal_name = "SIGINT"


class ResultError(TailbatchError, ValueError):
    """A run's specification or record cannot be used."""


class StudyError(TailbatchError, ValueError):
    """A study requests something that does not exist."""


class SettingError(TailbatchError, ValueError):
    """A setting was given a value that it cannot have."""


class MissingExtraError(TailbatchError, ImportError):
    """An optional package is required but not installed."""


def check_number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    whole: bool = False,
    remark: str = "",
    error: type[TailbatchError] = SettingError,
) -> None:
    """Raise unless a setting is a finite number within its bounds.

    `least` may be reached, `above` and `below` may not; `remark` ends the message, for instance with
    what 0 would do.

    Examples
    --------
    >>> check_number("validation_fraction", 1, least=0, below=1)
    Traceback (most recent call last):
    ...
    tailbatch.errors.SettingError: validation_fraction must be a number from 0 and below 1, got 1
    """
    is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if is_number and least <= value < below and above < value:  # type: ignore[operator]
        return
    bounds = {"from": least, "above": above, "and below": below}
    said = " ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
    kind = "a whole number" if whole else "a number"
    raise error(f"{setting(name)} must be {kind} {said}".rstrip() + f", got {value!r:.60}{remark}")


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or say which extra of tailbatch installs it.

    Examples
    --------
    >>> require("json", extra="parquet").dumps([1])
    '[1]'
    >>> require("no_such_package", extra="parquet")
    Traceback (most recent call last):
    ...
    tailbatch.errors.MissingExtraError: no_such_package is not installed; run: pip install ...
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # If one of its own dependencies is missing, the package is broken, not missing.
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        raise _missing(top, extra) from None


def require_installed(*modules: str, extra: str) -> None:
    """Raise an error that says how to install the first missing package; import none of them.

    Examples
    --------
    >>> require_installed("json", extra="cli")
    """
    for module in modules:
        if find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f'{module} is not installed; run: pip install "tailbatch[{extra}]"')
