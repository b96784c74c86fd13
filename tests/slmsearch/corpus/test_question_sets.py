"""Rows of SQuAD's kind become pages of paragraphs and questions that name their section."""

import json
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import CorpusConfig
from slmsearch.corpus import paragraphs
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.sources import load_source
from slmsearch.corpus.store import build_corpus
from slmsearch.errors import CorpusError

PARAGRAPHS = ["The Grotto is old.", "The dome is gold; it is old.", "Students run two papers.", "Old College stands by the lake."]


def row(context: str, question: str = "What?", *texts: str, **fields: Any) -> dict[str, Any]:
    made = {"id": f"{question} {context}", "title": "Notre_Dame:_Fr%C3%A9d%C3%A9ric", "context": context, "question": question}
    return {**made, "answers": {"text": list(texts), "answer_start": [0] * len(texts)}, **fields}


def load(tmp_path: Path, *rows: dict[str, Any], **settings: Any) -> tuple[list[Page], list[Question]]:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_source(CorpusConfig(**{"pages": str(source), "questions": str(source), **settings}))[:2]


def test_contexts_of_a_title_are_the_paragraphs_of_one_page(tmp_path: Path) -> None:
    other = row("Rome is a city.", "Where?", "a city", title="Rome")
    rows = [row(f" {text}\n", "What?", "old") for text in PARAGRAPHS[:3]]
    pages, _ = load(tmp_path, rows[0], other, rows[0] | {"id": "x"}, rows[1], rows[2], row(PARAGRAPHS[3], "What?", "lake"))
    one, two, three, four = PARAGRAPHS
    content = f"# Notre Dame: Frédéric\n\n## Section 1\n\n{one}\n\n{two}\n\n{three}\n\n## Section 2\n\n{four}\n"
    assert pages == [
        Page("notre_dame__frédéric", "Notre Dame: Frédéric", content),
        Page("rome", "Rome", "# Rome\n\n## Section 1\n\nRome is a city.\n"),
    ]


def test_a_question_takes_the_answer_that_most_marked_its_page_and_section(tmp_path: Path) -> None:
    rows = [row(text) for text in PARAGRAPHS[:3]]
    _, questions = load(tmp_path, *rows, row(PARAGRAPHS[3], "By what?", "lake", " the lake", "the lake", id="q"))
    section = "notre_dame__frédéric:section_2"
    assert questions[-1] == Question("q", "By what?", "the lake", ("lake",), ("notre_dame__frédéric",), (section,), 1)


def test_its_own_paragraph_is_gold_where_another_of_the_section_holds_the_answer_too(tmp_path: Path) -> None:
    rows = [row(PARAGRAPHS[0]), row(PARAGRAPHS[1], "How old?", "old"), row(PARAGRAPHS[2])]
    _, questions = load(tmp_path, *rows, sections="paragraphs")
    assert questions[1].section_ids == ("notre_dame__frédéric:section_1_2",)


def test_a_paragraph_that_is_cut_gives_the_part_with_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraphs, "MAX_CHARS", 30)
    first = row("The Grotto is very old. The dome is of gold. Students run papers.", "Of what?", "gold")
    across = row("Students of all years meet in. St. Mary is the lake they swim in.", "Who?", "in. St. Mary")
    _, questions = load(tmp_path, first, across, sections="paragraphs")
    assert [question.section_ids for question in questions] == [("notre_dame__frédéric:section_1_2",), ()]


def test_a_question_that_nobody_could_answer_is_unanswerable(tmp_path: Path) -> None:
    _, (question,) = load(tmp_path, row(PARAGRAPHS[0], "How new?"))
    assert (question.answer, question.kind) == (UNKNOWN_ANSWER, "unanswerable")
    assert question.section_ids == ("notre_dame__frédéric:section_1",)


def test_a_blank_question_gives_only_its_paragraph(tmp_path: Path) -> None:
    pages, questions = load(tmp_path, row(PARAGRAPHS[0], " ", "old"), row(PARAGRAPHS[1], "How?", "old"))
    assert PARAGRAPHS[0] in pages[0].content and len(questions) == 1


def test_questions_find_their_paragraph_on_pages_of_another_source(tmp_path: Path) -> None:
    page = {"id": "notre_dame__frédéric", "title": "N", "content": f"# N\n\nLead.\n\n## Dome\n\nBig.\n{PARAGRAPHS[1]}\n\n## Other\n\nText."}
    (tmp_path / "pages.jsonl").write_text(json.dumps(page))
    _, questions = load(tmp_path, row(PARAGRAPHS[1], "A?", "old"), row("Nowhere.", "B?", "No"), pages=str(tmp_path / "pages.jsonl"))
    assert [question.section_ids for question in questions] == [("notre_dame__frédéric:dome",), ()]


def test_rows_of_another_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"rows\.jsonl:1: field 'id' is missing|'content' is missing"):
        load(tmp_path, row(PARAGRAPHS[0]) | {"answers": "old"})
    with pytest.raises(CorpusError, match=r"rows\.jsonl:1: field 'question' is missing"):
        load(tmp_path, {key: value for key, value in row(PARAGRAPHS[0], "What?", "old").items() if key != "question"})


@pytest.mark.parametrize("sections", ["headings", "paragraphs"])
def test_the_corpus_is_valid(tmp_path: Path, sections: str) -> None:
    rows = [row(text, f"What is number {n}?", text.split()[-1], title=f"Page {n}") for n, text in enumerate(PARAGRAPHS * 10)]
    load(tmp_path, *rows)
    source = str(tmp_path / "rows.jsonl")
    config = CorpusConfig.model_validate({"pages": source, "questions": source, "sections": sections})
    report = validate_corpus(tmp_path / build_corpus(config, tmp_path))
    assert report.ok and report.counts["questions"] == 40
