"""Foreign text as it is shown: nothing in it steers a terminal or hides."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.errors import ModelError
from slmsearch.foreign import one_line, visible, without_credentials


@given(st.text())
def test_nothing_steers_or_hides(text: str) -> None:
    shown = visible(text)
    joiners = {c for c in shown if unicodedata.category(c) == "Cf"}
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    assert all(c in "\u200c\u200d" or unicodedata.name(c).find("SIGN") >= 0 or unicodedata.name(c).find("MARK") >= 0 or c == "\u06dd"
               for c in joiners), joiners  # fmt: skip
    assert visible(shown) == shown
    assert "\n" not in one_line(text)


@pytest.mark.parametrize("character", "\x1b\x07\x9b\u200b\u200f\u061c\u202e\u2066\ufeff\u2060\U000e0041")
def test_hidden_characters_stand_as_their_number(character: str) -> None:
    assert visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"


def test_scripts_keep_their_joiners() -> None:
    plain = "क्\u200dष 👩\u200d💻 \u0601"
    assert visible(plain) == plain


def test_an_address_loses_its_password_also_in_an_error() -> None:
    text = "openai:m@http://u:PW@h:1/v1@2 and s3://k:PW@b, http://h/a@b"
    assert without_credentials(text) == "openai:m@http://h:1/v1@2 and s3://b, http://h/a@b"
    assert "PW" not in repr(ModelError(f"no answer from {text}"))
