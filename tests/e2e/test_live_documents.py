"""`slmsearch serve searcher --watch` with tiny-searcher on a folder that is edited.

One service for the whole file, in the order of the tests.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from slmsearch.config import WorldConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.world import generate_world
from slmsearch.processes.ports import free_port
from tests.e2e.conftest import MODEL
from tests.e2e.small_world import PATIENCE_SECONDS, Embeddings
from tests.e2e.stand import wait_for
from tests.loopback import listening
from tests.root import ROOT


@dataclass
class Live:
    folder: Path
    home: Path
    flags: list[str]
    questions: list[Question]
    """One of each page that the policy answers from one page."""
    process: "subprocess.Popen[str] | None" = None
    url: str = ""
    failed: list[str] = field(default_factory=list)
    """Replies to a client that asks all the time, other than answers."""

    def start(self) -> None:
        port = free_port()
        with (self.home / "log").open("a") as log:
            words = ["serve", "searcher", "--json", "--watch", str(self.folder), "--port", str(port), *self.flags]
            kept = {name: value for name, value in os.environ.items() if name not in ("TESTS_FORK_SERVER", "SLMSEARCH_API_TOKEN")}
            command = [sys.executable, "-m", "flows", *words]
            self.process = subprocess.Popen(command, text=True, cwd=ROOT, env=kept, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline() or "{}")
        assert told, (self.home / "log").read_text()
        self.url = told["base_url"]

    def ask(self, question: str) -> dict[str, Any]:
        body = {"model": "searcher", "messages": [{"role": "user", "content": question}]}
        reply = httpx.post(f"{self.url}/chat/completions", json=body, trust_env=False, timeout=PATIENCE_SECONDS)
        assert reply.status_code == 200, reply.text
        own: dict[str, Any] = reply.json()["slmsearch"]
        return own

    def documents(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/documents", trust_env=False, timeout=PATIENCE_SECONDS).json()
        return found

    def file(self, page: str) -> Path:
        return self.folder / f"{page}.md"

    def versions(self) -> set[str]:
        return {path.parent.name for path in (self.home / "data" / "index").glob("*/manifest.json")}

    def replace(self, question: Question, answer: str) -> None:
        file = self.file(question.page_ids[0])
        file.write_text(file.read_text().replace(question.answer, answer))

    def numbers(self) -> list[Question]:
        return [question for question in self.answered() if question.answer.isdecimal()]

    def answered(self) -> list[Question]:
        """Return questions that are answered rightly from one page."""
        return [one for one in self.questions if self.ask(one.question)["answer"] == one.answer][:12]


def name_settings(home: Path, address: str) -> list[str]:
    """Return the flags of a service whose data and questions lie in `home`, with the embedder at an address."""
    settings = {
        "paths.data_dir": home / "data",
        "paths.mlruns_dir": home / "mlruns",
        "corpus.questions": home / "questions.jsonl",
        "retrieval.embedder.base_url": address,
        "retrieval.embedder.model": "words",
        "policy.model": MODEL,
        "policy.device": "cpu",
        "service.deadline_s": PATIENCE_SECONDS,
        "service.traced_frac": 0,
    }
    return [f"--{name}={value}" for name, value in settings.items()]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("live")
    folder, world = home / "docs", generate_world(WorldConfig(pages=60, seed=5))
    folder.mkdir()
    for page in world.pages:
        (folder / f"{page.id}.md").write_text(page.content)
    rows = [question.row() for question in world.questions if question.kind == "one_hop"]
    (home / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_page = {question.page_ids[0]: question for question in world.questions if question.kind == "one_hop" and len(question.page_ids) == 1}
    with listening(Embeddings) as address:
        served = Live(folder, home, name_settings(home, address), list(of_page.values())[:24])
        served.start()
        yield served
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_SECONDS) == 0, (home / "log").read_text()


@pytest.fixture(scope="module")
def asked_meanwhile(live: Live) -> Iterator[list[str]]:
    """A client that asks all the time; yields what was no answer."""
    stop = threading.Event()

    def ask_on() -> None:
        while not stop.is_set():
            try:
                live.ask(live.questions[0].question)
            except Exception as error:
                live.failed.append(str(error))

    thread = threading.Thread(target=ask_on)
    thread.start()
    yield live.failed
    stop.set()
    thread.join()


def test_an_edit_is_answered_from_and_fails_no_question(live: Live, asked_meanwhile: list[str]) -> None:
    one, before = live.numbers()[0], live.documents()
    live.replace(one, "4321")
    wait_for(lambda: live.ask(one.question)["answer"] == "4321", PATIENCE_SECONDS, "the new answer is given")
    after = live.documents()
    assert after["index_key"] != before["index_key"] and after["age_s"] < before["age_s"] + 1 and after["held_back"] is None
    wait_for(lambda: before["index_key"] not in live.versions() or len(live.versions()) <= 2, PATIENCE_SECONDS, "old versions are gone")
    assert not asked_meanwhile


def test_edits_that_lose_facts_are_held_back_with_the_reason_until_they_are_mended(live: Live) -> None:
    lost = live.answered()[:5]
    texts = {question.page_ids[0]: live.file(question.page_ids[0]).read_text() for question in lost}
    for question in lost:
        live.replace(question, "nothing")
    wait_for(lambda: live.documents()["held_back"] is not None, PATIENCE_SECONDS, "it is held back")
    held = live.documents()["held_back"]
    assert "questions are no longer there" in held["reasons"][0] and "--accept" in held["remedy"]
    assert [live.ask(question.question)["answer"] for question in lost] == [question.answer for question in lost]
    for page, text in texts.items():
        live.file(page).write_text(text)
    wait_for(lambda: live.documents()["held_back"] is None, PATIENCE_SECONDS, "it is as it was")


def test_what_is_deleted_is_never_quoted_again_whatever_is_held_back(live: Live) -> None:
    gone, emptied = live.answered()[:2]
    text = live.file(emptied.page_ids[0]).read_text()
    live.file(emptied.page_ids[0]).write_text("")
    wait_for(lambda: live.documents()["held_back"] is not None, PATIENCE_SECONDS, "it is held back")
    assert "the file is empty" in live.documents()["held_back"]["reasons"][0]
    live.file(gone.page_ids[0]).unlink()

    def pages() -> set[str]:
        own = live.ask(gone.question)
        return {source["page_id"] for source in own["sources"]}

    wait_for(lambda: gone.page_ids[0] not in pages(), PATIENCE_SECONDS, "it is not quoted")
    assert all(gone.page_ids[0] not in pages() for _ in range(5)) and live.ask(gone.question)["answer"] != gone.answer
    assert live.documents()["held_back"] is not None and live.ask(emptied.question)["answer"] == emptied.answer
    live.file(emptied.page_ids[0]).write_text(text)
    wait_for(lambda: live.documents()["held_back"] is None, PATIENCE_SECONDS, "it is as it was")


def test_a_folder_that_vanishes_leaves_the_version_of_before(live: Live) -> None:
    one = live.numbers()[-1]
    aside = live.folder.with_name("aside")
    live.folder.rename(aside)
    wait_for(
        lambda: "is gone, or holds no document: the version of before is served" in (live.home / "log").read_text(),
        PATIENCE_SECONDS,
        "it was noticed",
    )
    assert live.ask(one.question)["answer"] == one.answer
    aside.rename(live.folder)
    live.replace(one, "1234")
    wait_for(lambda: live.ask(one.question)["answer"] == "1234", PATIENCE_SECONDS, "edits are noticed again")


def test_killed_it_begins_with_the_version_that_it_served(live: Live) -> None:
    lost = live.answered()[:5]
    for question in lost:
        live.replace(question, "nothing")
    wait_for(lambda: live.documents()["held_back"] is not None, PATIENCE_SECONDS, "it is held back")
    key = live.documents()["index_key"]
    assert live.process is not None
    live.process.kill()
    live.process.communicate()
    live.start()
    assert live.documents()["index_key"] == key
    assert [live.ask(question.question)["answer"] for question in lost] == [question.answer for question in lost]
    live.process.send_signal(signal.SIGTERM)
    assert live.process.wait(PATIENCE_SECONDS) == 0
    live.flags.append("--accept")
    live.start()
    assert all(live.ask(question.question)["answer"] != question.answer for question in lost)
    assert len(live.versions()) <= 2
