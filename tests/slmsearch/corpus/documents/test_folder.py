"""A folder as pages: ids, what is left out and why, and a thousand spoilt files."""

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents import folder as module
from slmsearch.corpus.documents.folder import make_ids
from slmsearch.corpus.documents.reader import read_inside
from slmsearch.corpus.documents.skipped import NotTakenError, Reason, Skipped
from slmsearch.corpus.sections import split_sections
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
