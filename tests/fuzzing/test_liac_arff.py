"""Ours beside liac-arff on files that both accept, and the documented exceptions one by one."""

import random
from pathlib import Path

import arff
import numpy as np
import pytest
from fuzzing.differential import Disagreement, compare_with_liac
from fuzzing.targets import TARGETS

from tailbatch.data import read_arff

CORPUS = Path(__file__).parents[2] / "fuzzing" / "corpus" / "arff"
HEADER = "@relation r\n@attribute x {kind}\n@attribute y {{0,1}}\n@data\n"


def both(text, tmp_path):
    path = tmp_path / "data.arff"
    path.write_text(text, newline="")
    return read_arff(path, labels=-1, missing="impute"), arff.loads(text)


def test_many_changed_files_are_compared(monkeypatch):
    compared = []

    def noting(text, ours):
        compared.append(compare_with_liac(text, ours))

    monkeypatch.setattr("fuzzing.datasets.compare_with_liac", noting)
    rng = random.Random(3)
    for path in sorted(CORPUS.iterdir()):
        for _ in range(150):
            TARGETS["arff"].check(TARGETS["arff"].mutate(path.read_bytes(), rng))
    assert compared.count(True) > 20


def test_a_disagreement_is_found(tmp_path):
    text = HEADER.format(kind="{a,b,c}") + "a,0\nb,1\n"
    ours, _ = both(text, tmp_path)
    assert compare_with_liac(text, ours)
    with pytest.raises(Disagreement, match="liac-arff reads"):
        compare_with_liac(text.replace("a,0", "c,0"), ours)
    with pytest.raises(Disagreement, match="features"):
        compare_with_liac(text.replace("{a,b,c}", "{b,a,c}"), ours)
    with pytest.raises(Disagreement, match="rows"):
        compare_with_liac(text + "a,1\n", ours)


def test_liac_arff_cuts_the_fraction_of_integers(tmp_path):
    text = HEADER.format(kind="INTEGER") + "1.75,0\n-2.5,1\n"
    ours, theirs = both(text, tmp_path)
    assert ours.X[:, 0].tolist() == [1.75, -2.5]
    assert theirs["data"] == [[1, "0"], [-2, "1"]]
    assert compare_with_liac(text, ours)


def test_missing_values_are_imputed_by_us_alone(tmp_path):
    text = HEADER.format(kind="REAL") + "1,0\n?,1\n3,1\n"
    ours, theirs = both(text, tmp_path)
    assert ours.X[:, 0].tolist() == [1, 2, 3]
    assert theirs["data"][1][0] is None
    assert compare_with_liac(text, ours)


@pytest.mark.parametrize(
    ("old", "new", "ours_named", "theirs_named"),
    [
        ("x ", 'x" ', 'x"', "x"),
        ("x ", r"'a\'b' ", "a'b", r"a\'b"),
    ],
)
def test_marks_in_names_are_read_as_written_by_us_alone(
    old, new, ours_named, theirs_named, tmp_path
):
    text = (HEADER.format(kind="REAL") + "1,0\n").replace(f"attribute {old}", f"attribute {new}")
    ours, theirs = both(text, tmp_path)
    assert ours.feature_names == (ours_named,)
    assert theirs["attributes"][0][0] == theirs_named
    assert not compare_with_liac(text, ours)


def test_empty_nominal_values_are_none_for_us(tmp_path):
    text = HEADER.format(kind="{a,,b}") + "a,0\n"
    ours, theirs = both(text, tmp_path)
    assert ours.feature_names == ("x=b",)
    assert theirs["attributes"][0][1] == ["a", None, "b"]
    assert not compare_with_liac(text, ours)


def test_a_second_brace_is_part_of_a_value_for_us(tmp_path):
    text = HEADER.format(kind="{ {a,b}") + "b,0\n"
    ours, theirs = both(text, tmp_path)
    assert ours.feature_names == ("x=b",)
    assert theirs["attributes"][0][1] == ["a", "b"]
    assert not compare_with_liac(text, ours)


def test_a_carriage_return_alone_ends_a_line_for_us(tmp_path):
    text = HEADER.format(kind="REAL") + "1,0\r2,1\n3,0\n"
    path = tmp_path / "data.arff"
    path.write_text(text, newline="")
    ours = read_arff(path, labels=-1)
    np.testing.assert_array_equal(ours.X[:, 0], [1, 2, 3])
    assert not compare_with_liac(text, ours)
