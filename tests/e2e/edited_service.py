"""A service that watches a folder under edits: its clients, who check each answer, its kills, and what it leaves on disk and in memory."""

import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.e2e.edited_folder import EditedFolder, read_mark, read_marks
from tests.e2e.small_world import PATIENCE_SECONDS
from tests.e2e.stand import still_alive, wait_for
from tests.e2e.test_live_documents import Live, name_settings

NOTICE_S = 5.0
"""Time after which no question that begins quotes a removed file: the service looks every second, on a machine with other work."""
MOST_EDITS = 80
"""Number of edits that a version may have to wait for."""
MOMENTS = {"any": 10.0, "building": 3.0, "taking over": 2.0}
"""Moment of a kill -> time within which it comes, at random."""


class EditedService:
    """The service, its clients, and what they saw; files beside its data directory let another process go on."""

    def __init__(self, home: Path, address: str, pages: int, seed: int) -> None:
        (home / "tmp").mkdir(exist_ok=True)
        self.home, self.folder, self._seed = home, EditedFolder(home, pages, seed), seed
        rows = [question.row() for question in self.folder.questions.values()]
        (home / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.live = Live(self.folder.docs, home, name_settings(home, address), [])
        kept = json.loads(figures.read_text()) if (figures := home / "figures.json").is_file() else {}
        self.counts, self.wrong, self.failed = Counter(kept.get("counts", {})), kept.get("wrong", []), kept.get("failed", [])
        self.lives: list[list[list[float]]] = kept.get("lives", [])
        """Of each process what was measured: edits, age, versions, memory of the process, of the one that builds, of all children."""
        self.most_versions = 0
        self._paced = 0, self.folder.done
        """Number of versions that were answered from, and of edits at that time."""
        self.outages: list[list[float]] = []
        self.keys: dict[str, float] = {}
        """Index key -> end of the first answer from it."""
        self.said: dict[tuple[str, str], int] = {}
        """Index key and path -> mark."""
        self._lock, self._stop = threading.Lock(), threading.Event()

    def start(self) -> None:
        began = time.time()
        self.live.start()
        self.lives.append([])
        self.say(f"started in {time.time() - began:.1f} s")

    def stop(self) -> None:
        """Let the clients end, after their present questions."""
        self._stop.set()

    def kill(self, moment: str, chance: random.Random) -> None:
        """Kill the service at a moment, and start it again."""
        live, key, until = self.live, self.live.documents()["index_key"], time.monotonic() + 30
        assert live.process is not None
        if moment != "any":
            happened = {
                "building": lambda: [*self.home.glob("data/*/.tmp-*"), *self.home.glob("data/live/*.building")],
                "taking over": lambda: live.documents()["index_key"] != key,
            }[moment]
            wait_for(lambda: happened() or time.monotonic() > until, 60, moment)
        time.sleep(chance.uniform(0, MOMENTS[moment]))
        self.outages.append([time.time(), float("inf")])
        family = psutil.Process(live.process.pid).children(recursive=True)
        live.process.kill()
        live.process.communicate()
        assert not still_alive(family)
        self.say(f"killed: {moment}")
        self.start()
        self.outages[-1][1] = time.time()
        self.counts[f"kills ({moment})"] += 1

    def ask_on(self, number: int) -> None:
        """Ask and look at documents until the end, as one of the clients."""
        chance = random.Random(f"{self._seed} client {number} {self.folder.done}")
        while not self._stop.is_set():
            path, question = self.folder.choose(chance)
            began, kind = time.time(), chance.choice(("ask", "ask", "ask", "file", "file", "get"))
            try:
                self._request(kind, path, question, began)
            except (httpx.HTTPError, AssertionError) as error:
                ended = time.time()
                known = any(killed <= ended and began <= ready + 0.5 for killed, ready in self.outages)
                self.counts["failed during kills" if known else "failed"] += 1
                if not known:
                    self.failed.append(f"{kind} {path}: {type(error).__name__} {error}")
                    self.say(f"FAILED {self.failed[-1]}")
                self._stop.wait(0.2)

    def _request(self, kind: str, path: str, question: str, began: float) -> None:
        limits: dict[str, Any] = {"trust_env": False, "timeout": PATIENCE_SECONDS}
        if kind == "get":
            got = httpx.get(f"{self.live.url}/documents/{path}", **limits)
            assert got.status_code in (200, 404), got.text
            if got.status_code == 200:
                self._judge([(path, read_mark(got.text))], began, "")
        else:
            body: dict[str, Any] = {"model": "searcher", "messages": [{"role": "user", "content": question}]}
            scope = {"metadata": {"file": path}} if kind == "file" else {}
            got = httpx.post(f"{self.live.url}/chat/completions", json=body | scope, **limits)
            none = kind == "file" and got.status_code == 404 and got.json()["error"]["code"] == "no_such_pages"
            assert none or got.status_code == 200, got.text
            if not none:
                own = got.json()["slmsearch"]
                self._judge([(one["path"], read_mark(one["text"])) for one in own["sources"]], began, own["index_key"])
                self.counts["quoted"] += bool(own["sources"])
        self.counts[kind] += 1

    def _judge(self, quoted: list[tuple[str, int | None]], began: float, key: str) -> None:
        faults, ended = [self.folder.find_fault(path, mark, began, NOTICE_S, self.outages) for path, mark in quoted], time.time()
        with self._lock:
            if key:
                self.keys.setdefault(key, ended)
                newer = [other for other, first in self.keys.items() if self.keys[key] < first < began]
                faults += [f"from version {key} after {newer[-1]} ({began - self.keys[newer[-1]]:.1f} s)"] if newer else []
                for path, mark in quoted:
                    if self.said.setdefault((key, path), mark or 0) != mark:
                        faults.append(f"version {key} says two things in {path}")
            self.wrong += (found := [fault for fault in faults if fault])
        for fault in found:
            self.say(f"WRONG {fault}")

    def edit(self, burst: int) -> None:
        for _ in range(burst):
            self.folder.step()
        self.measure()

    @property
    def kills(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("kills"))

    def served(self) -> int:
        """Return the number of versions that the present process has answered from."""
        return len([first for first in [*self.keys.values()] if not self.outages or first > self.outages[-1][1]])

    def keeps_up(self) -> bool:
        """Return whether a version came after the last few bursts, or cannot come: it is held back, or the service is away."""
        away = bool(self.outages) and self.outages[-1][1] > time.time()
        if len(self.keys) > self._paced[0] or away:
            self._paced = len(self.keys), self.folder.done
        if self.folder.done - self._paced[1] < MOST_EDITS:
            return True
        with suppress(httpx.HTTPError):
            if (held := self.live.documents()["held_back"]) is not None:
                self.say(f"held back: {held['reasons']}")
                self.counts["held back"] += 1
                self._paced = len(self.keys), self.folder.done
        return False

    def measure(self) -> None:
        """Note memory and disk, of a process that answers."""
        assert self.live.process is not None
        try:
            main = psutil.Process(self.live.process.pid)
            children = sorted(main.children(recursive=True), key=lambda one: one.create_time())
            sizes = [one.memory_info().rss / 1e6 for one in children if one.is_running()]
        except psutil.Error:
            return
        disk = sum(file.stat().st_size for kind in ("index", "corpora") for file in self.home.glob(f"data/{kind}/**/*") if file.is_file())
        age_s, own = time.time() - main.create_time(), main.memory_info().rss / 1e6
        found = [self.folder.done, age_s, self.served(), own, *(sizes or [0])[:1], sum(sizes)]
        self.lives[-1].append(found)
        self.most_versions = max(self.most_versions, len(self.live.versions()))
        figures = {"counts": self.counts, "wrong": self.wrong, "failed": self.failed, "lives": self.lives}
        (self.home / "figures.json").write_text(json.dumps(figures))
        line = {
            "at": [round(value, 1) for value in found],
            "disk": disk,
            "versions": len(self.live.versions()),
            "threads": main.num_threads(),
        }
        self.say(json.dumps({**line, "open": main.num_fds(), "wrong": len(self.wrong), "failed": len(self.failed), **self.counts}))

    def say(self, text: str) -> None:
        with (self.home / "run.log").open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {self.folder.done} {text}\n")

    def is_settled(self) -> bool:
        """Return whether the served version holds exactly what the folder holds, and nothing else is left."""
        data, told = self.home / "data", self.live.documents()
        (record,) = data.glob("live/*.json")
        served = json.loads(record.read_text())["served"]
        place = data / "corpora" / served["digest"]
        if told["index_key"] != served["key"] or not place.is_dir():
            return False
        rows, passages = (place / "pages.jsonl").read_text().splitlines(), data / "index" / served["key"] / "passages.jsonl"
        found = {json.loads(row)["page_id"] for row in passages.read_text().splitlines()}
        return read_marks(rows) == self.folder.present and found == {json.loads(row)["id"] for row in rows}

    def leftovers(self) -> list[str]:
        """Return what lies in the data directory beside the version that is served and the corpus whose questions are known."""
        data = self.home / "data"
        versions, record = self.live.versions(), json.loads(next(data.glob("live/*.json")).read_text())
        corpora = {path.name for path in data.glob("corpora/*") if path.name != "sources"}
        kept = {record["served"]["digest"], record["known"]}
        sources = [json.loads(file.read_text())["digest"] for file in data.glob("corpora/sources/*.json")]
        found = [*data.glob("*/.tmp-*"), *data.glob("*/.partial-*"), *data.glob("live/*.building"), *(self.home / "tmp").glob("[!t]*")]
        locks = [path for path in data.glob("index/.building-*") if path.name.removeprefix(".building-") not in versions]
        extra = [*(versions - {record["served"]["key"]}), *(corpora - kept), *(name for name in sources if name not in corpora)]
        return [*map(str, found), *map(str, locks), *extra]
