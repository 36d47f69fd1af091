"""Labels cut to a few positives: what each way to learn from texts makes of 0, 4, 8, 16, 32 and 64.

    python -m benchmarks rarity

GoEmotions: `ROWS` training rows, all official test rows. The labels of middling frequency are cut
together: only k rows with each of them are kept, the others are left out of training altogether, since
a row without its label would be a wrong negative. Every arm sees the same rows, so that arms are paired
over labels and seeds. ``shuffled`` gives each label another one's name. Each fit is written to
``benchmarks/rarity.json`` as soon as it is done; another start goes on. ``ARMS``, ``COUNTS`` and
``SEEDS`` choose.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.bench_texts import SETTINGS, shuffled_names
from benchmarks.harness import publish, table
from tailbatch import TailbatchClassifier
from tailbatch.data import load_texts
from tailbatch.files import replacing
from tailbatch.metrics import average_precision_by_label
from tailbatch.seeds import stream

RESULTS = Path(__file__).with_name("rarity.json")
COUNTS = (0, 4, 8, 16, 32, 64)
ARMS = ("logistic", "balanced", "words", "both", "finetuned", "names", "shuffled")
ROWS = 12_000
CUT = slice(6, 14)  # labels by frequency, from the rarest: enough positives to cut, and test rows


def cut(Y: NDArray[np.bool_], count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels that are cut and the rows that are kept, with `count` positives of each.

    A row with several such labels stays only if each of them keeps it.
    """
    labels = np.argsort(Y.sum(axis=0), kind="stable")[CUT]
    drawn = np.zeros((len(Y), len(labels)), dtype=np.bool_)
    for place, label in enumerate(labels.tolist()):
        alone = np.flatnonzero(Y[:, label] & (Y[:, labels].sum(axis=1) == 1))
        order = stream(seed, "rarity", label).permutation(alone)
        drawn[order[:count], place] = True
    kept = (drawn == Y[:, labels]).all(axis=1)
    return labels, np.flatnonzero(kept)


def scored(arm: str, train: Any, test: Any, seed: int) -> NDArray[np.float64]:
    """Train one arm and return the probabilities of the test rows."""
    if arm in ("logistic", "balanced"):
        words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", min_df=2)
        X, T = words.fit_transform(train.texts), words.transform(test.texts)
        scores = np.zeros(test.Y.shape)
        weight = "balanced" if arm == "balanced" else None
        for label in np.flatnonzero(train.Y.any(axis=0)):
            model = LogisticRegression(C=10, class_weight=weight, max_iter=200)
            scores[:, label] = model.fit(X, train.Y[:, label]).predict_proba(T)[:, 1]
        return scores
    settings = dict(SETTINGS[arm])
    if arm == "shuffled":
        settings["label_texts"] = shuffled_names(train.label_names)
    model = TailbatchClassifier(random_state=seed, label_names=train.label_names, **settings)
    return model.fit(list(train.texts), train.Y).predict_proba(list(test.texts))


def main() -> None:
    """Run what is not recorded, and publish the mean average precision by arm and positives."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    parts = load_texts("goemotions")
    whole = parts.train.take(range(ROWS))
    arms = os.environ.get("ARMS", " ".join(ARMS)).split()
    counts = [int(word) for word in os.environ.get("COUNTS", " ".join(map(str, COUNTS))).split()]
    for seed in range(int(os.environ.get("SEEDS", "1"))):
        for count in counts:
            labels, rows = cut(whole.Y, count, seed)
            for arm in arms:
                if (key := f"{arm}-{count}-{seed}") in known:
                    continue
                scores = scored(arm, whole.take(rows), parts.test, seed)
                found = average_precision_by_label(parts.test.Y, scores)[labels]
                known[key] = {
                    whole.label_names[j]: round(float(ap), 4)
                    for j, ap in zip(labels, found, strict=True)
                }
                with replacing(RESULTS) as temporary:
                    temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
                print(key, known[key], flush=True)
    publish("rarity", _text(known))


def _text(known: dict[str, dict[str, float]]) -> str:
    runs: dict[tuple[str, int], list[float]] = {}
    for key, by_label in known.items():
        arm, count, _ = key.split("-")
        runs.setdefault((arm, int(count)), []).append(float(np.mean(list(by_label.values()))))
    counts = sorted({count for _, count in runs})
    rows = [
        [arm, *(f"{np.mean(runs[arm, k]):.3f}" if (arm, k) in runs else "" for k in counts)]
        for arm in ARMS
        if any(arm == other for other, _ in runs)
    ]
    labels = len(next(iter(known.values())))
    return (
        f"## Rarity\n\nGoEmotions, {ROWS:,} rows: {labels} labels cut together to so many positives; "
        "their mean average precision on all test rows.\n\n"
        + table(["positives", *map(str, counts)], rows)
    )


if __name__ == "__main__":
    main()
