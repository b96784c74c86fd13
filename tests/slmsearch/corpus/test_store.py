"""Materialised corpora: found again, immutable, and refused when damaged."""

import json
from datetime import date
from pathlib import Path
from typing import BinaryIO

import pytest

from slmsearch.config import CorpusConfig, RunConfig, WorldConfig
from slmsearch.corpus import store
from slmsearch.corpus.records import parse_page
from slmsearch.corpus.sources import source_parts
from slmsearch.corpus.store import PAGES, QUESTIONS, add_questions, build_corpus, load_questions, read_manifest, read_pages
from slmsearch.corpus.world import generate_world
from slmsearch.environments.question_set import QuestionSet
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key

SMALL = CorpusConfig(world=WorldConfig(pages=60, seed=3))


def test_a_world_comes_back_as_it_was_made(tmp_path: Path):
    digest = build_corpus(SMALL, tmp_path)
    by_split = load_questions(tmp_path, digest)
    world = generate_world(SMALL.world)
    assert list(read_pages(tmp_path / digest)) == world.pages
    loaded = {question.id: question for questions in by_split.values() for question in questions}
    assert loaded == {question.id: question for question in world.questions}
    assert list(by_split) == ["train", "validation", "test"]
    manifest = read_manifest(tmp_path / digest)
    assert (manifest.pages, sum(manifest.questions.values()), manifest.dropped_questions) == (60, len(world.questions), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([digest, "sources"])


def test_the_second_time_nothing_is_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest = build_corpus(SMALL, tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("generated again")

    monkeypatch.setattr(store, "load_source", refuse)
    assert build_corpus(SMALL, tmp_path) == digest
    with pytest.raises(AssertionError):
        build_corpus(SMALL.model_copy(update={"limit_pages": 50}), tmp_path)


def test_the_digest_follows_content_and_limit(tmp_path: Path):
    digests = {
        build_corpus(config, tmp_path)
        for config in (
            SMALL,
            SMALL.model_copy(update={"limit_pages": 10}),
            SMALL.model_copy(update={"world": WorldConfig(pages=60, seed=4)}),
        )
    }
    assert len(digests) == 3


def test_a_changed_file_gives_another_corpus(tmp_path: Path):
    source = tmp_path / "p.jsonl"
    config = CorpusConfig(pages=str(source))
    source.write_text(json.dumps({"id": "a", "title": "A", "content": "one"}))
    first = build_corpus(config, tmp_path / "corpora")
    source.write_text(json.dumps({"id": "a", "title": "A", "content": "two"}))
    second = build_corpus(config, tmp_path / "corpora")
    assert first != second
    assert next(read_pages(tmp_path / "corpora" / first)).content == "one"
    assert load_questions(tmp_path / "corpora", second) == {"train": [], "validation": [], "test": []}


def test_questions_join_the_pages_of_a_corpus_whose_source_has_changed(tmp_path: Path):
    folder, questions, corpora = tmp_path / "docs", tmp_path / "q.jsonl", tmp_path / "corpora"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nIt was founded in 1500.\n")
    (folder / "b.bin").write_bytes(b"\0\1")
    questions.write_text(json.dumps({"id": "q", "question": "When?", "answer": "1500", "page_ids": ["a"], "split": "train"}))
    asked = CorpusConfig(pages=str(folder), questions=str(questions))
    first = build_corpus(asked.model_copy(update={"questions": None}), corpora, skipped := [])
    whole = build_corpus(asked, tmp_path / "other")
    (folder / "a.md").write_text("# A\n\nIt was closed.\n")
    joined = add_questions(asked, corpora, first, again := [])
    assert joined == whole and again == skipped != []
    assert add_questions(asked, corpora, first, found := []) == joined and found == skipped
    assert [page.content for page in read_pages(corpora / joined)] == ["# A\n\nIt was founded in 1500."]
    (folder / "a.md").write_text("# A\n\nIt was founded in 1500.\n")
    record = corpora / "sources" / f"{content_key(**(source_parts(asked) or {}))}.json"
    assert json.loads(record.read_text())["digest"] == joined, "other commands find it by its source"


def test_content_with_any_line_separator_survives(tmp_path: Path):
    content = "# A\r\n\u2028text\x0b\x85\n\ttab\x00"
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "a", "title": "A", "content": content}))
    digest = build_corpus(CorpusConfig(pages=str(tmp_path / "p.jsonl")), tmp_path)
    assert next(read_pages(tmp_path / digest)).content == content


