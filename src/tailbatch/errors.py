"""The exceptions of the package, and the one door to optional packages."""

from importlib import import_module
from types import ModuleType


class TailbatchError(Exception):
    """Anything this package refuses, with a message that names the way out."""


class DataError(TailbatchError, ValueError):
    """A file, array or fold that cannot be used as a multi-label dataset."""


class DownloadError(TailbatchError, OSError):
    """A dataset could not be fetched, or what arrived is not what was asked for."""


class SelectionError(TailbatchError, ValueError):
    """A selector was given something it cannot use."""


class StaleSelectionError(SelectionError):
    """A batch was asked for while too many earlier ones still lack their losses."""


class ModelError(TailbatchError, ValueError):
    """A model was given something it cannot use."""


class TrainingError(TailbatchError, RuntimeError):
    """Training cannot go on, for instance because the loss is no longer a number."""


class TrainingInterrupted(TailbatchError):
    """Training was asked to stop, and what it had reached is saved."""


class ResultError(TailbatchError, ValueError):
    """A run's specification or record cannot be used."""


class StudyError(TailbatchError, ValueError):
    """A study asks for something that does not exist."""


class MissingExtraError(TailbatchError, ImportError):
    """An optional package is needed and not installed."""


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Parameters
    ----------
    module
        Name to import, for instance ``"pyarrow.parquet"``.
    extra
        The extra of this package that brings it.

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
        # A broken installation of the package itself must not pass for a missing one.
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        raise MissingExtraError(
            f'{top} is not installed; run: pip install "tailbatch[{extra}]"'
        ) from None
