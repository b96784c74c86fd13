"""A folder as pages: ids, what is left out and why, and a thousand spoilt files."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents import folder as module
from slmsearch.corpus.documents import reader
from slmsearch.corpus.documents.folder import make_ids
from slmsearch.corpus.documents.reader import Document, ReadingProcess, read_inside
from slmsearch.corpus.documents.skipped import NotTakenError, Reason, Skipped
from slmsearch.corpus.sections import split_sections
from slmsearch.corpus.sources import source_parts
from slmsearch.corpus.store import build_corpus, read_pages
from slmsearch.errors import CorpusError
from tests.slmsearch.corpus.documents.builders import make_docx, make_epub, make_pdf, make_pptx, make_xlsx, read


def test_the_files_that_were_read_are_counted(tmp_path: Path):
    for name in ("a.md", "b.md", "c.pic"):
        (tmp_path / name).write_text("text")
    told: list[tuple[int, int]] = []
    build_corpus(CorpusConfig(pages=str(tmp_path)), tmp_path / "corpora", progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_all_formats_together(tmp_path: Path):
    (tmp_path / "Sub Dir").mkdir()
    (tmp_path / "Sub Dir" / "A File.md").write_text("# Heading\r\n\ntext", newline="")
    (tmp_path / "a.md").write_text("text only")
    (tmp_path / "a.html").write_text("<h1>Web</h1>text")
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.rst").write_text("Rest\n====\n\ntext")
    (tmp_path / "paper.pdf").write_bytes(make_pdf(["text of it"]))
    (tmp_path / "study.docx").write_bytes(make_docx())
    (tmp_path / "show.pptx").write_bytes(make_pptx())
    (tmp_path / "prices.xlsx").write_bytes(make_xlsx())
    (tmp_path / "book.epub").write_bytes(make_epub())
    (tmp_path / "trial.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "# A Trial"}]}')
    (tmp_path / "genindex.html").write_text("<h1>Index</h1><a href=x>sail</a>")
    (tmp_path / "cut.docx").write_bytes(make_docx()[:200])
    pages, (cut, index) = read(tmp_path)
    assert {name: page.title for name, page in pages.items()} == {
        "a": "a (a.md)", "a.html": "Web", "a.txt": "a (a.txt)", "b": "Rest", "paper": "paper", "sub_dir/a_file": "Heading",
        "study": "The Study", "show": "show", "prices": "prices", "book": "Of Boats", "trial": "A Trial",
    }  # fmt: skip
    assert pages["sub_dir/a_file"].content == "# Heading\n\ntext", "as reading a text file gives it"
    assert (cut.path, cut.reason) == ("cut.docx", Reason.BROKEN)
    assert (index.path, index.reason) == ("genindex.html", Reason.INDEX)


def test_everything_not_taken_is_named_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "good.md").write_text("# Good")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("x")
    (tmp_path / "empty.md").write_text("")
    (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "image.html").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "locked.pdf").write_bytes(make_pdf(["x"], password="p"))
    (tmp_path / "scan.pdf").write_bytes(make_pdf([""]))
    (tmp_path / "cut.pdf").write_bytes(make_pdf(["x"])[:60])
    (tmp_path / "large.txt").write_text("x" * 200_000)
    (tmp_path / "gone.md").symlink_to(tmp_path / "nothing.md")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    monkeypatch.setattr(module, "MAX_FILE_MB", 0.1)
    pages, skipped = read(tmp_path)
    assert list(pages) == ["good"]
    assert {item.path: item.reason for item in skipped} == {
        ".git": Reason.HIDDEN, "binary.txt": Reason.BINARY, "cut.pdf": Reason.BROKEN, "empty.md": Reason.EMPTY,
        "gone.md": Reason.BROKEN_LINK, "image.html": Reason.BINARY, "large.txt": Reason.LARGE, "locked.pdf": Reason.ENCRYPTED,
        "loop/": Reason.LINK, "picture.png": Reason.KIND, "pipe.txt": Reason.SPECIAL, "scan.pdf": Reason.NO_TEXT,
    }  # fmt: skip


def test_links_to_files_stay_in_the_folder(tmp_path: Path):
    folder = tmp_path / "docs"
    (folder / ".git").mkdir(parents=True)
    (folder / "good.md").write_text("# Good")
    (folder / ".git" / "key.txt").write_text("SECRET")
    (tmp_path / "key.txt").write_text("SECRET")
    (folder / "inside.md").symlink_to("good.md")
    (folder / "hidden.txt").symlink_to(".git/key.txt")
    (folder / "outside.txt").symlink_to("../key.txt")
    (folder / "twice.txt").symlink_to("outside.txt")
    (tmp_path / "alias").symlink_to(folder)
    for root in (folder, tmp_path / "alias"):
        pages, skipped = read(root)
        assert list(pages) == ["good", "inside"], "a folder that is itself a link is what the user named"
        assert {item.path: item.reason for item in skipped} == {
            ".git": Reason.HIDDEN, "hidden.txt": Reason.OUTSIDE, "outside.txt": Reason.OUTSIDE, "twice.txt": Reason.OUTSIDE,
        }  # fmt: skip


@pytest.mark.parametrize("name", ["a.md", "a.html", "sub/a.md", "sub/a.html"])
def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    folder, outside = tmp_path / "docs", tmp_path / "outside"
    for place in (folder / "sub", outside):
        place.mkdir(parents=True)
    (outside / Path(name).name).write_text("SECRET")
    (folder / name).write_text("harmless")

    def list_and_swap(*arguments: Any) -> Any:
        found = list_folder(*arguments)
        (folder / name).unlink()
        if name.startswith("sub/"):
            (folder / "sub").rmdir()
            (folder / "sub").symlink_to(outside)
        else:
            (folder / name).symlink_to(outside / name)
        return found

    list_folder = module.list_folder
    monkeypatch.setattr(module, "list_folder", list_and_swap)
    pages, (skipped,) = read(folder)
    assert not pages
    assert (skipped.path, skipped.reason) == (name, Reason.OUTSIDE)


def test_what_is_opened_lies_in_the_folder_even_if_it_changes_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, outside = tmp_path / "docs", tmp_path / "outside"
    for place in (folder / "sub", outside):
        place.mkdir(parents=True)
        (place / "a.md").write_text("SECRET" if place == outside else "harmless")
    resolve = Path.resolve

    def resolve_and_swap(path: Path, strict: bool = False) -> Path:
        found = resolve(path, strict)
        if path.name == "a.md":  # between the check and the opening
            (folder / "sub").rename(folder / "gone")
            (folder / "sub").symlink_to(outside)
        return found

    monkeypatch.setattr(Path, "resolve", resolve_and_swap)
    with pytest.raises(NotTakenError) as raised:
        read_inside(folder / "sub" / "a.md", folder)
    assert raised.value.reason is Reason.OUTSIDE


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.md").write_text("a")
    (tmp_path / "b.md").write_text("b")
    real = os.open

    def refuse(path: str | Path, *arguments: int, **named: int) -> int:
        if str(path) == "a.md":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    pages, (skipped,) = read(tmp_path)
    assert list(pages) == ["b"]
    assert (skipped.path, skipped.reason, skipped.detail) == ("a.md", Reason.UNREADABLE, "Permission denied")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_text_are_taken_and_printed_safely(tmp_path: Path):
    odd = os.fsdecode(b"k\xf6ln.md")
    (tmp_path / odd).write_text("text")
    (tmp_path / os.fsdecode(b"\xff.png")).write_text("x")
    (tmp_path / os.fsdecode(b"Nr. 5 f\xfcr")).write_text("x")
    (tmp_path / "line\nbreak\x01.txt").write_text("text")
    config = CorpusConfig(pages=str(tmp_path))
    found: list[Skipped] = []
    digest = build_corpus(config, tmp_path / ".corpora", found)
    skipped = [item.path for item in found]
    assert [page.id for page in read_pages(tmp_path / ".corpora" / digest)] == ["k\ufffdln", "line_break_"]
    assert sorted(set(skipped) - {".corpora"}) == ["Nr. 5 f\\udcfcr", "\\udcff.png"]


def test_ids_do_not_depend_on_the_order_of_files():
    places = ["a.md", "A.md", "a.html", "a.html.txt", "x y.pdf", "x_y.txt", "b.htm", "b.html"]
    ids = make_ids(places)
    assert ids == make_ids(places[::-1])
    assert ids["A.md"] == "a" and ids["a.md"] == "a.md" and ids["x_y.txt"] == "x_y" and ids["x y.pdf"] == "x_y.pdf"
    assert sorted(set(ids.values())) == sorted(ids.values()), "each its own"
    assert ids["a.html"] == "a.html_2", "a.html.txt comes to it by its own name"


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


def test_what_a_page_was_made_from_is_not_read_beside_it(tmp_path: Path):
    (tmp_path / "docs" / "_sources" / "use").mkdir(parents=True)
    (tmp_path / "docs" / "use").mkdir()
    (tmp_path / "docs" / "use" / "mill.html").write_text("<h1>Mill</h1>text")
    for name in ("use/mill.rst.txt", "use/alone.rst.txt"):
        (tmp_path / "docs" / "_sources" / name).write_text("Mill\n====\n\ntext")
    pages, skipped = read(tmp_path)
    assert list(pages) == ["docs/_sources/use/alone.rst", "docs/use/mill"]
    assert [(item.path, item.reason) for item in skipped] == [("docs/_sources/use/mill.rst.txt", Reason.SOURCE)]


def test_a_folder_without_documents_says_what_it_holds(tmp_path: Path):
    (tmp_path / "a.md").write_text("")
    (tmp_path / "b.png").write_text("x")
    with pytest.raises(CorpusError, match=r"holds no pages, and none of its 2 files can be taken \(a.md is empty\)"):
        build_corpus(CorpusConfig(pages=str(tmp_path)), tmp_path / ".corpora")


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(spoilt) + 1)
        match rng.randrange(5):
            case 0 if at < len(spoilt):
                spoilt[at] = rng.randrange(256)
            case 1:
                spoilt[at:at] = rng.randbytes(rng.randint(1, 30))
            case 2:
                del spoilt[at : at + rng.randint(1, 80)]
            case 3:
                spoilt[at:at] = spoilt[at : at + 60] * rng.randint(1, 20)
            case _:
                spoilt[at:at] = rng.choice(
                    [b"<div>" * 50, b"```", b"# ", b"\x00", b"<!--", b"endobj", b"/Length 999999", b"<<" * 40, b"\xff\xfe"]
                )
    return bytes(spoilt)


def test_a_thousand_spoilt_documents_are_read_or_named(tmp_path: Path):
    rng = random.Random(7)
    seeds = {
        ".md": "# T\u00eftle\n\nText with `code`.\n\n```\n# no\n```\n\n## Part\n\n- one\n- two\n".encode(),
        ".txt": "A plain text.\n\nOf two paragraphs \u2013 and a dash.".encode("cp1252"),
        ".rst": b"Title\n=====\n\nText.\n\nPart\n----\n\nmore",
        ".html": b"<html><head><title>T</title></head><body><h1>A</h1><p>x<table><tr><td>1</td></tr></table><pre>y</pre></body></html>",
        ".pdf": make_pdf(["Intro\nSome text.", "More text."], [("Intro", 0)], "A title"),
    }
    for number in range(1000):
        suffix = rng.choice(list(seeds))
        data = rng.randbytes(rng.randint(0, 400)) if rng.random() < 0.1 else spoil(rng, seeds[rng.choice([suffix, suffix, ".md"])])
        (tmp_path / f"{number}{suffix}").write_bytes(data)
    pages, skipped = read(tmp_path)
    assert len(pages) + len(skipped) == 1000
    assert len(pages) > 300 and len(skipped) > 100, "both happen"
    assert {item.reason for item in skipped} <= set(Reason) - {Reason.CRASHED, Reason.SLOW, Reason.MEMORY}
    assert all(item.path and item.detail.isprintable() for item in skipped)
    for page in pages.values():
        page.content.encode()
        assert split_sections(page)


def test_a_template_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('{{- $wide := .Get "wide" }}\n<p>{{ with .Title }}<b>{{ . }}</b>{{ end }} mill</p>')
    (tmp_path / "long.html").write_text("{{ $wheels := slice " + '(dict "oak" "a/b")\n' * 200 + "}}<p>{{ len $wheels }}</p>{{ end }}")
    (tmp_path / "b.html").write_text("{% extends 'x.html' %}{% block main %}<h1>{{ title }}</h1>{% endblock %}")
    shown = "<p>Templates of the mill say <code>{{ if }}</code> and {{ end }}, or {{ else }}, as the miller wrote in spring.</p>"
    (tmp_path / "c.html").write_text(f"{shown}<pre>{'{{ range .Wheels }}' * 9}</pre><p>{'The wheel turns and the mill grinds. ' * 9}</p>")
    pages, skipped = read(tmp_path)
    assert set(pages) == {"c"} and "{{ range .Wheels }}" in pages["c"].content
    assert [(item.path, item.reason) for item in skipped] == [(f"{name}.html", Reason.KIND) for name in ("a", "b", "long")]
