"""Every word of a page is in a passage, no passage is too long, the bare title is one of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import own_texts
from slmsearch.retrieval.passages import make_passages


def texts(content: str, title: str = "Rome", max_chars: int = 1000) -> list[str]:
    return [passage.text for passage in make_passages(Library([Page("p", title, content)]), max_chars)]


def test_title_lead_and_sections():
    assert texts("# Rome\nA  city.\n\n## Rivers\nThe\nTiber.") == ["Rome", "Rome: A city.", "Rome — Rivers: The Tiber."]


def test_sections_without_text_are_no_passages():
    assert texts("# Rome\n\n## Rivers\n\n### Large\n\nThe Tiber.") == ["Rome", "Rome — Large: The Tiber."]
    assert texts("no heading") == ["Rome", "Rome: no heading"]
    assert texts("") == ["Rome"]


def test_a_parent_is_embedded_without_its_children():
    assert texts("# Rome\n## Rivers\nintro\n### Large\nTiber\n## Hills\nseven")[1:] == [
        "Rome — Rivers: intro",
        "Rome — Large: Tiber",
        "Rome — Hills: seven",
    ]


def test_passages_know_their_place():
    passages = list(make_passages(Library([Page("a", "A", "# A\nlead\n## B\nx")]), 1000))
    assert [(passage.page_id, passage.section_id) for passage in passages] == [("a", "a:a"), ("a", "a:a"), ("a", "a:b")]


def test_a_long_section_is_cut_into_pieces_of_like_size():
    pieces = texts("# Rome\n" + "word " * 500)[1:]
    assert len(pieces) == 3
    assert max(map(len, pieces)) <= 1000
    assert min(map(len, pieces)) > 700


@pytest.mark.parametrize(("letters", "most"), [("规定。", 250), ("право ", 320), ("직원은 ", 140), ("Maß ", 1000)])
def test_letters_that_the_embedder_hardly_knows_count_as_several(letters: str, most: int):
    title_text, *pieces = texts(f"# {letters}\n{letters * 1000}", letters.strip())
    assert title_text == letters.strip()
    assert most / 2 < max(map(len, pieces)) <= most
    assert "".join(piece.partition(": ")[2] for piece in pieces).replace(" ", "") == letters.strip() * 1000
    assert all(piece.partition(": ")[2] for piece in pieces), "no piece is empty"


@given(st.lists(st.text("ab규定я# \n", max_size=200), max_size=20).map(" ".join), st.text("x定я ", max_size=150), st.integers(50, 120))
def test_no_letter_of_any_script_is_lost(content: str, title: str, max_chars: int):
    _, *pieces = texts(content, title, max_chars)
    assert all(len(piece) <= max_chars and piece.partition(": ")[2] for piece in pieces)
    assert "\uffff" not in "".join(pieces)
    kept = sum(len("".join(text.split())) for text in own_texts(Page("p", title, content)))
    assert sum(len("".join(piece.partition(": ")[2].split())) for piece in pieces) == kept


@given(st.lists(st.text("ab# \n", max_size=200), max_size=20).map(" ".join), st.text("xyz ", max_size=150), st.integers(50, 120))
def test_no_word_is_lost_and_no_passage_too_long(content: str, title: str, max_chars: int):
    title_text, *pieces = texts(content, title, max_chars)
    assert title_text == title
    assert all(len(piece) <= max_chars for piece in pieces)
    # Words longer than a passage are cut, so letters are counted rather than words.
    kept = sum(len("".join(text.split())) for text in own_texts(Page("p", title, content)))
    prefixes = sum(len("".join(piece.partition(": ")[0].split())) + 1 for piece in pieces)
    assert sum(len("".join(piece.split())) for piece in pieces) - prefixes == kept
