"""Numbers parsed many at once are those `float` gives, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailbatch.data.decimals import parse_decimals

plain = st.from_regex(r"-?[0-9]{1,10}(\.[0-9]{0,10})?", fullmatch=True)
long = st.from_regex(r"-?[0-9]{0,25}\.[0-9]{1,25}", fullmatch=True)
floats = st.floats(allow_nan=False, allow_infinity=False).map(repr)
halfway = st.integers(2**52, 2**54).map(lambda n: f"{n}.5")


@given(
    tokens=st.lists(st.one_of(plain, long, floats, halfway), min_size=1, max_size=30),
    separator=st.sampled_from([",", " ", "\n", "}\n{"]),
)
def test_as_float_gives_them(tokens, separator):
    text = (separator.join(tokens) + "\n").encode()
    expected = np.array([float(token) for token in tokens])
    assert parse_decimals(text).numbers.tobytes() == expected.tobytes()


@given(tokens=st.lists(plain, min_size=1, max_size=30))
def test_plain_ones_as_float_gives_them(tokens):
    expected = np.array([float(token) for token in tokens])
    assert (
        parse_decimals((",".join(tokens) + "\n").encode()).numbers.tobytes() == expected.tobytes()
    )


@pytest.mark.parametrize(
    "text", ["1-2", "--1", "1-", ".", "-", "1.2.3", "-.", "1e", "e5", "+-1", "1e5.5"]
)
def test_what_is_no_number_is_refused(text):
    for line in (f"{text}\n", f"7,{text},8.5\n"):
        with pytest.raises(ValueError, match="float"):
            parse_decimals(line.encode())


def test_every_other_byte_separates():
    found = parse_decimals(b"1/2?x_3\n")
    assert found.numbers.tolist() == [1, 2, 3]
    assert found.separators.tobytes() == b"/?x_\n"
    assert found.follows_number.tolist() == [True, True, False, False, True]
    assert parse_decimals(b"\n").numbers.tolist() == []


@settings(max_examples=500)
@given(text=st.text("0123456789+-.eE, \n", max_size=40))
def test_any_text_gives_what_float_gives_for_each_token(text):
    tokens = text.replace(",", " ").split()
    try:
        expected = [float(token) for token in tokens]
    except ValueError:
        with pytest.raises(ValueError, match="float"):
            parse_decimals(f"{text}\n".encode())
    else:
        assert parse_decimals(f"{text}\n".encode()).numbers.tolist() == expected
