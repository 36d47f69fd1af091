"""Make the messy table of the tutorial: support tickets with text, dates, amounts, gaps and tags.

    python examples/tickets.py FOLDER

writes tickets.csv to learn from, tickets_test.csv to judge by, and tickets_new.csv, which has no tags.
For the chapter on labeling: tickets_few.csv, the first 150 of them, tickets_pool.csv without tags, and
tickets_answers.csv, which a person would not have: what its tags are.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

TOPICS = {
    "bug": (0.34, "crash error freezes screen broken button blank fails slow"),
    "billing": (0.30, "invoice charged card payment twice amount tax receipt"),
    "login": (0.24, "password reset login locked account code email"),
    "export": (0.10, "csv export download report file spreadsheet"),
    "refund": (0.07, "refund money back return cancel"),
    "api": (0.05, "api token endpoint webhook request"),
    "security": (0.03, "phishing breach suspicious leak stolen"),
    "accessibility": (0.02, "reader contrast keyboard blind captions"),
}
FILLER = "hello please help my the team since yesterday again when try page app we cannot"


def tickets(count: int, seed: int = 0) -> pd.DataFrame:
    """Return support tickets; tags say what their subjects are about, with some noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        tags = [tag for tag, (share, _) in TOPICS.items() if rng.random() < share]
        words = [w for tag in tags for w in rng.choice(TOPICS[tag][1].split(), 2)]
        words += list(rng.choice(FILLER.split(), rng.integers(4, 9)))
        if rng.random() < 0.15:  # a word that misleads
            words.append(str(rng.choice(TOPICS[str(rng.choice(list(TOPICS)))][1].split())))
        rng.shuffle(words)
        day = np.datetime64("2025-01-01") + int(rng.integers(365))
        rows.append(
            {
                "ticket_id": f"T-{10_000 + number}",
                "created": str(day),
                "subject": " ".join(words),
                "plan": rng.choice(["free", "pro", "team"], p=[0.5, 0.3, 0.2]),
                "paid": f"{rng.gamma(2, 30):.2f} EUR",
                "age_days": rng.integers(1, 900) if rng.random() > 0.04 else None,
                "tags": ";".join(tags),
            }
        )
    return pd.DataFrame(rows)


def answer(review: Path, answers: pd.DataFrame) -> None:
    """Answer a review file as a person would who reads each ticket."""
    tags = answers.set_index("ticket_id")["tags"].fillna("").str.split(";")
    table = pd.read_csv(review, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    for row, (ticket, asked) in enumerate(
        zip(table["ticket_id"], table["review_labels"], strict=True)
    ):
        for label in asked.split("; "):
            table.loc[row, label] = "yes" if label in tags[ticket] else "no"
    table.to_csv(review, index=False, encoding="utf-8-sig")


def write(folder: Path) -> None:
    table = tickets(2100)
    table[:900].to_csv(folder / "tickets.csv", index=False)
    table[900:1300].to_csv(folder / "tickets_test.csv", index=False)
    table[:150].to_csv(folder / "tickets_few.csv", index=False)
    table[1500:].drop(columns="tags").to_csv(folder / "tickets_pool.csv", index=False)
    table.loc[1500:, ["ticket_id", "tags"]].to_csv(folder / "tickets_answers.csv", index=False)
    new = table[1300:1500].drop(columns="tags")
    new.loc[new.index[0], "plan"] = "enterprise"  # a plan that the training rows do not have
    new.to_csv(folder / "tickets_new.csv", index=False)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
