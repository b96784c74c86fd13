"""Reading pages and questions from every kind of source, and what is said about broken ones."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slmsearch.config import CorpusConfig, WorldConfig
from slmsearch.corpus import row_files
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.sources import load_source
from slmsearch.corpus.store import build_corpus, load_questions
from slmsearch.errors import CorpusError

PAGE = {"id": "rome", "title": "Rome", "content": "# Rome\n\nA city.\n\n## Rivers\n\nThe Tiber.\n\n## Hills\n\nSeven."}
QUESTION = {"id": "q1", "question": "Which river?", "answer": "the Tiber"}


def write_jsonl(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def questions_from(tmp_path: Path, *rows: object) -> list[Question]:
    source = write_jsonl(tmp_path / "q.jsonl", *rows)
    return load_source(CorpusConfig(pages=write_jsonl(tmp_path / "page.jsonl", PAGE), questions=source))[1]


def test_world_is_the_default():
    pages, questions, _ = load_source(CorpusConfig(world=WorldConfig(pages=40)))
    assert len(pages) == 40
    assert questions
    assert load_source(CorpusConfig(world=WorldConfig(pages=40))) == (pages, questions, {})


def test_jsonl_pages_keep_their_order_and_ignore_other_fields(tmp_path: Path):
    source = write_jsonl(tmp_path / "p.jsonl", {**PAGE, "id": "b", "url": "x"}, {**PAGE, "id": "a"})
    assert [page.id for page in load_source(CorpusConfig(pages=source))[0]] == ["b", "a"]


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(PAGE).encode() + b"\n\n  \n")
    assert load_source(CorpusConfig(pages=str(path)))[0] == [Page(**PAGE)]


def test_parquet_gives_the_same_as_jsonl(tmp_path: Path):
    rows = [{**QUESTION, "aliases": ["Tiber"], "page_ids": ["rome"], "section_ids": ["rome:rivers"], "hops": 1}]
    pq.write_table(pa.Table.from_pylist([PAGE]), tmp_path / "p.parquet")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    pages, questions, _ = load_source(CorpusConfig(pages=str(tmp_path / "p.parquet"), questions=str(tmp_path / "q.parquet")))
    assert pages == [Page(**PAGE)]
    assert questions == questions_from(tmp_path, *rows)
    assert questions[0].aliases == ("Tiber",) and questions[0].section_ids == ("rome:rivers",) and questions[0].hops == 1


def test_questions_with_page_id_and_section_number(tmp_path: Path):
    (question,) = questions_from(tmp_path, {**QUESTION, "page_id": "rome", "section": 2, "aliases": ["the Tiber", "Tiber"]})
    assert question.page_ids == ("rome",)
    assert question.section_ids == ("rome:hills",)
    assert question.hops == 1
    assert question.aliases == ("Tiber",)


@pytest.mark.parametrize("section", [0, 3, -1])
def test_a_section_number_out_of_range_is_left_to_validation(tmp_path: Path, section: int):
    (question,) = questions_from(tmp_path, {**QUESTION, "page_id": "rome", "section": section})
    assert question.section_ids == (f"rome:##{section}",)


def test_questions_on_unknown_pages_are_left_to_validation(tmp_path: Path):
    (question,) = questions_from(tmp_path, {**QUESTION, "page_id": "carthage", "section": 1})
    assert question.page_ids == ("carthage",)


def test_trivia_rows_get_page_id_text_answer_and_a_stable_id(tmp_path: Path):
    row = {"question": "How many hills?", "answer": 7, "filename": "Ancient Rome.md"}
    first, second = questions_from(tmp_path, row, row)
    assert (first.answer, first.page_ids) == ("7", ("ancient_rome",))
    assert first.id.startswith("q-") and second.id == f"{first.id}-2"
    assert questions_from(tmp_path, {**row, "question": "Other?"}, row)[1].id == first.id


def test_hub_sets_are_read_from_local_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pages").mkdir()
    (tmp_path / "questions").mkdir()
    page = {"id": "miles_teller", "title": "Miles Teller", "content": "# Miles Teller\n*Revision ID*\n---\nAn actor."}
    pq.write_table(pa.Table.from_pylist([page]), tmp_path / "pages" / "train.parquet")
    write_jsonl(tmp_path / "questions" / "train.jsonl", {"question": "Born?", "answer": 1987, "filename": "Miles Teller.md"})
    config = CorpusConfig(pages=f"hub:{tmp_path / 'pages'}", questions=f"hub:{tmp_path / 'questions'}")
    pages, questions, _ = load_source(config)
    assert pages == [Page(**page)]
    assert questions[0].page_ids == ("miles_teller",) and questions[0].answer == "1987"


def test_markdown_folder(tmp_path: Path):
    (tmp_path / "Sub Dir").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b.md").write_text("text only")
    (tmp_path / "Sub Dir" / "A File.markdown").write_text("# Heading: one\nText")
    (tmp_path / ".git" / "c.md").write_text("# hidden")
    (tmp_path / "latin.md").write_bytes("# Köln".encode("latin-1"))
    pages, questions, _ = load_source(CorpusConfig(pages=str(tmp_path)))
    assert [(page.id, page.title) for page in pages] == [("sub_dir/a_file", "Heading: one"), ("b", "b"), ("latin", "Köln")]
    assert questions == []


def test_limit_keeps_the_first_pages_and_questions_on_them(tmp_path: Path):
    pages = write_jsonl(tmp_path / "p.jsonl", *({**PAGE, "id": name} for name in "abc"))
    rows = [{**QUESTION, "id": f"q{n}", "page_ids": ids} for n, ids in enumerate([["a"], ["a", "b"], ["b", "c"], []])]
    questions = write_jsonl(tmp_path / "q.jsonl", *rows)
    kept_pages, kept, _ = load_source(CorpusConfig(pages=pages, questions=questions, limit_pages=2))
    assert [page.id for page in kept_pages] == ["a", "b"]
    assert [question.id for question in kept] == ["q0", "q1"]


BROKEN_PAGES = {
    "broken JSON": (json.dumps(PAGE) + '\n{"id": "x", \n', r"p\.jsonl:2: broken JSON"),
    "no object": ("[1]\n", r"p\.jsonl:1: a JSON object"),
    "missing field": ('{"id": "x", "title": "X"}\n', r"p\.jsonl:1: field 'content' is missing"),
    "wrong type": ('{"id": "x", "title": ["X"], "content": ""}\n', r"p\.jsonl:1: field 'title' must be str, not list"),
    "lone surrogate": ('{"id": "x", "title": "\\ud800", "content": ""}\n', r"p\.jsonl:1: 'title' holds half of a surrogate"),
    "no number": ('{"id": NaN, "title": "X", "content": ""}\n', r"p\.jsonl:1: 'id' is nan, which stands for a missing number"),
    "empty": ("\n", "holds no pages"),
    "twice": ((json.dumps(PAGE) + "\n") * 2, r"1 page ids occur more than once \('rome'\)"),
    "deep": ("[" * 100_000, r"p\.jsonl:1: broken JSON"),
}


@pytest.mark.parametrize("fault", BROKEN_PAGES)
def test_broken_pages_are_named_in_one_line(tmp_path: Path, fault: str):
    text, message = BROKEN_PAGES[fault]
    (tmp_path / "p.jsonl").write_text(text)
    with pytest.raises(CorpusError, match=message) as raised:
        load_source(CorpusConfig(pages=str(tmp_path / "p.jsonl")))
    assert "\n" not in str(raised.value)


def test_a_page_id_that_parquet_leaves_out_is_refused(tmp_path: Path):
    rows = [{"id": 1.0, "title": "A", "content": "a"}, {"id": math.nan, "title": "B", "content": "b"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    with pytest.raises(CorpusError, match=r"p\.parquet row 2: 'id' is nan, which stands for a missing number"):
        load_source(CorpusConfig(pages=str(tmp_path / "p.parquet")))


def test_a_parquet_file_that_expands_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), pa.array(["A" * 200_000]))
    table = pa.table({"id": [f"p{n}" for n in range(600)], "title": ["T"] * 600, "content": text})
    pq.write_table(table, tmp_path / "p.parquet", compression="zstd")
    assert (tmp_path / "p.parquet").stat().st_size < 100_000
    monkeypatch.setattr(row_files, "LEAST_EXPANDED", 1 << 20)
    with pytest.raises(CorpusError, match=r"p\.parquet expands to more than 1000 times its size, and \d+ MB; write it as JSONL"):
        load_source(CorpusConfig(pages=str(tmp_path / "p.parquet")))
    monkeypatch.setattr(row_files, "LEAST_EXPANDED", 1 << 30)
    assert len(load_source(CorpusConfig(pages=str(tmp_path / "p.parquet")))[0]) == 600


def test_other_unreadable_sources(tmp_path: Path):
    def failure(**config: str) -> str:
        with pytest.raises(CorpusError) as raised:
            load_source(CorpusConfig(**config))
        assert "\n" not in str(raised.value)
        return str(raised.value)

    (tmp_path / "p.jsonl").write_bytes(b'{"id": "\xff"}\n')
    assert "p.jsonl:1: broken JSON" in failure(pages=str(tmp_path / "p.jsonl"))
    (tmp_path / "p.parquet").write_bytes(b"PAR1 but not really")
    assert "no readable Parquet file" in failure(pages=str(tmp_path / "p.parquet"))
    (tmp_path / "p.csv").write_text("id,title,content\n")
    assert "holds no pages" in failure(pages=str(tmp_path / "p.csv"))
    (tmp_path / "p.xml").write_text("<page/>")
    assert "p.xml is none of .jsonl, .ndjson, .json, .csv, .tsv, .parquet" in failure(pages=str(tmp_path / "p.xml"))
    assert "does not exist" in failure(pages=str(tmp_path / "absent.jsonl"))
    (tmp_path / "docs").mkdir()
    assert "holds no pages" in failure(pages=str(tmp_path / "docs"))
    (tmp_path / "docs" / "binary.md").write_bytes(bytes(range(256)))
    assert "binary.md is not what the suffix says" in failure(pages=str(tmp_path / "docs"))


@pytest.mark.parametrize(
    "row, message",
    [
        ({"id": "q", "answer": "x"}, "field 'question' is missing"),
        ({"id": "q", "question": "x"}, "field 'answer' is missing"),
        ({**QUESTION, "answer": True}, "field 'answer' must be str or int or float, not bool"),
        ({**QUESTION, "aliases": "one"}, "field 'aliases' must be list or tuple, not str"),
        ({**QUESTION, "page_ids": [{}]}, "'page_ids' must be a list of strings; it holds dict"),
        ({**QUESTION, "page_id": "rome", "section": "1"}, "field 'section' must be int, not str"),
        ({**QUESTION, "answerable": "no"}, """field 'answerable' must be true or false, not "no\""""),
        ({**QUESTION, "hops": True}, "field 'hops' must be int, not bool"),
        ({**QUESTION, "answer": math.inf}, "'answer' is inf, which stands for a missing number"),
        ({**QUESTION, "page_ids": [1.0, math.nan]}, "'page_ids' is nan, which stands for a missing number"),
    ],
)
def test_broken_questions_are_named_in_one_line(tmp_path: Path, row: dict[str, object], message: str):
    with pytest.raises(CorpusError, match=message) as raised:
        questions_from(tmp_path, row)
    assert "q.jsonl:1" in str(raised.value)


