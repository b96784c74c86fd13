"""Numbers are found, read, compared and written exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.planner.numbers import (
    count_quantities,
    extract_answer,
    find_numbers,
    format_number,
    implied_numbers,
    last_number,
    parse_number,
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("She paid $1,250.50 for 3 of them", {Fraction("1250.5"), Fraction(3)}),
        ("18*.5 and 7", {Fraction(18), Fraction("0.5"), Fraction(7)}),
        ("#12 plus a1 and v2.0", set()),
        ("twenty-five boys and three hundred and five girls", {Fraction(25), Fraction(305)}),
        ("two thousand, one", {Fraction(2001)}),
        ("nobody and none", set()),
        ("9" * 80, set()),
    ],
)
def test_finds_numbers_in_digits_and_words(text, numbers):
    assert find_numbers(text) == numbers


def test_knows_what_words_imply():
    assert implied_numbers("twice a week") == {2, Fraction(1, 2), 7, 52, 4}
    assert implied_numbers("20% off") == {100, Fraction("0.2"), Fraction("0.8"), Fraction("1.2")}
    assert implied_numbers("3/4 of it") == {Fraction("0.75")}
    assert count_quantities("half of 48") == 2
    assert count_quantities("48") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        ("-3.50", Fraction("-3.5")),
        ("$1,200", 1200),
        ("7/2", Fraction("3.5")),
        ("20%", 20),
        ("3 apples", None),
        ("", None),
        ("1/0", None),
    ],
)
def test_reads_an_answer_that_is_one_number(text, value):
    assert parse_number(text) == value


def test_reads_an_answer_out_of_prose():
    assert last_number("So 3 + 4 = 7 apples.") == 7
    assert last_number("It is 10.\n#### 1,234") == 1234
    assert last_number("10-15") == 15
    assert last_number("nothing") is None


@given(st.fractions())
def test_what_is_written_reads_back(value):
    if len(str(value)) < 35:
        assert parse_number(format_number(value)) == value


@given(st.text())
def test_no_text_raises(text):
    find_numbers(text)
    implied_numbers(text)
    parse_number(text)
    last_number(text)
    count_quantities(text)
    extract_answer(text)
