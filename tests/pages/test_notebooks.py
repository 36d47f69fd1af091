"""The notebooks run from top to bottom, show what they promise, and are committed without outputs."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs the extra dev")
nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
#: What the reader of each one sees: (the kind of output, how many at least).
SHOWN = {
    "own_loop": {"text/html": 3, "image/png": 3},
    "table_with_text": {"text/html": 6, "image/png": 2},
    "comparison": {"text/html": 3, "image/png": 1},
    "labeling": {"text/html": 3, "image/png": 1},
}


#: Appended to a notebook: what of its results a test looks at.
ASKED = {
    "comparison": """
by_label = result.by_label()
before, after = by_label.columns[-2:]
print("largest gain", float((by_label[after] - by_label[before]).abs().max()))
"""
}


def read(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def test_all_are_tested():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_no_outputs_are_committed(name):
    code = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("name", SHOWN)
def test_it_runs_and_shows_what_it_promises(name):
    book = read(name)
    if name in ASKED:
        book.cells.append(nbformat.v4.new_code_cell(ASKED[name]))
    folder = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(book, timeout=900, resources=folder).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    kinds = [kind for output in outputs for kind in output.get("data", ())]
    for kind, least in SHOWN[name].items():
        assert kinds.count(kind) >= least, (kind, kinds)
    if name == "table_with_text":
        printed = next(
            output.text for output in outputs if "minority labels" in output.get("text", "")
        )
        assert float(printed.split()[-1]) > 0.5, "rare labels are found"
    if name == "labeling":
        printed = next(o.text for o in outputs if "smallest gain" in o.get("text", ""))
        assert float(printed.split()[-1]) > 0.1, "rare labels are found after a review"
    if name == "comparison":
        assert float(outputs[-1].text.split()[-1]) > 0.01, "the strategies differ"
    if name == "own_loop":
        printed = "".join(output.get("text", "") for output in outputs)
        means = [float(line.split()[-1]) for line in printed.splitlines() if "objective" in line]
        assert means == sorted(means, reverse=True), "each epoch is better than the one before"