def test_empty_and_double_questions_are_refused(tmp_path: Path):
    with pytest.raises(CorpusError, match="holds no questions"):
        questions_from(tmp_path)
    with pytest.raises(CorpusError, match=r"question ids occur more than once \('q1'\)"):
        questions_from(tmp_path, QUESTION, QUESTION)


def test_several_right_answers_are_the_answer_and_its_aliases(tmp_path: Path) -> None:
    (question,) = questions_from(tmp_path, {**QUESTION, "answer": ["Tiber", 7, "the Tiber"], "aliases": ["Tevere", "7"]})
    assert (question.answer, question.aliases) == ("Tiber", ("7", "the Tiber", "Tevere"))
    with pytest.raises(CorpusError, match=r"'answer' is an empty list; write an answer, or answerable: false"):
        questions_from(tmp_path, {**QUESTION, "answer": []})


@pytest.mark.parametrize("given", [{"answer": "the Tiber", "aliases": ["Tiber"], "kind": "2hop"}, {"answer": None}, {}])
def test_a_row_that_is_not_answerable_has_no_answer(tmp_path: Path, given: dict[str, object]):
    asked = {"id": "q1", "question": "Which river?", "page_ids": ["rome"], "hops": 2, **given}
    (question,) = questions_from(tmp_path, {**asked, "answerable": False})
    assert (question.answer, question.aliases, question.kind, question.hops) == (UNKNOWN_ANSWER, (), "unanswerable", 2)
    assert question.page_ids == ("rome",) and not question.is_answerable


@pytest.mark.parametrize("value", [True, None])
def test_a_row_that_is_answerable_keeps_its_answer(tmp_path: Path, value: bool | None):
    (question,) = questions_from(tmp_path, {**QUESTION, "answerable": value, "kind": "2hop"})
    assert (question.answer, question.kind, question.is_answerable) == ("the Tiber", "2hop", True)


def test_a_source_is_kept_with_its_question(tmp_path: Path):
    rows = write_jsonl(tmp_path / "q.jsonl", {**QUESTION, "source": "nq"}, {**QUESTION, "id": "q2", "question": "Which hill?", "source": 7})
    digest = build_corpus(CorpusConfig(pages=write_jsonl(tmp_path / "page.jsonl", PAGE), questions=rows), tmp_path / "corpora")
    found = [question for questions in load_questions(tmp_path / "corpora", digest).values() for question in questions]
    assert {question.id: question.source for question in found} == {"q1": "nq", "q2": ""}
