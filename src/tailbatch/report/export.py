"""Tables as CSV, LaTeX and Markdown files, with every name escaped."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from tailbatch.analysis.keys import Key
from tailbatch.errors import markdown_escaped, printable
from tailbatch.files import replacing
from tailbatch.report.figures import save
from tailbatch.report.section import FileTable, Section, cell_text, is_number

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


def write_files(sections: Iterable[Section], folder: Path) -> None:
    """Write the tables and figures of sections into a folder; those without data are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = tuple(sections)
    for kept in (kept for section in sections for kept in section.tables if len(kept.table)):
        _write_table(kept, folder)
    for name, draw in (item for section in sections for item in section.figures.items()):
        figure = draw()
        save(figure, folder / f"{name}.pdf")
        figure.set_layout_engine("none")  # one layout is enough, and takes half of the time
        save(figure, folder / f"{name}.png")


def _write_table(kept: FileTable, folder: Path) -> None:
    """Write the CSV file at full precision; for readers, also LaTeX and Markdown to four digits."""
    write_text(csv_text(kept.table), folder / f"{kept.name}.csv")
    if kept.caption:
        shown = kept.table if kept.reading is None else kept.reading
        latex = _latex_text(shown, kept.caption, kept.bold, label=kept.name)
        write_text(latex, folder / f"{kept.name}.tex")
        write_text(_markdown_text(shown, kept.caption, kept.bold), folder / f"{kept.name}.md")


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
    """Return a table as LaTeX for the booktabs package, with the label ``tab:<label>``."""
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
    """Return text that LaTeX prints literally."""
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_text(table: pd.DataFrame, caption: str, bold: pd.DataFrame | None = None) -> str:
    """Return a table as Markdown."""
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
