"""Texts handed to the estimator: lists as tables, encoders beside words, and encoders to train."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scipy import sparse

from tailbatch import defaults
from tailbatch.data import Columns, FittedColumns
from tailbatch.errors import DataError, ModelError, require, setting
from tailbatch.models import FineTuned

TEXT = "text"
"""What the column of a list of texts is called."""


def texts_as_frame(X: Any, columns: Columns | FittedColumns | None = None) -> Any:
    """Return a list, array or series of texts as a data frame with one column; anything else as it is.

    Parameters
    ----------
    X
        What `fit` or `predict` was given.
    columns
        What to take columns for, or how training rows became features: their one column gives the name.

    Examples
    --------
    >>> texts_as_frame(["so happy", None]).columns.tolist(), texts_as_frame([[1.0], [2.0]])
    (['text'], [[1.0], [2.0]])
    >>> texts_as_frame(["so happy", b"so sad"])
    Traceback (most recent call last):
    ...
    tailbatch.errors.DataError: X must hold a text in each row, got b'so sad' in row 1: decode bytes, ...
    """
    if hasattr(X, "columns") or sparse.issparse(X) or getattr(X, "ndim", 1) != 1:
        return X
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    if not isinstance(X, list | tuple) and (kind not in "OUST" or not hasattr(X, "__iter__")):
        return X
    cells = list(X)
    if not any(isinstance(cell, str | bytes) for cell in cells):
        return X
    for row, cell in enumerate(cells):
        if not isinstance(cell, str) and cell is not None and cell == cell:
            raise DataError(
                f"X must hold a text in each row, got {cell!r:.40} in row {row}: decode bytes, and put "
                "numbers beside texts into a data frame"
            )
    pd = require("pandas", extra="text")
    known = getattr(columns, "text", ())
    if isinstance(columns, FittedColumns):
        known = {part.name for part in columns.parts}
    name = next(iter(known)) if len(known) == 1 else TEXT
    texts = [cell if isinstance(cell, str) else None for cell in cells]
    return pd.DataFrame({name: pd.Series(texts, dtype=object)})


def columns_with(
    columns: Columns | None, encoder: Any, *, finetune: bool, is_text: bool
) -> Columns | None:
    """Return what to take columns for, with the classifier's encoder, and texts as such.

    Parameters
    ----------
    columns, encoder, finetune
        As the classifier has them.
    is_text
        Whether X was a list of texts.
    """
    if columns is not None and not isinstance(columns, Columns):
        raise DataError(f"columns must be tailbatch.data.Columns, {_instead_of(columns)}")
    if is_text and len((columns or Columns()).text) != 1:
        columns = replace(columns or Columns(), text=(TEXT,))
    if encoder is None and not finetune:
        return columns
    if columns is not None and encoder is not None and columns.encoder not in (None, encoder):
        raise DataError(
            f"encoder={encoder!r:.60} and Columns(encoder={columns.encoder!r:.60}) differ: give one"
        )
    columns = columns or Columns()
    return replace(columns, encoder=encoder or columns.encoder, finetune=finetune)


def settings_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the estimator's settings with the model that they ask for: `FineTuned` for ``finetune``."""
    if not settings["finetune"]:
        if settings["label_texts"] is not None:
            raise ModelError(
                f"{setting('label_texts')} starts a model of texts: set {setting('finetune', True)}, too"
            )
        return dict(settings)
    if settings["model"] != defaults.MODEL:
        raise ModelError(
            f"{setting('finetune', True)} trains the encoder with a model of its own: leave "
            f"{setting('model', settings['model'])} out"
        )
    if callable(settings["encoder"]):
        raise ModelError(
            f"{setting('finetune', True)} needs an encoder by name or folder, and a function has no "
            "weights to train"
        )
    return dict(settings) | {"model": FineTuned, "model__label_texts": settings["label_texts"]}


def model_of(settings: Mapping[str, Any]) -> Any:
    """Return the model of an estimator's settings: a name, a class or a function."""
    return FineTuned if settings["finetune"] else settings["model"]


def with_tokens(settings: Mapping[str, Any], columns: FittedColumns | None) -> dict[str, Any]:
    """Return the settings with what a model of texts must know of the columns it trains on."""
    if not settings["finetune"] or columns is None:
        return dict(settings)
    given = {"model__encoder": columns.columns.encoder, "model__tokens": columns.tokens}
    return dict(settings) | given


def _instead_of(given: object) -> str:
    """Return what was given in place of Columns, and what to write."""
    names = [given] if isinstance(given, str) else given
    if isinstance(names, Mapping):
        remedy = f"columns=Columns(kinds={dict(names)!r:.60})"
    elif isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        remedy = f"columns=Columns(text={list(names)!r:.60}) for columns of text"
    else:
        remedy = "for instance columns=Columns(text=['subject'])"
    return f"got {given!r:.60}; write {remedy}"
