"""Numbers parsed many at once are those `float` gives, bit for bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailbatch.data.arff_rows import _numbers, _plain_dense

plain = st.from_regex(r"-?[0-9]{1,10}(\.[0-9]{0,10})?", fullmatch=True)
long = st.from_regex(r"-?[0-9]{0,25}\.[0-9]{1,25}", fullmatch=True)
floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
halfway = st.integers(2**52, 2**54).map(lambda n: f"{n}.5")


def parsed(tokens):
    numbers = _numbers([",".join(tokens).encode()])
    return None if numbers is None else numbers[0]


@given(tokens=st.lists(st.one_of(plain, long, floats, halfway), min_size=1, max_size=30))
def test_as_float_gives_them(tokens):
    assert parsed(tokens).tolist() == [float(token) for token in tokens]


@given(tokens=st.lists(plain, min_size=1, max_size=30))
def test_plain_ones_as_float_gives_them(tokens):
    assert parsed(tokens).tolist() == [float(token) for token in tokens]


@pytest.mark.parametrize(
    "text", ["1-2", "--1", "1-", ".", "-", "1.2.3", "-.", "1e", "e5", "+-1", "1e5.5", "inf", "1_0"]
)
def test_what_is_no_number_is_left_to_the_careful_reader(text):
    for tokens in ([text], ["7", text, "8.5"], [text, "."], [".", text]):
        assert parsed(tokens) is None


@settings(max_examples=500)
@given(text=st.text("0123456789+-.eE, \n\t", max_size=40))
def test_any_row_is_left_to_the_careful_reader_or_gives_what_float_gives(text):
    rows = [line.split(",") for line in text.split("\n") if line.strip()] or [[""]]
    cells = [cell for row in rows for cell in row]
    numbers = _plain_dense(text.encode(), len(rows[0]))
    if numbers is not None:
        assert numbers.ravel().tolist() == [float(cell) for cell in cells]