def test_metadata_are_kept_as_a_corpus_can_hold_them(tmp_path: Path):
    row = {"id": "a", "title": "A", "content": "text", "metadata": {"seen": "\ud800", "by": {"n": 1}}}
    (tmp_path / "p.jsonl").write_text(json.dumps(row))
    assert next(read_pages(tmp_path / build_corpus(CorpusConfig(pages=str(tmp_path / "p.jsonl")), tmp_path))).metadata == {
        "seen": "?",
        "by": {"n": 1},
    }
    assert parse_page({**row, "metadata": {"at": date(2024, 5, 3)}}, "row 1").metadata == {"at": "2024-05-03"}


@pytest.mark.parametrize("damage", ["no manifest", "manifest", "row", "truncated", "missing file", "other name"])
def test_a_damaged_corpus_is_refused_and_made_again(tmp_path: Path, damage: str):
    digest = build_corpus(SMALL, tmp_path)
    directory = tmp_path / digest
    pages = directory / "pages.jsonl"
    if damage == "no manifest":
        (directory / "manifest.json").unlink()
    elif damage == "manifest":
        (directory / "manifest.json").write_text("{")
    elif damage == "row":
        pages.write_text(pages.read_text().replace("a", "b", 1))
    elif damage == "truncated":
        pages.write_bytes(pages.read_bytes()[:-10])
    elif damage == "missing file":
        (directory / "questions.jsonl").unlink()
    else:
        directory.rename(tmp_path / "0123456789abcdef0123")
    with pytest.raises(CorpusError) as raised:
        load_questions(tmp_path, digest if damage != "other name" else "0123456789abcdef0123")
    assert "\n" not in str(raised.value)
    assert build_corpus(SMALL, tmp_path) == digest
    assert load_questions(tmp_path, digest)["train"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(file: BinaryIO, rows: object) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_rows", full)
    with pytest.raises(CorpusError, match="No space left on device"):
        build_corpus(SMALL, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_source_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(CorpusError, match="does not exist"):
        build_corpus(CorpusConfig(pages="absent.jsonl"), tmp_path / "corpora")
    assert not (tmp_path / "corpora").exists()


def test_rows_that_name_their_split_keep_it(tmp_path: Path):
    digest = build_corpus(SMALL, tmp_path / "corpora")
    first = load_questions(tmp_path / "corpora", digest)
    pages, questions = tmp_path / "corpora" / digest / PAGES, tmp_path / "moved.jsonl"
    rows = [json.loads(line) for line in (tmp_path / "corpora" / digest / QUESTIONS).read_text().splitlines()]
    moved = {"train": "test", "test": "validation", "validation": "train"}
    questions.write_text("".join(json.dumps(row | {"split": moved[row["split"]]}) + "\n" for row in rows))
    again = load_questions(
        tmp_path / "corpora", build_corpus(CorpusConfig(pages=str(pages), questions=str(questions)), tmp_path / "corpora")
    )
    assert {moved[split]: found for split, found in first.items()} == again


def test_questions_without_pages_keep_their_split(tmp_path: Path):
    path = tmp_path / "questions.jsonl"
    rows = [{"question": f"{n}?", "answer": str(n), "split": "validation" if n > 5 else "test"} for n in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    digest = QuestionSet(RunConfig().changed({"corpus.questions": str(path)})).build(tmp_path / "corpora")
    found = load_questions(tmp_path / "corpora", digest)
    assert {split: len(questions) for split, questions in found.items()} == {"train": 0, "validation": 3, "test": 6}


@pytest.mark.parametrize(
    ("splits", "why"),
    [(("train", None), "has split None"), (("dev", "dev"), "has split 'dev'"), (("train", "test"), "page a is gold in train and in test")],
)
def test_splits_that_cannot_be_are_refused(tmp_path: Path, splits: tuple[str | None, str | None], why: str):
    page, questions = tmp_path / "p.jsonl", tmp_path / "q.jsonl"
    page.write_text(json.dumps({"id": "a", "title": "A", "content": "one"}))
    rows = [{"id": str(n), "question": f"{n}?", "answer": "one", "page_ids": ["a"], "split": split} for n, split in enumerate(splits)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(CorpusError, match=why):
        build_corpus(CorpusConfig(pages=str(page), questions=str(questions)), tmp_path / "corpora")
