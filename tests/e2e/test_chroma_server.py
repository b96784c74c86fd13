"""Vectors on a real Chroma server: built, verified, searched, removed through the same interface; without a server one clear line."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import CorpusConfig, EmbedderConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus
from slmsearch.errors import IndexUnusableError
from slmsearch.processes.ports import free_port
from slmsearch.retrieval import search as searching
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.chroma import Server, _connected
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.upkeep import remove_partial, remove_version, verify_version
from tests.e2e.index_cycle import make_corpus
from tests.loopback import listening
from tests.slmsearch.retrieval.conftest import HashEmbedder

START_SECONDS = 60


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's folder."""
    return tmp_path_factory.mktemp("chroma")


@pytest.fixture(scope="module")
def url(disk: Path) -> Iterator[str]:
    """Address of `chroma run` on a free port."""
    import httpx

    port, home = free_port(), disk
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(home), "--host", "127.0.0.1", "--port", str(port)]
    with (home / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=home) as process:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def config(url: str | None) -> RetrievalConfig:
    return RetrievalConfig(embedder=EmbedderConfig(model="no/such-model"), chroma_url=url)


def collections(url: str) -> set[str]:
    import chromadb

    client: Any = chromadb.HttpClient(host="127.0.0.1", port=int(url.rpartition(":")[2]))
    return {collection.name for collection in client.list_collections()}


def test_a_server_serves_like_a_directory(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    corpora = [make_corpus(tmp_path, number) for number in range(2)]
    keys = [build_index(corpus, tmp_path / "served", config(url), embedder=HashEmbedder()) for corpus in corpora]
    local = build_index(corpora[0], tmp_path / "local", config(None), embedder=HashEmbedder())
    assert local == keys[0], "where vectors lie is no part of the key"
    assert not (tmp_path / "served" / keys[0] / "chroma").exists()
    assert {f"slmsearch-{key}" for key in keys} <= collections(url)
    assert verify_version(tmp_path / "served", keys[0], config(url)) == 1.0
    queries = ["Page 7", "fact 49 of edition 0", "edition 1"]
    served = open_index(tmp_path / "served", keys[0], config(url), HashEmbedder())
    beside = open_index(tmp_path / "local", local, config(None), HashEmbedder())
    assert served.search(queries, 5) == beside.search(queries, 5)
    served.close()
    remove_version(tmp_path / "served" / keys[0], config(url))
    assert f"slmsearch-{keys[0]}" not in collections(url) and f"slmsearch-{keys[1]}" in collections(url)


def test_what_is_on_a_server_that_does_not_answer_is_removed_later(url: str, tmp_path: Path):
    key = build_index(make_corpus(tmp_path, 3), tmp_path / "index", config(url), embedder=HashEmbedder())
    manifest, name = tmp_path / "index" / key / "manifest.json", f"slmsearch-{key}"
    (tmp_path / "index" / "CURRENT").unlink()
    text = manifest.read_text()
    manifest.write_text(text.replace(url, f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(IndexUnusableError, match="no Chroma server answers"):
        remove_version(tmp_path / "index" / key, config(url))
    manifest.write_text(text)
    assert manifest.is_file() and name in collections(url)
    manifest.parent.rename(partial := tmp_path / "index" / f".partial-{key}")  # as a build that was killed before it was published
    remove_partial(partial, config(url))
    assert name not in collections(url) and not partial.exists()


def test_a_removed_version_leaves_its_graph_on_the_servers_disk(url: str, disk: Path, tmp_path: Path):
    """As docs/retrieval.md and `ops housekeeping` say; a version in its own directory goes whole."""
    corpora = [make_corpus(tmp_path, number) for number in (1, 2)]
    before = folders(disk)
    key, _ = [build_index(corpus, tmp_path / "index", config(url), embedder=HashEmbedder()) for corpus in corpora]
    filled = folders(disk)
    assert len(filled - before) == 2
    remove_version(tmp_path / "index" / key, config(url))
    assert f"slmsearch-{key}" not in collections(url)
    assert folders(disk) == filled, "Chroma deletes them now: say so in docs/retrieval.md and in `ops housekeeping`"
    with sqlite3.connect(f"file:{disk / 'chroma.sqlite3'}?mode=ro", uri=True) as database:
        named = {row[0] for row in database.execute("select id from segments")}
    assert len(filled - before - named) == 1, "what may be deleted by hand"


def folders(disk: Path) -> set[str]:
    return {path.name for path in disk.iterdir() if path.is_dir()}


def test_a_collection_that_is_gone_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import chromadb

    monkeypatch.setattr(searching, "EXACT_LIMIT", 10)
    key = build_index(make_corpus(tmp_path, 2), tmp_path / "index", config(url), embedder=HashEmbedder())
    chromadb.HttpClient(host="127.0.0.1", port=int(url.rpartition(":")[2])).delete_collection(f"slmsearch-{key}")
    with pytest.raises(IndexUnusableError, match=f"has no collection slmsearch-{key}; build the version again"):
        open_index(tmp_path / "index", key, config(url), HashEmbedder()).search(["Page 7"], 1)


def test_without_a_server_nothing_is_built(tmp_path: Path):
    nobody = f"http://127.0.0.1:{free_port()}"
    source = tmp_path / "pages.jsonl"
    source.write_text(json.dumps({"id": "a", "title": "A", "content": "text"}) + "\n")
    corpus = tmp_path / build_corpus(CorpusConfig(pages=str(source)), tmp_path)
    with pytest.raises(IndexUnusableError, match=f"no Chroma server answers at {nobody}") as raised:
        build_index(corpus, tmp_path / "index", config(nobody), embedder=HashEmbedder())
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "index" / "CURRENT").exists()


def test_user_password_and_path_of_the_address_are_used() -> None:
    asked: list[tuple[str | None, str]] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.headers["Authorization"], self.path))
            self.send_error(401)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with listening(Refusing) as address, pytest.raises(IndexUnusableError, match="no Chroma server answers"):
        _connected(Server(address.replace("//", "//ada:l%40ne@") + "/chroma/", "c"))
    assert asked and all(told == "Basic YWRhOmxAbmU=" and path.startswith("/chroma/api/v2/") for told, path in asked), asked
