"""Tables as CSV, LaTeX and Markdown files, with every name escaped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tailbatch.analysis.keys import Arm, Key
from tailbatch.errors import markdown_escaped, printable
from tailbatch.files import replacing

#: Shown in a table for a missing value.
MISSING = "\N{EN DASH}"

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
}
#: Readable titles of the key columns.
READABLE = {"learner": "model", "data": "dataset", "arm": "strategy"}


def write_table(
    table: pd.DataFrame,
    folder: Path,
    name: str,
    *,
    caption: str,
    reading: pd.DataFrame | None = None,
    bold: pd.DataFrame | None = None,
) -> None:
    """Write ``name.csv``, ``name.tex`` and ``name.md`` into a folder.

    Parameters
    ----------
    table
        The content of the CSV file, at full precision.
    reading
        The content of the other two, to four digits; None uses the same table.
    bold
        Which of its cells are best.
    """
    shown = table if reading is None else reading
    texts = {
        ".csv": csv_text(table),
        ".tex": _latex_text(shown, caption, bold, label=name),
        ".md": _markdown_text(shown, caption, bold),
    }
    for suffix, text in texts.items():
        write_text(text, folder / f"{name}{suffix}")


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def csv_text(table: pd.DataFrame) -> str:
    r"""Return a table as CSV; text that a spreadsheet would run as a formula starts with an apostrophe.

    Examples
    --------
    >>> csv_text(pd.DataFrame({"label": ["=HYPERLINK(1)", "a,b"], "gain": [-0.5, None]}))
    'label,gain\n\'=HYPERLINK(1),-0.5\n"a,b",\n'
    """
    harmless = table.rename(columns=_no_formula)
    for column in harmless:
        if not is_number(harmless[column]):
            harmless[column] = [_no_formula(value) for value in harmless[column]]
    text: str = harmless.to_csv(index=False, lineterminator="\n")
    return text


def _no_formula(value: object) -> object:
    if not isinstance(value, str | Key):
        return value
    text = printable(str(value))
    return f"'{text}" if text.lstrip()[:1] in {"=", "+", "-", "@"} else text


def _latex_text(
    table: pd.DataFrame, caption: str, bold: pd.DataFrame | None = None, *, label: str = "table"
) -> str:
    r"""Return a table as LaTeX for the booktabs package, with the label ``tab:<label>``.

    Examples
    --------
    >>> table = pd.DataFrame({"data": ["a_b"], "gain": [0.5]})
    >>> print(_latex_text(table, "Gains, 95% intervals", label="gains"))
    \begin{table}
    \centering
    \caption{Gains, 95\% intervals}
    \label{tab:gains}
    \begin{tabular}{lr}
    \toprule
    dataset & gain \\
    \midrule
    a\_b & 0.5000 \\
    \bottomrule
    \end{tabular}
    \end{table}
    <BLANKLINE>
    """
    header, rows = _cells(table, bold, _latex_escaped, lambda text: rf"\textbf{{{text}}}")
    # A mean with its half-width is text in a column of numbers.
    right = [is_number(table[name]) or str(name)[-1:] in ("↑", "↓") for name in table]
    kinds = "".join("r" if number else "l" for number in right)
    opening = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_escaped(caption)}}}"]
    opening += [
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
    ]
    lines = [" & ".join(row) + r" \\" for row in rows]
    return "\n".join([*opening, *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_escaped(text: str) -> str:
    r"""Return text that LaTeX prints literally.

    Examples
    --------
    >>> _latex_escaped("50% of $x_1$")
    '50\\% of \\$x\\_1\\$'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_text(table: pd.DataFrame, caption: str, bold: pd.DataFrame | None = None) -> str:
    r"""Return a table as Markdown.

    Examples
    --------
    >>> print(_markdown_text(pd.DataFrame({"dataset": ["a|b"], "gain": [0.5]}), "Gains"))
    Gains
    <BLANKLINE>
    | dataset | gain |
    |---|---:|
    | a\|b | 0.5000 |
    <BLANKLINE>
    """
    header, rows = _cells(table, bold, markdown_escaped, lambda text: f"**{text}**")
    rule = ["---:" if is_number(table[name]) else "---" for name in table]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(rule) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([markdown_escaped(caption), "", *lines, ""])


def _cells(
    table: pd.DataFrame,
    bold: pd.DataFrame | None,
    escaped: Callable[[str], str],
    strong: Callable[[str], str],
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as escaped text, with the bold cells marked."""
    header = [escaped(READABLE.get(str(name), str(name)).replace("_", " ")) for name in table]
    texts = [[escaped(cell_text(value)) for value in row] for row in table.itertuples(index=False)]
    if bold is not None:
        texts = [
            [strong(text) if marked else text for text, marked in zip(row, marks, strict=True)]
            for row, marks in zip(texts, bold.to_numpy(dtype=bool), strict=True)
        ]
    return header, texts


def cell_text(value: object, digits: int = 4) -> str:
    """Return a value as text for a table.

    Examples
    --------
    >>> [cell_text(value) for value in (0.12345, 12, True, None, float("nan"), "scene")]
    ['0.1235', '12', 'yes', '\N{EN DASH}', '\N{EN DASH}', 'scene']
    >>> cell_text(Arm("none"))
    'no batches'
    """
    if isinstance(value, Arm) and not value.draws_batches:
        return "no batches"  # "none", as records have it, reads like a missing value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}f}" if np.isfinite(value) else MISSING
    return MISSING if value is None or value is pd.NA else str(value)


def is_number(column: pd.Series) -> bool:
    """Return whether a column is right-aligned."""
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(column) and not kinds.is_bool_dtype(column))
