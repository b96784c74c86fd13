"""Validation: a sound corpus passes, every seeded fault is found with the rows that hold it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import CorpusConfig, WorldConfig
from slmsearch.corpus import expectations
from slmsearch.corpus.data_report import DataFinding, DataReport
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.questions import holds_answer
from slmsearch.corpus.store import build_corpus
from slmsearch.errors import CorpusError


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpora = tmp_path_factory.mktemp("corpora")
    return corpora / build_corpus(CorpusConfig(world=WorldConfig(pages=60)), corpora)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def validate(directory: Path, pages: list[dict[str, Any]], questions: list[dict[str, Any]], **config: int) -> DataReport:
    """Validate rows as if they had been materialised."""
    directory.mkdir(exist_ok=True)
    write(directory / "pages.jsonl", pages)
    write(directory / "questions.jsonl", questions)
    manifest = {
        "digest": "d",
        "pages_digest": "p",
        "questions_digest": "q",
        "pages": len(pages),
        "questions": {},
        "dropped_questions": 0,
        "split_seed": 0,
        "source": {},
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return validate_corpus(directory)


def test_a_generated_world_has_no_findings_that_stop(sound: Path):
    report = validate_corpus(sound)
    assert report.ok
    assert [finding for finding in report.findings if finding.severity == "critical"] == []
    assert report.counts["pages"] == 60 and report.counts["sections"] > 180 and report.counts["questions"] == 240
    assert report.digest == sound.name
    json.dumps(asdict(report))


PAGES = [
    {"id": "rome", "title": "Rome", "content": "# Rome\n\nA city.\n\n## Rivers\n\nThe Tiber."},
    {"id": "oslo", "title": "Oslo", "content": "# Oslo\n\nA city.\n\n## Rivers\n\nThe Aker."},
    {"id": "bonn", "title": "Bonn", "content": "# Bonn\n\nA city.\n\n## Rivers\n\nThe Rhine."},
]


def ask(question_id: str, page_id: str, answer: str, split: str = "train", **changes: Any) -> dict[str, Any]:
    row = {"id": question_id, "question": f"Which river flows through {page_id}?", "answer": answer, "aliases": [], "hops": 1}
    row |= {"page_ids": [page_id], "section_ids": [f"{page_id}:rivers"], "kind": "one_hop", "entities": [], "split": split}
    return row | changes


QUESTIONS = [ask("q1", "rome", "Tiber"), ask("q2", "oslo", "the Aker", "validation"), ask("q3", "bonn", "Rhine", "test")]

# Each fault: pages, questions, and the finding (severity, table, column, ids) that must be there.
FAULTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], tuple[str, str, str, set[str]]]] = {
    "duplicate page": ([*PAGES, PAGES[0]], QUESTIONS, ("critical", "pages", "id", {"rome"})),
    "space in page id": ([*PAGES, PAGES[0] | {"id": "old rome"}], QUESTIONS, ("critical", "pages", "id", {"old rome"})),
    "control character in page id": ([*PAGES, PAGES[0] | {"id": "a\x01"}], QUESTIONS, ("critical", "pages", "id", {"a\x01"})),
    "empty page id": ([*PAGES, PAGES[0] | {"id": ""}], QUESTIONS, ("critical", "pages", "id", {""})),
    "quote in page id": ([*PAGES, PAGES[0] | {"id": 'a"b'}], QUESTIONS, ("warning", "pages", "id", {'a"b'})),
    "page ids composed otherwise": (
        [*PAGES, PAGES[0] | {"id": "caf\u00e9"}, PAGES[0] | {"id": "cafe\u0301"}],
        QUESTIONS,
        ("warning", "pages", "look_alikes", {"caf\u00e9", "cafe\u0301"}),
    ),
    "page ids with a character that shows nothing": (
        [*PAGES, PAGES[0] | {"id": "ro\u200bme"}],
        QUESTIONS,
        ("warning", "pages", "look_alikes", {"rome", "ro\u200bme"}),
    ),
    "no title": ([*PAGES, PAGES[0] | {"id": "x", "title": " "}], QUESTIONS, ("critical", "pages", "title_chars", {"x"})),
    "no content": ([*PAGES, PAGES[0] | {"id": "x", "content": "\n "}], QUESTIONS, ("critical", "pages", "content_chars", {"x"})),
    "headings only": (
        [*PAGES, {"id": "x", "title": "X", "content": "# X\n## Y"}],
        QUESTIONS,
        ("warning", "pages", "sections_with_text", {"x"}),
    ),
    "shared section id": (
        [*PAGES, {"id": "a", "title": "A", "content": "# b:c\nt"}, {"id": "a:b", "title": "B", "content": "# c\nt"}],
        QUESTIONS,
        ("warning", "pages", "shared_section_ids", {"a", "a:b"}),
    ),
    "duplicate question": (PAGES, [*QUESTIONS, QUESTIONS[0]], ("critical", "questions", "id", {"q1"})),
    "empty question": (PAGES, [QUESTIONS[0] | {"question": " "}], ("critical", "questions", "question_chars", {"q1"})),
    "no answer": (PAGES, [QUESTIONS[0] | {"answer": ""}], ("critical", "questions", "answer_chars", {"q1"})),
    "unknown page": (PAGES, [ask("q9", "atlantis", "x")], ("critical", "questions", "missing_pages", {"q9"})),
    "unknown section": (
        PAGES,
        [QUESTIONS[0] | {"section_ids": ["rome:hills"]}],
        ("critical", "questions", "missing_sections", {"q1"}),
    ),
    "answer not in section": (PAGES, [ask("q1", "rome", "Tib")], ("critical", "questions", "answer_missing", {"q1"})),
    "answer only in first of two hops": (
        PAGES,
        [ask("q1", "rome", "Tiber", section_ids=["rome:rivers", "oslo:rivers"], kind="two_hop")],
        ("critical", "questions", "answer_missing", {"q1"}),
    ),
    "plain answer not in section": (
        PAGES,
        [ask("q1", "rome", "Rhine", kind="plain")],
        ("critical", "questions", "answer_missing", {"q1"}),
    ),
    "page in two splits": (PAGES, [*QUESTIONS, ask("q4", "rome", "Tiber", "test")], ("critical", "questions", "leaking", {"q1", "q4"})),
    "entity in two splits": (
        PAGES,
        [QUESTIONS[0] | {"entities": ["Rome"]}, QUESTIONS[1], QUESTIONS[2] | {"entities": ["Rome"]}],
        ("critical", "questions", "leaking", {"q1", "q3"}),
    ),
    "near-duplicate": (
        PAGES,
        [QUESTIONS[0], ask("q4", "rome", "Tiber", question="Through Rome flows which river?")],
        ("warning", "questions", "near_duplicate", {"q1", "q4"}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found(tmp_path: Path, fault: str):
    pages, questions, (severity, table, column, ids) = FAULTS[fault]
    report = validate(tmp_path / "c", pages, questions)
    (finding,) = [f for f in report.findings if (f.severity, f.table, f.column) == (severity, table, column)]
    assert set(finding.sample_ids) == ids
    assert finding.failed >= len(ids)
    assert report.ok == (severity != "critical")


def test_the_rows_the_faults_are_sown_into_are_sound(tmp_path: Path):
    assert validate(tmp_path / "c", PAGES, QUESTIONS).findings == ()
    assert validate(tmp_path / "c", PAGES, []).ok


def test_long_pages_and_questions_are_reported(tmp_path: Path):
    pages = [page | {"content": page["content"] + "." * expectations.MAX_PAGE_CHARS} for page in PAGES]
    questions = [question | {"question": question["question"] + "?" * expectations.MAX_QUESTION_CHARS} for question in QUESTIONS]
    report = validate(tmp_path / "c", pages, questions)
    assert {(f.table, f.column, f.severity, f.failed) for f in report.findings} == {
        ("pages", "content_chars", "warning", 3),
        ("questions", "question_chars", "warning", 3),
    }
    assert report.ok


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "count", "answer": "2"},
        {"kind": "unanswerable", "answer": "I don't know"},
        {"kind": "plain", "answer": "I don't know"},
        {"kind": "plain", "section_ids": ["oslo:rivers", "rome:rivers"], "answer": "Aker"},
        {"kind": "plain", "answer": "Tib"},
        {"aliases": ["tiber!"], "answer": "the river"},
        {"section_ids": []},
    ],
)
def test_answers_that_need_not_stand_in_the_last_section(tmp_path: Path, changes: dict[str, Any]):
    questions = [ask("q1", "rome", "Tiber") | changes]
    assert validate(tmp_path / "c", PAGES, questions).findings == ()


def test_fifty_ids_are_kept_and_critical_findings_come_first(tmp_path: Path):
    pages = [PAGES[0] | {"id": f'"{number}'} for number in range(70)]
    report = validate(tmp_path / "c", pages, [ask("q", "nowhere", "x")])
    by_column = {(f.table, f.column): f for f in report.findings}
    assert isinstance(by_column["pages", "id"], DataFinding)
    assert (by_column["pages", "id"].failed, len(by_column["pages", "id"].sample_ids)) == (70, 50)
    assert [f.severity for f in report.findings] == sorted(f.severity for f in report.findings)


def test_questions_left_out_by_the_split_are_reported(tmp_path: Path):
    rows = [{"id": f"p{n}", "title": f"P{n}", "content": "text"} for n in range(61)]
    write(tmp_path / "p.jsonl", rows)
    asked = [{"id": f"q{n}", "question": f"Which {n}?", "answer": "x", "page_ids": [f"p{n}", f"p{n + 1}"]} for n in range(60)]
    write(tmp_path / "q.jsonl", asked)
    config = CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl"))
    report = validate_corpus(tmp_path / build_corpus(config, tmp_path))
    (finding,) = report.findings
    assert (finding.severity, finding.expectation) == ("warning", "split_by_page")
    assert 0 < finding.failed < 20


def test_a_corpus_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(CorpusError, match="holds no complete corpus"):
        validate_corpus(tmp_path / "absent")


@pytest.mark.parametrize(
    "text, answer, held",
    [
        ("It measures 15 ells.", "5", False),
        ("The weight of it", "eight", False),
        ("Saint Bernadette-Soubirous, in 1858.", "saint bernadette soubirous", True),
        ("It costs 1,200 crowns", "1,200", True),
        ("Price: $$$.", "$", True),
        ("nothing", "$", False),
        ("石桥建于1911年。", "1911", True),
        ("石桥建于1911年。", "191", False),
        ("이 다리는 1911년에 지어졌다.", "1911", True),
        ("สร้างเมื่อ2547แล้ว", "2547", True),
        ("यह पुल लंबा है।", "पल", False),
        ("यह पुल लंबा है।", "पुल", True),
    ],
)
def test_an_answer_is_held_as_whole_words(text: str, answer: str, held: bool):
    assert holds_answer(text, answer) is held
