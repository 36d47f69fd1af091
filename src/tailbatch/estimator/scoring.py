"""Predictions for more rows than memory holds: piece by piece."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tailbatch.data.table_pieces import TablePiece, TablePieces
from tailbatch.errors import DataError, ModelError, check_number, require
from tailbatch.estimator.inputs import columns_of
from tailbatch.registry import check_known

MOST_ROWS = 65_536
"""Rows of a part of the output, and of a row group of Parquet; fewer where there are many labels."""

_FEWEST_ROWS = (
    1024  # as many as a model scores at a time: so the pieces do not change a bit of a score
)
_CELLS = 1 << 22  # of features in a piece, 32 MB
_SCORES = 1 << 24  # of scores in a part, 128 MB


class _Fitted(Protocol):
    """What is asked of a fitted classifier here."""

    label_names_: Any
    columns_: Any

    def predict(self, X: Any, *, as_sets: bool = False) -> Any: ...

    def predict_proba(self, X: Any) -> Any: ...


class TableScores:
    """Scores of the rows of tables, a piece at a time, by a fitted classifier.

    Parameters
    ----------
    classifier
        A fitted `TailbatchClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from tailbatch import TailbatchClassifier
    >>> X = np.random.default_rng(0).random((60, 3))
    >>> TableScores(TailbatchClassifier(epochs=2, random_state=0).fit(X, X > 0.5)).part_rows
    65536
    """

    def __init__(self, classifier: _Fitted) -> None:
        self._classifier = classifier
        names = getattr(classifier, "feature_names_in_", None)
        self._columns = columns_of(classifier.columns_, names)

    @property
    def part_rows(self) -> int:
        """How many rows of scores to write at a time."""
        return _power_of_two(_SCORES, len(self._classifier.label_names_), MOST_ROWS)

    @property
    def _piece_rows(self) -> int:
        """How many rows of a table to turn into features at a time."""
        return _power_of_two(_CELLS, len(self._columns.feature_names), self.part_rows)

    def table(
        self, path: Path, *, most: int | None = None, keep: Sequence[str] | None = None
    ) -> TablePieces:
        """Return a file as pieces of at most so many rows, with the columns that are looked for.

        Without `keep`, with all columns.
        """
        parts = self._columns.parts
        if not parts:
            raise ModelError(
                "the model was fitted on an array, which has no names to find columns by: fit it on a "
                "data frame or a file, or predict in Python"
            )
        # Texts stay as written: a reader that guessed would make 007 a number and NA a gap.
        kinds = {part.name for part in parts if part.kind != "number"}
        wanted = None if keep is None else {part.name for part in parts}
        as_text = {*self._columns.columns.as_text, *kinds}
        rows = min(self._piece_rows, most or MOST_ROWS)
        return TablePieces(path, rows, wanted, as_text, keep or ())

    def of(self, piece: TablePiece, predict: Callable[[Any], Any]) -> tuple[Any, tuple[str, ...]]:
        """Return what `predict` gives for the features of a piece, and notices about its columns."""
        try:
            features, notices = self._columns.transform(piece.frame)
            if self._classifier.columns_ is None:  # by name, as it was fitted
                pd = require("pandas", extra="cli")
                features = pd.DataFrame(features, columns=list(self._columns.feature_names))
            return predict(features), notices
        except DataError as error:
            if not piece.first:
                raise
            last = piece.first + len(piece.frame) - 1
            raise DataError(f"rows {piece.first:,} to {last:,}: {error}") from None


def _power_of_two(cells: int, width: int, most: int) -> int:
    fitting = max(cells // max(width, 1), _FEWEST_ROWS)
    return int(min(1 << (fitting.bit_length() - 1), most))


def _predicted_batches(
    classifier: _Fitted, source: Any, *, kind: str = "proba", rows: int | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield rows and what is predicted for them; see `TailbatchClassifier.predict_batches`."""
    predict: Mapping[str, Callable[[Any], Any]] = {
        "proba": classifier.predict_proba,
        "labels": classifier.predict,
        "sets": partial(classifier.predict, as_sets=True),
    }
    check_known("kind", kind, predict, error=DataError)
    if rows is not None:
        check_number("rows", rows, least=1, whole=True, error=DataError)
    scores = TableScores(classifier)
    if not isinstance(source, str | os.PathLike):
        if hasattr(source, "shape") or hasattr(source, "columns"):
            raise DataError(
                f"source must be a file or an iterable of batches, got one {type(source).__name__} of "
                "rows: give it to predict_proba, or put it into a list"
            )
        for X in source:
            # Columns by name, as of a file: a batch may have more of them, such as a number of the row.
            by_name = hasattr(X, "iloc") and hasattr(classifier, "feature_names_in_")
            piece = TablePiece(0, X, X, 0.0)
            found = scores.of(piece, predict[kind])[0] if by_name else predict[kind](X)
            yield X, found
        return
    table = scores.table(Path(source))
    for piece in replace(table, rows=rows or table.rows).read():
        yield piece.frame, scores.of(piece, predict[kind])[0]
