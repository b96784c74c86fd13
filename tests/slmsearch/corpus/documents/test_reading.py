"""Documents of a folder, read in processes of their own: side by side, killed, slow, and remembered."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents import folder as module
from slmsearch.corpus.documents import reader
from slmsearch.corpus.documents.reader import Document, ReadingProcess
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.sources import source_parts
from slmsearch.corpus.store import build_corpus, read_pages


def test_a_slow_document_is_left_out_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.html").write_text("<p>one")
    (tmp_path / "b.html").write_text("<p>two")
    monkeypatch.setattr(reader, "START_S", 0.0)
    with ReadingProcess(timeout_s=0.0) as process:
        with pytest.raises(NotTakenError) as raised:
            process.read(tmp_path / "a.html", tmp_path)
        assert raised.value.reason is Reason.SLOW
        monkeypatch.setattr(reader, "START_S", 60.0)
        assert process.read(tmp_path / "b.html", tmp_path).content == "two"
        process._process.kill()
        process._process.wait()
        assert process.read(tmp_path / "a.html", tmp_path).content == "one", "a process that died is started again"


def test_a_crash_is_the_documents_fault_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.html").write_text("<p>one")
    monkeypatch.setattr(reader, "__name__", "slmsearch.no_such_module")
    with ReadingProcess(timeout_s=60) as process, pytest.raises(NotTakenError) as raised:
        process.read(tmp_path / "a.html", tmp_path)
    assert raised.value.reason is Reason.CRASHED


def test_documents_are_read_side_by_side_and_told_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two at once: neither is read before both have begun."""
    for name in "abcd":
        (tmp_path / f"{name}.html").write_text(f"<h1>Page {name}</h1>text")
    both, read_really = threading.Barrier(2), ReadingProcess.read

    def read_together(self: ReadingProcess, path: Path, root: Path) -> Document:
        both.wait(60)
        if path.name == "c.html":
            raise NotTakenError(Reason.SLOW)
        return read_really(self, path, root)

    monkeypatch.setattr(module, "count_cores", lambda: 2)
    monkeypatch.setattr(ReadingProcess, "read", read_together)
    told = list[tuple[int, int]]()
    found = module.read_folder(tmp_path, progress=lambda *at: told.append(at))
    assert [page.id for page in found.pages] == ["a", "b", "d"] and [item.path for item in found.skipped] == ["c.html"]
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_two_files_of_one_content_are_kept_once(tmp_path: Path):
    for name in "abc":
        (tmp_path / "docs" / name).mkdir(parents=True)
        (tmp_path / "docs" / name / "page.html").write_text("<h1>Page</h1>text")
    for _ in range(2):
        assert len(module.read_folder(tmp_path / "docs", tmp_path / "kept.lines", "p").pages) == 3
        assert len((tmp_path / "kept.lines").read_text().splitlines()) == 2, "the parsers' key and one document"


def test_a_reading_that_is_broken_off_leaves_no_process_and_reads_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(40):
        (tmp_path / f"{number:02d}.html").write_text("<h1>Page</h1>text")
    begun, closed, read_really, close_really = list[ReadingProcess](), threading.Event(), ReadingProcess.read, ReadingProcess.close

    def read_or_wait(self: ReadingProcess, path: Path, root: Path) -> Document:
        begun.append(self)
        if path.name >= "05":
            closed.wait(60)
        return read_really(self, path, root)

    monkeypatch.setattr(module, "count_cores", lambda: 2)
    monkeypatch.setattr(ReadingProcess, "read", read_or_wait)
    monkeypatch.setattr(ReadingProcess, "close", lambda self: closed.set() or close_really(self))

    def break_off(at: int, _: int) -> None:
        if at == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module.read_folder(tmp_path, progress=break_off)
    assert len(begun) <= 7 and all(process._process is None for process in begun)


def test_what_was_skipped_is_remembered_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    documents, corpora = tmp_path / "documents", tmp_path / "corpora"
    documents.mkdir()
    (documents / "a.md").write_text("# A\n\ntext")
    (documents / "b.md").write_text("")
    config = CorpusConfig(pages=str(documents))
    first, second = [], []
    digest = build_corpus(config, corpora, first)
    monkeypatch.setattr(module, "read_folder", None)
    assert build_corpus(config, corpora, second) == digest
    assert [(item.path, item.reason) for item in first] == [("b.md", "empty")]
    assert second == first


def test_what_may_have_been_the_machines_fault_is_read_again_an_hour_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    documents, corpora = tmp_path / "documents", tmp_path / "corpora"
    documents.mkdir()
    for name in "ab":
        (documents / f"{name}.html").write_text(f"<h1>Page {name}</h1>text")
    busy, read_really = [True], ReadingProcess.read

    def read_slowly(self: ReadingProcess, path: Path, root: Path) -> Document:
        if busy[0] and path.name == "b.html":
            raise NotTakenError(Reason.SLOW)
        return read_really(self, path, root)

    monkeypatch.setattr(ReadingProcess, "read", read_slowly)
    config = CorpusConfig(pages=str(documents))
    first = build_corpus(config, corpora)
    busy[0] = False
    assert build_corpus(config, corpora) == first
    (record,) = (corpora / "sources").glob("*.json")
    os.utime(record, (0, 0))
    again = build_corpus(config, corpora, skipped := [])
    assert [page.id for page in read_pages(corpora / again)] == ["a", "b"] and not skipped


