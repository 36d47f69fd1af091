"""What a file is by its name: the endings of files, in one place."""

from pathlib import Path

#: Tables as text: columns separated by tabs, commas or semicolons.
TEXT_TABLES = (".csv", ".tsv", ".tab")
#: One JSON object a line, or one list of them.
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
ARFF = ".arff"
#: What is no table for us, and easily saved as one.
SPREADSHEETS = (".xlsx", ".xls", ".ods")

#: What runs code when it is read.
PICKLES = (".pkl", ".pickle", ".joblib")

_LABEL_FILE = ".xml"


def suffix(path: str | Path) -> str:
    """Return the ending of a file's name in small letters, ``.gz`` aside.

    Examples
    --------
    >>> suffix("data/Yeast.ARFF.gz"), suffix("debtags")
    ('.arff', '')
    """
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def is_table(path: str | Path) -> bool:
    """Whether a file is a table by its name: CSV, TSV, JSON lines (plain or gzip) or Parquet.

    Examples
    --------
    >>> is_table("new.csv.gz"), is_table("yeast.arff")
    (True, False)
    """
    return suffix(path) in (*TEXT_TABLES, *JSON_LINES, PARQUET)


def label_file(labels: object) -> Path | None:
    """Return the MULAN XML file that `labels` names, None where it names columns.

    Examples
    --------
    >>> label_file("yeast.xml").name, label_file(Path("labels")).name, label_file("topic_")
    ('yeast.xml', 'labels', None)
    """
    if isinstance(labels, str) and labels.lower().endswith(_LABEL_FILE):
        return Path(labels)
    return labels if isinstance(labels, Path) else None
