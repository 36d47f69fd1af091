"""How options are read, and how settings are written as options."""

import pytest

from tailbatch.cli.options import (
    _as_option,
    _count,
    _kinds_option,
    _label_option,
    _named_table,
    _named_value,
    _number,
)


@pytest.mark.parametrize(
    ("text", "expected"), [("-5", -5), ("a,b", ["a", "b"]), ("tags:,", "tags:,"), (None, None)]
)
def test_labels_are_a_number_columns_or_a_name(text, expected):
    assert _label_option(text) == expected


def test_kinds_keep_the_format_of_a_date():
    kinds = _kinds_option(["price=number", "made=date:%d/%m/%Y"])
    assert kinds == {"price": "number", "made": "date:%d/%m/%Y"}


def test_a_setting_is_written_as_its_option_is():
    kinds = {"an id": "ignore"}
    assert _as_option({"kinds": "--kinds"}, "kinds", kinds) == "--kinds 'an id=ignore'"
    assert _as_option({}, "decay", 0.9) is None


def test_values_are_json_or_text():
    assert _named_value("latent=64") == ("latent", 64)
    assert _named_value("gate=linear") == ("gate", "linear")
    table = _named_table("weighted_bce:power=1:max_weight=20")
    assert table == {"name": "weighted_bce", "power": 1, "max_weight": 20}


def test_numbers_as_text():
    assert (_count(1, "row"), _count(1200, "row")) == ("1 row", "1,200 rows")
    shown = _number(1234.5), _number(float("nan")), _number(7, 0)
    assert shown == ("1,234.50", "-", "7")
