"""The files that pages were read from: those alone, as they are now, and never as what a browser runs."""

import os
from pathlib import Path

import pytest

from slmsearch.corpus.pages import Page
from slmsearch.serving.documents import originals
from slmsearch.serving.documents.originals import read_original

NAMES = ("a b/notes.md", "page.html", "manual.pdf", "plan.docx", "gone.md", "led.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "docs"
    for name in (*NAMES[:4], "secret.md", "plan.csv"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"text of {name}")
    (tmp_path / "outside.md").write_text("secret")
    os.symlink(tmp_path / "outside.md", place / "led.md")
    pages = [Page(f"p{number}", name, "", {"path": name}) for number, name in enumerate(NAMES)]
    monkeypatch.setattr(originals, "read_pages", lambda _: iter([*pages, Page("world", "of a file", "")]))
    return place


def test_a_file_comes_as_what_a_browser_shows_or_saves_and_never_as_what_it_runs(folder: Path) -> None:
    kinds = {}
    (folder / "a b" / "notes.md").write_bytes("text of a b/notes.md".encode("utf-16"))
    for name in NAMES[:4]:
        reply = read_original(str(folder), folder.parent / "first", name)
        assert reply is not None and reply.body == f"text of {name}".encode()
        kinds[name] = (reply.headers["content-type"], "sandbox" in reply.headers.get("content-security-policy", ""))
    assert kinds == {
        "a b/notes.md": ("text/plain; charset=utf-8", True),
        "page.html": ("text/plain; charset=utf-8", True),
        "manual.pdf": ("application/pdf", False),
        "plan.docx": ("application/octet-stream", False),
    }


def test_what_no_page_was_read_from_or_lies_elsewhere_or_is_gone_is_not_there(folder: Path) -> None:
    corpus = folder.parent / "second"
    for path in ("secret.md", "../outside.md", "gone.md", "led.md", "", ".", "a b", str(folder / "page.html"), "page.html/"):
        assert read_original(str(folder), corpus, path) is None, path
    assert read_original(None, corpus, "page.html") is None
    assert read_original(str(folder / "page.html"), corpus, "page.html") is None, "the pages are those of a file"
