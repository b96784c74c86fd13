"""One paragraph a section: how pages are split, that nothing is lost, and which paragraph a question means."""

import json

from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import MAX_CHARS, place_questions, split_paragraphs
from slmsearch.corpus.questions import Question
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


TWO_HOPS = {
    "film": "# Ran (film)\n\nIt was shot near Mount Aso.\n\nRan was directed by Mira Holt, who also wrote it.\n\nMira Holt liked cheese.",
    "holt": "# Mira Holt\n\nShe lived in Dunmar.\n\nMira Holt was born in 1823.",
    "aso": "# Mount Aso\n\nAso is a volcano. It is in no range.",
}


def placed(tmp_path, page_ids, answer, question="Which director of Ran was born when?", **row):
    (tmp_path / "p.jsonl").write_text(
        "".join(json.dumps({"id": i, "title": t[2:].partition("\n")[0], "content": t}) + "\n" for i, t in TWO_HOPS.items())
    )
    (tmp_path / "q.jsonl").write_text(json.dumps({"id": "q", "question": question, "answer": answer, "page_ids": page_ids, **row}) + "\n")
    paths = {"pages": str(tmp_path / "p.jsonl"), "questions": str(tmp_path / "q.jsonl")}
    (found,) = load_source(CorpusConfig(**paths, sections="paragraphs"))[1]
    return found.section_ids, found.hops


def test_a_question_over_two_pages_is_placed_on_the_paragraph_that_leads_on_and_the_one_that_answers(tmp_path):
    path = ("film:paragraph_2", "holt:paragraph_2")
    assert placed(tmp_path, ["film", "holt"], "1823") == (path, 2)
    assert placed(tmp_path, ["holt", "film"], "1823") == (path, 2), "the page with the answer is read last, whatever the order"
    assert placed(tmp_path, ["film", "holt", "film"], "1823", hops=3) == (path, 3)


def test_a_page_that_leads_nowhere_is_read_where_it_shares_most_words_with_the_question_or_else_first(tmp_path):
    assert placed(tmp_path, ["aso", "film", "holt"], "1823") == (("aso:mount_aso", "film:paragraph_2", "holt:paragraph_2"), 3)
    cheese = placed(tmp_path, ["film", "aso"], "volcano", question="What is liked, cheese or a volcano?")[0]
    assert cheese == ("film:ran_(film)", "aso:mount_aso"), "the title counts before words"
    assert placed(tmp_path, ["holt", "aso"], "volcano", question="In Dunmar or elsewhere?")[0][0] == "holt:mira_holt"
    assert placed(tmp_path, ["holt", "aso"], "volcano", question="Born or a volcano?")[0][0] == "holt:paragraph_2"
    assert placed(tmp_path, ["holt", "aso"], "volcano", question="What?")[0][0] == "holt:mira_holt"


def test_yes_and_no_stand_nowhere_and_all_pages_are_read_in_their_order(tmp_path):
    for answer in ("yes", "No"):
        found = placed(tmp_path, ["aso", "holt"], answer, question="Was Mira Holt born on Mount Aso?")
        assert found == (("aso:mount_aso", "holt:paragraph_2"), 2)
        assert validate_corpus(build_two_hops(tmp_path)).ok
    assert placed(tmp_path, ["aso"], "yes") == ((), 0)


def build_two_hops(tmp_path):
    settings = CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl"), sections="paragraphs")
    return tmp_path / "corpora" / build_corpus(settings, tmp_path / "corpora")


def test_an_answer_that_no_gold_page_holds_and_a_page_that_is_not_there_are_placed_nowhere(tmp_path):
    assert placed(tmp_path, ["film", "holt"], "1901") == ((), 0)
    assert placed(tmp_path, ["gone", "holt"], "1823") == ((), 0)


@given(st.permutations(["film", "holt", "aso"]), st.sampled_from(["1823", "volcano", "Mira Holt", "yes", "nowhere"]), st.text(max_size=40))
def test_a_path_reads_every_gold_page_once_and_ends_where_the_answer_is(order, answer, text):
    library = Library([Page(i, t[2:].partition("\n")[0], t) for i, t in TWO_HOPS.items()])
    cut = Library([split_paragraphs(page) for page in library.pages()])
    question = Question("q", text, answer, page_ids=tuple(order))
    (found,) = place_questions([question], library, cut)
    assert found == place_questions([question], library, cut)[0]
    read = [cut.section(name) for name in found.section_ids]
    assert sorted(section.page_id for section in read) == (sorted(order) if answer != "nowhere" else [])
    assert not read or answer == "yes" or answer in read[-1].text
