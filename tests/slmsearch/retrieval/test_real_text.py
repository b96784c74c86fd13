"""The SQuAD pack beside the project: loads without options, validates, indexes, and is searched with the real embedder."""

from pathlib import Path

import pytest

from slmsearch.config import CorpusConfig, EmbedderConfig, RetrievalConfig
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.library import Library
from slmsearch.corpus.store import build_corpus, load_questions, read_manifest, read_pages
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.search import open_index

PACK = Path(__file__).resolve().parents[4] / "shared" / "data"

pytestmark = pytest.mark.skipif(not (PACK / "squad_pages.jsonl").is_file(), reason=f"the SQuAD pack is not at {PACK}")


def pack(limit_pages: int = 0) -> CorpusConfig:
    return CorpusConfig(pages=str(PACK / "squad_pages.jsonl"), questions=str(PACK / "squad_questions.jsonl"), limit_pages=limit_pages)


def test_the_whole_pack_validates(tmp_path: Path):
    directory = tmp_path / build_corpus(pack(), tmp_path)
    report = validate_corpus(directory)
    assert [finding for finding in report.findings if finding.severity == "critical"] == []
    assert (report.counts["pages"], report.counts["questions"]) == (44, 3000)
    counts = read_manifest(directory).questions
    assert counts["train"] == pytest.approx(2400, abs=150) and min(counts.values()) > 150
    library = Library(read_pages(directory))
    for questions in load_questions(tmp_path, directory.name).values():
        for question in questions:
            section = library.section(question.section_ids[0])
            assert section is not None and question.answer in section.text


@pytest.mark.slow
def test_three_pages_are_indexed_and_searched(tmp_path: Path):
    digest = build_corpus(pack(limit_pages=3), tmp_path)
    config = RetrievalConfig(embedder=EmbedderConfig(device="cpu"), max_passage_chars=200)
    key = build_index(tmp_path / digest, tmp_path / "index", config)
    index = open_index(tmp_path / "index", key, config)
    for page in read_pages(tmp_path / digest):
        assert index.search([page.title], 1)[0][0].page_id == page.id
    questions = [question for split in load_questions(tmp_path, digest).values() for question in split][::10]
    hits = index.search([question.question for question in questions], 1)
    right = sum(found[0].page_id == question.page_ids[0] for found, question in zip(hits, questions, strict=True))
    assert right / len(questions) > 0.7
