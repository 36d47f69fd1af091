"""Texts by default settings: words, embeddings beside them, encoders that are trained, label names.

    python -m benchmarks texts

GoEmotions: the first training rows, the official test rows. Every arm is one `TailbatchClassifier` with
default settings but for what its name says; ``shuffled`` gives each label another one's name, a control.
Each run is written to ``benchmarks/texts.json`` as soon as it is done; another start goes on. ``ARMS``
(such as ``ARMS="words-12000 both-12000"``) and ``SEEDS`` choose.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import publish, table
from tailbatch import TailbatchClassifier
from tailbatch.data import load_texts
from tailbatch.files import replacing
from tailbatch.metrics import average_precision_by_label, evaluate
from tailbatch.models.finetuned import label_sentences

RESULTS = Path(__file__).with_name("texts.json")
SETTINGS: dict[str, dict[str, Any]] = {
    "words": {},
    "both": {"encoder": "minilm"},
    "finetuned": {"encoder": "minilm", "finetune": True},
    "names": {"encoder": "minilm", "finetune": True, "label_texts": "names"},
    "shuffled": {"encoder": "minilm", "finetune": True},
}
ARMS = (
    "words-1500", "both-1500", "finetuned-1500", "names-1500", "shuffled-1500",
    "words-12000", "both-12000", "finetuned-12000",
)  # fmt: skip
RAREST = 9


def shuffled_names(label_names: Sequence[str]) -> dict[str, str]:
    """Return for each label the name of another one, as a control."""
    texts = label_sentences(label_names, "names") or []
    order = np.random.default_rng(0).permutation(len(texts))
    return {label: texts[other] for label, other in zip(label_names, order, strict=True)}


def measured(arm: str, seed: int) -> dict[str, Any]:
    """Train one arm and return its scores on the test rows, and the seconds of the processor."""
    name, _, rows = arm.partition("-")
    parts = load_texts("goemotions")
    train, test = parts.train.take(range(int(rows))), parts.test
    settings = dict(SETTINGS[name])
    if name == "shuffled":
        settings["label_texts"] = shuffled_names(train.label_names)
    begun = time.process_time()
    classifier = TailbatchClassifier(random_state=seed, label_names=train.label_names, **settings)
    classifier.fit(list(train.texts), train.Y)
    trained = time.process_time()
    scores = classifier.predict_proba(list(test.texts))
    scored = time.process_time()
    by_label = average_precision_by_label(test.Y, scores)
    rarest = np.argsort(parts.train.Y.sum(axis=0), kind="stable")[:RAREST]
    wanted = ("macro_average_precision", "minority_average_precision", "macro_f")
    found = evaluate(
        test.Y,
        scores,
        minority=classifier.minority_labels_,
        thresholds=classifier.thresholds_,
        only=wanted,
    )
    return {
        **{metric: round(float(found[metric]), 4) for metric in wanted},
        "rarest": round(float(np.nanmean(by_label[rarest])), 4),
        "fit_seconds": round(trained - begun, 1),
        "predict_seconds": round(scored - trained, 1),
    }


def main() -> None:
    """Run what is not recorded, and publish the means over seeds."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    arms = os.environ.get("ARMS", " ".join(ARMS)).split()
    for seed in range(int(os.environ.get("SEEDS", "1"))):
        for arm in arms:
            if f"{arm}-{seed}" in known:
                continue
            record = measured(arm, seed)
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            known[f"{arm}-{seed}"] = record
            with replacing(RESULTS) as temporary:
                temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            print(arm, seed, record, flush=True)
    publish("texts", _text(known))


def _text(known: dict[str, dict[str, Any]]) -> str:
    rows = []
    for arm in sorted({key.rpartition("-")[0] for key in known}, key=_place):
        runs = [run for key, run in known.items() if key.rpartition("-")[0] == arm]
        cells = [
            f"{np.mean([run[name] for run in runs]):.3f}"
            for name in (
                "minority_average_precision",
                "rarest",
                "macro_average_precision",
                "macro_f",
            )
        ]
        seconds = np.mean([run["fit_seconds"] for run in runs])
        rows.append([*arm.split("-"), *cells, f"{seconds:.0f}", str(len(runs))])
    header = [
        "arm",
        "rows",
        "minority AP",
        "nine rarest",
        "Macro-AP",
        "Macro-F",
        "seconds",
        "seeds",
    ]
    return (
        "## Texts\n\nGoEmotions, the first training rows, the official test rows, default settings of "
        "each arm. Seconds are the processor's, for `fit`, embeddings made before aside.\n\n"
        + table(header, rows)
    )


def _place(arm: str) -> tuple[int, int]:
    name, _, rows = arm.partition("-")
    return int(rows), list(SETTINGS).index(name)


if __name__ == "__main__":
    main()
