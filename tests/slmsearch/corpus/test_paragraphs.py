"""One paragraph a section: how pages are split, that nothing is lost, and which paragraph a question means."""

import json

from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import MAX_CHARS, split_paragraphs
from slmsearch.corpus.sources import load_source
from slmsearch.corpus.store import build_corpus, read_pages

LINES = st.sampled_from(
    ["# Top", "## Life", "### Death", "#", "", "", "One line.", "Another one! Yes.", "```", "~~~~", "- item", "> # quoted"]
)


def sections(content):
    return {section.id: section.text for section in Library([split_paragraphs(Page("p", "Title", content))]).sections("p")}


def test_a_page_without_headings_has_a_section_a_paragraph():
    assert sections("First.\n\nSecond\nline.\n\n\nThird.") == {
        "p:paragraph_1": "## Paragraph 1\n\nFirst.",
        "p:paragraph_2": "## Paragraph 2\n\nSecond\nline.",
        "p:paragraph_3": "## Paragraph 3\n\nThird.",
    }


def test_paragraphs_under_a_heading_repeat_it():
    found = sections("# Mira\n\nLead.\n\nMore lead.\n\n## Life\n\nBorn.\n\nDied.\n\n### Works\n\nMany.\n\n## Notes")
    assert list(found) == ["p:mira", "p:paragraph_2", "p:life", "p:life_2", "p:works", "p:notes"]
    assert found["p:life"] == "## Life\n\nBorn." and found["p:life_2"] == "## Life\n\nDied."
    assert found["p:mira"] == "# Mira\n\nLead."


def test_long_paragraphs_are_cut_at_sentences_and_code_is_not():
    sentence = "This sentence has some words in it. "
    found = list(sections(sentence * 100).values())
    assert len(found) == 3 and all(len(text) <= MAX_CHARS + 20 and text.endswith("in it.") for text in found)
    code = "```\n" + "x = 1\n\n" * 400 + "```"
    assert list(sections(f"Before.\n\n{code}\n\nAfter.").values())[1].endswith(code)
    words = list(sections("word " * 1000).values())
    assert len(words) == 4 and " ".join(words).split().count("word") == 1000


@given(st.lists(LINES, max_size=14))
def test_no_text_is_lost_and_ids_are_unique(lines):
    page = Page("p", "Title", "\n".join(lines))
    split = split_paragraphs(page)
    found = Library([split]).sections("p")
    assert len({section.id for section in found}) == len(found)
    kept = " ".join(split.content.split())
    place = 0
    for line in lines:
        if line.strip() and not line.startswith("#"):
            place = kept.index(" ".join(line.split()), place)
    assert split_paragraphs(page) == split


def questions_of(tmp_path, rows, content, **config):
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "p", "title": "P", "content": content}) + "\n")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"id": str(i), "question": f"q{i}?", **row}) + "\n" for i, row in enumerate(rows)))
    settings = CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl"), **config)
    return settings, load_source(settings)[1]


CONTENT = (
    "# P\n\n## Section 1\n\nMira was born in 1823.\n\nShe wrote eight books.\n\n"
    "## Section 2\n\nDunmar is a river, 18 km long.\n\nIt has eight arms."
)


def test_questions_mean_the_paragraph_that_holds_their_answer(tmp_path):
    rows = [
        {"answer": "eight", "page_id": "p", "section": 1},
        {"answer": "Eight", "page_id": "p", "section": 2},
        {"answer": "1823", "page_ids": ["p"]},
        {"answer": "eight", "page_ids": ["p"]},
        {"answer": "8 km", "page_id": "p", "section": 2},
        {"answer": "nowhere", "page_ids": ["p"], "section_ids": ["p:section_2"]},
        {"answer": "eight", "page_ids": ["p"], "section_ids": ["p:section_1_2"]},
        {"answer": "eight", "page_ids": ["p"], "section_ids": ["p:gone"]},
    ]
    _, found = questions_of(tmp_path, rows, CONTENT, sections="paragraphs")
    assert [question.section_ids for question in found] == [
        ("p:section_1_2",),
        ("p:section_2_2",),
        ("p:section_1",),
        (),  # two paragraphs hold it: which one is not known
        ("p:section_2",),
        ("p:section_2",),
        ("p:section_1_2",),
        ("p:gone",),  # left for validation to report
    ]


def test_a_number_of_hops_that_was_given_stays(tmp_path):
    rows = [{"answer": "1823", "page_ids": ["p"], "hops": 2}, {"answer": "1823", "page_ids": ["p"]}, {"answer": "eight", "page_ids": ["p"]}]
    _, found = questions_of(tmp_path, rows, CONTENT, sections="paragraphs")
    assert [(question.hops, bool(question.section_ids)) for question in found] == [(2, True), (1, True), (0, False)]


def test_a_question_without_an_answer_is_placed_nowhere(tmp_path):
    rows = [{"answer": "x", "answerable": False, "page_ids": ["p"]}]
    _, found = questions_of(tmp_path, rows, 'CONTENT.\n\nShe said "I don\'t know" and left.', sections="paragraphs")
    assert found[0].section_ids == () and found[0].hops == 0


def test_the_two_ways_are_two_corpora(tmp_path):
    rows = [{"answer": "1823", "page_id": "p", "section": 1}]
    digests = []
    for way in ("headings", "paragraphs"):
        settings, _ = questions_of(tmp_path, rows, CONTENT, sections=way)
        digests.append(build_corpus(settings, tmp_path / "corpora"))
    assert digests[0] != digests[1]
    assert Library(read_pages(tmp_path / "corpora" / digests[0])).section("p:section_1_2") is None
    assert Library(read_pages(tmp_path / "corpora" / digests[1])).section("p:section_1_2").text.endswith("She wrote eight books.")
