"""Names with control characters, from files into messages, datasets and the terminal."""

import sys

import pytest

from tailbatch.cli import main
from tailbatch.data import MultiLabelDataset, load_dataset, read_arff
from tailbatch.errors import DataError

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil"
ARFF = f"""@relation 'r: -C -2'
@attribute 'x{ESCAPES}' numeric
@attribute 'y{ESCAPES}' {{0,1}}
@attribute z {{0,1}}
@data
1,0,1
2,1,1
3,1,0
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1,0,1", "one,0,1"),
        ("1,0,1", "1,2,1"),
        ("1,0,1", "1,0"),
        ("z {0,1}", f"z {{0,{ESCAPES}}}"),
        ("z {0,1}", f"z {ESCAPES}"),
        ("@data", f"{ESCAPES}\n@data"),
        ("attribute z", f"attribute 'y{ESCAPES}'"),
    ],
)
def test_a_message_about_odd_names_is_one_printable_line(old, new, tmp_path):
    path = tmp_path / "data.arff"
    path.write_text(ARFF.replace(old, new))
    with pytest.raises(DataError) as caught:
        read_arff(path)
    assert str(caught.value).isprintable()


def test_a_table_with_odd_columns_has_a_printable_message(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"x{ESCAPES},y\n1,0\n")
    with pytest.raises(DataError, match="the columns are: ") as caught:
        load_dataset(path, labels=["no such column"])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("names", [["\ud800"], ["a\udc80b"]])
def test_half_a_character_is_no_name(names):
    with pytest.raises(DataError, match="holds half a character; rename it"):
        MultiLabelDataset.from_arrays([[1.0]], [[1]], label_names=names)


def test_half_a_character_spelled_in_a_file_is_no_name(tmp_path):
    path = tmp_path / "data.arff"
    path.write_text(ARFF.replace("attribute z", r"attribute 'z\ud800'"))
    with pytest.raises(DataError, match="holds half a character"):
        read_arff(path)


@pytest.mark.parametrize("arguments", [("describe",), ("describe", "--json")])
def test_the_terminal_is_shown_no_control_characters(arguments, tmp_path, monkeypatch, capsys):
    path = tmp_path / "da\x1b[31mta.arff"
    path.write_text(ARFF)
    monkeypatch.setattr(sys, "argv", ["tailbatch", "datasets", *arguments, str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    shown = "".join(capsys.readouterr())
    assert all(character.isprintable() or character == "\n" for character in shown)
