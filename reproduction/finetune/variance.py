"""How far selection lowers the variance of each label's gradient, on frozen embeddings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reproduction.finetune.runs import ARMS, STUDIES, Run, data_of, fitted, new_model

from tailbatch.losses import make_loss
from tailbatch.models import MultiLabelModel
from tailbatch.selection import make_selector
from tailbatch.training import Rows, score_rows

RECORD = Path(__file__).parent / "variance.json"
CORRECTED = ("importance", "balanced, corrected")
RUN = Run(study="frozen-32", arm="random", loss="weighted_bce", epochs=1.0, lr=3e-3, seed=0)


def measure(store: Path) -> None:
    """Measure at the first step and after an epoch of random batches, and write the record."""
    parts = data_of(RUN.study, store)
    Y = np.asarray(parts.train.Y)
    moments = {
        "first step": new_model(RUN, parts.train),
        "after an epoch": fitted(RUN, parts)[0],
    }
    found: dict[str, dict[str, list[float]]] = {}
    for arm in CORRECTED:
        strategy, options = ARMS[arm]
        for moment, model in moments.items():
            selector = make_selector(
                strategy,
                Y,
                batch_size=STUDIES[RUN.study].batch,
                warm_up_epochs=0,
                loss=model.loss,
                **options,
            )
            worth = worth_of_a_draw(_errors(model, parts.train.X, Y), selector.probabilities())
            found.setdefault(arm, {})[moment] = worth.round(3).tolist()
    RECORD.write_text(json.dumps(found) + "\n")


def worth_of_a_draw(
    errors: NDArray[np.float64], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return for each label how many uniform draws one corrected draw is worth.

    The second moment of a label's gradient by its logit, ``sum_i e_ij^2 / n`` with uniform draws, over
    that with probabilities p and weights 1 / (n p), ``sum_i e_ij^2 / (n^2 p_i)``.

    Examples
    --------
    >>> errors = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> worth_of_a_draw(errors, np.array([0.8, 0.2])).round(3)
    array([1.6, 0.4])
    """
    squares = np.square(errors)
    return np.asarray(squares.sum(axis=0) / (squares.T @ (1 / (len(errors) * probabilities))))


def _errors(model: MultiLabelModel, X: Any, Y: NDArray[np.bool_]) -> np.ndarray:
    """Return how far each logit is pulled: the cell's weight times the error of its probability."""
    logits = score_rows(lambda x: model.eval()(x), Rows(X)).astype(np.float64)
    weights = np.where(Y, make_loss(RUN.loss, Y).positive_weights, 1.0)
    return np.asarray(weights * (1 / (1 + np.exp(-logits)) - Y))
