"""Numbers are found, read, compared and written exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.planner.numbers import (
    count_quantities,
    extract_answer,
    find_literals,
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
        ("five two-liter bottles and two, three or ten dollars", {Fraction(5), Fraction(2), Fraction(3), Fraction(10)}),
        ("a hundred students on the third day", {Fraction(100)}),
        ("5 million, or $2.5 million", {Fraction(5_000_000), Fraction(2_500_000)}),
        ("four-fifths of twenty", {Fraction(4), Fraction(5), Fraction(20)}),
    ],
)
def test_finds_numbers_in_digits_and_words(text, numbers):
    assert find_numbers(text) == numbers


def test_knows_what_words_imply():
    assert implied_numbers("twice a week") == {2, Fraction(1, 2), 7, 52, 4}
    assert implied_numbers("20% off") == {100, Fraction("0.2"), Fraction("0.8"), Fraction("1.2")}
    assert implied_numbers("3/4 of it") == {Fraction("0.75")}
    assert implied_numbers("16 1/2 tons") == {Fraction("16.5")}
    assert implied_numbers("four-fifths of it") == {5, Fraction(1, 5), Fraction(4, 5)}
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
    assert last_number("He pays $6 a day.\n#### 18 dollars for 3 days") == 18
    assert last_number("#### 3 1/2") == Fraction("3.5")


@pytest.mark.parametrize(
    ("text", "value"),
    [("The total cost - $18", 18), ("Answer:\n- 18 apples", 18), ("COVID-19", 19), ("= -5", -5), ("(-$5)", -5), ("**-18**", -18)],
)
def test_a_dash_is_a_sign_only_where_it_touches_the_number_and_no_word(text, value):
    assert last_number(text) == value


def test_only_commas_between_groups_of_three_digits_leave_the_gold_answer():
    assert extract_answer("#### 1,234,567") == "1234567"
    assert extract_answer("#### 3,5") == "3,5"


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
    find_literals(text)