def test_a_folder_that_changes_while_it_is_read_is_not_remembered_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    documents, corpora = tmp_path / "documents", tmp_path / "corpora"
    documents.mkdir()
    (documents / "a.html").write_text("<h1>A</h1>before")
    read_really = ReadingProcess.read

    def edit_and_read(self: ReadingProcess, path: Path, root: Path) -> Document:
        path.write_text("<h1>A</h1>another branch")
        return read_really(self, path, root)

    config = CorpusConfig(pages=str(documents))
    with monkeypatch.context() as patch:
        patch.setattr(ReadingProcess, "read", edit_and_read)
        build_corpus(config, corpora)
    (documents / "a.html").write_text("<h1>A</h1>before")
    (page,) = read_pages(corpora / build_corpus(config, corpora))
    assert page.content.endswith("before")


def test_a_reader_whose_starter_was_killed_ends_by_itself(tmp_path: Path):
    program = "import sys, time; from slmsearch.corpus.documents import reader; sys.argv = ['', '0.1']\n"
    program += "reader.read_document = lambda *_: time.sleep(600)\nreader.serve()"
    told = f"{os.fsencode(tmp_path).hex()} {os.fsencode(tmp_path).hex()}\n"
    ended = subprocess.run([sys.executable, "-c", program], input=told, text=True, timeout=60)
    assert ended.returncode == -signal.SIGALRM


def test_only_what_changed_is_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, config = tmp_path / "docs", CorpusConfig(pages=str(tmp_path / "docs"))
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.html").write_text(f"<h1>Page {name}</h1>text")
    parsed, read_really = list[str](), ReadingProcess.read
    monkeypatch.setattr(ReadingProcess, "read", lambda self, path, root: parsed.append(path.name) or read_really(self, path, root))
    first = build_corpus(config, tmp_path / "corpora")
    (folder / "b.html").write_text("<h1>Page b</h1>other text")
    (folder / "c.html").unlink()
    second = build_corpus(config, tmp_path / "corpora")
    assert sorted(parsed[:3]) == ["a.html", "b.html", "c.html"] and parsed[3:] == ["b.html"]
    (folder / "b.html").write_text("<h1>Page b</h1>text")
    (memory,) = (tmp_path / "corpora" / "sources" / "parsed").glob("*.lines")
    assert len(memory.read_text().splitlines()) == 3, "only what is there is kept, under the key of the parsers"
    memory.write_text(memory.read_text()[:-20])
    third = build_corpus(config, tmp_path / "corpora")
    assert parsed[4:] == ["b.html"], "a line that was cut off is none; the others stay"
    monkeypatch.setattr("slmsearch.corpus.sources.version", lambda name: "another")
    build_corpus(config, tmp_path / "corpora")
    assert sorted(parsed[5:]) == ["a.html", "b.html"], "what another parser made is not taken"
    texts = [[page.content for page in read_pages(tmp_path / "corpora" / digest)] for digest in (first, second, third)]
    assert texts[0][:2] == texts[2] and texts[1] == [texts[0][0], "# Page b\n\nother text"]


def test_a_changed_file_that_a_document_includes_gives_another_corpus_and_a_changed_picture_does_not(tmp_path: Path):
    folder, config = tmp_path / "docs", CorpusConfig(pages=str(tmp_path / "docs"))
    folder.mkdir()
    (folder / "a.md").write_text("# Guide\n\n{{#include limits.toml}}\n")
    (folder / "b.rst").write_text("Guide B\n=======\n\n.. include:: part.inc\n")
    digests = []
    for limit, price, pixel in ((10, 5, 1), (99, 5, 1), (99, 7, 1), (99, 7, 2)):
        (folder / "limits.toml").write_text(f"max = {limit}")
        (folder / "part.inc").write_text(f"It costs {price} euros.")
        (folder / "picture.png").write_bytes(b"\x89PNG\0" + bytes([pixel]))
        digests.append((build_corpus(config, tmp_path / "corpora"), source_parts(config)))
    assert [page.content for page in read_pages(tmp_path / "corpora" / digests[2][0])] == [
        "# Guide\n\nmax = 99", "# Guide B\n\nIt costs 7 euros.",
    ]  # fmt: skip
    assert len({digest for digest, _ in digests}) == 3 and digests[2] == digests[3]


def test_a_reading_that_was_killed_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, memory = tmp_path / "docs", tmp_path / "memory" / "kept.lines"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.html").write_text(f"<h1>Page {name}</h1>text")
    killed = (
        "import os, signal, sys; from pathlib import Path; from slmsearch.corpus.documents.folder import read_folder\n"
        "read_folder(Path(sys.argv[1]), Path(sys.argv[2]), 'p', lambda at, _: at == 2 and os.kill(os.getpid(), signal.SIGKILL))"
    )
    assert subprocess.run([sys.executable, "-c", killed, folder, memory], check=False).returncode == -signal.SIGKILL
    parsed, read_really = list[str](), ReadingProcess.read
    monkeypatch.setattr(ReadingProcess, "read", lambda self, path, root: parsed.append(path.name) or read_really(self, path, root))
    pages, skipped, _ = module.read_folder(folder, memory, "p")
    assert sorted(parsed) == ["c.html", "d.html"] and not skipped
    assert pages == module.read_folder(folder).pages
