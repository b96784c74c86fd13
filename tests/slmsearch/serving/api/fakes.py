"""A child process that is none: it plays here, with a scripted sampler on four pages, and goes on when the test says so."""

import queue
import threading
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

from slmsearch.config import RunConfig, ServiceConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ModelError, ServiceError
from slmsearch.evaluate.confidence import Calibration, KeptAnswers
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.retrieval.hits import Hit
from slmsearch.serving.api import playing
from slmsearch.serving.api.playing import Promise, ServedPolicy

TOWNS = ("Alba", "Brixa", "Cortona", "Delos")
WAIT_SECONDS = 20.0


class NameIndex:
    """Finds the page whose title is in the query."""

    key = "index-1"

    def search(self, queries: Sequence[str], top_k: int, hidden: Sequence[Collection[str]] = ()) -> list[list[Hit]]:
        found = [[Hit(f"p{i}", name, 1.0, f"p{i}:history") for i, name in enumerate(TOWNS) if name in query] for query in queries]
        gone = hidden or [()] * len(queries)
        return [[hit for hit in hits if hit.section_id not in without][:top_k] for hits, without in zip(found, gone, strict=True)]


def make_toolbox() -> Toolbox:
    pages = [Page(f"p{i}", name, f"# {name}\n\nA town.\n\n## History\n\nFounded in {1500 + i}.\n") for i, name in enumerate(TOWNS)]
    return Toolbox(Library(pages), NameIndex(), top_k=3, max_section_chars=1000)


def corpus_of(toolbox: Toolbox) -> SimpleNamespace:
    """Stand in for an `IndexedCorpus`."""
    return SimpleNamespace(toolbox=toolbox, corpus_digest="corpus-1", index_key=NameIndex.key, questions={})


def script(question: str, results: list[str]) -> str:
    """Search, read, answer with the last word; some questions are played otherwise."""
    name = next((name for name in TOWNS if name in question), None)
    if "malformed" in question:
        return "no idea"
    if "for ever" in question:
        return '<tool>search_pages("Alba")</tool>'
    if name is None:
        return "<answer>I don't know</answer>"
    if not results:
        return f'<tool>search_pages("{name}")</tool>'
    if len(results) == 1:
        return f'<tool>read_section("{results[0].partition(":")[0]}:history")</tool>'
    return f"<answer>{results[-1].split()[-1].strip('.')}</answer>"


class Control:
    """What a test sees and decides."""

    def __init__(self) -> None:
        self.batches: queue.Queue[list[str]] = queue.Queue()
        """Questions of each batch that has come to be played."""
        self.go = threading.Semaphore(0)
        """A batch is played for each release."""
        self.free = True
        """Batches are played at once."""
        self.load_errors: dict[str, list[Exception]] = {}
        """By version: what loading raises, once each."""
        self.load_when: dict[str, threading.Event] = {}
        """By version: it is loaded when this is set."""
        self.loading: list[FakeChild] = []
        """Children that load now."""
        self.loading_at_once: list[int] = []
        """How many loaded as each began."""
        self.children: list[FakeChild] = []
        self.is_small = False
        """The policy computes on one core."""
        self.playing = threading.Lock()
        """The children are this process, and play one after the other."""

    def make_sampler(self, *_: object) -> ScriptedSampler:
        sampler = ScriptedSampler(script)
        sampler.is_small = self.is_small  # type: ignore[attr-defined]
        return sampler

    def next_batch(self) -> list[str]:
        return self.batches.get(timeout=WAIT_SECONDS)


class FakeChild:
    """Stands in for `slmsearch.processes.call.Child`."""

    control: Control

    def __init__(self) -> None:
        self.pid: int | None = None
        self.killed = threading.Event()
        self.imports: Sequence[str] = ()
        self.starts = 0
        self.playing = False
        self._loaded: Any = None
        self.control.children.append(self)

    def __enter__(self) -> "FakeChild":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, imports: Sequence[str] = ()) -> None:
        self.pid = 1
        self.imports = imports
        self.starts += 1

    def stop(self) -> None:
        self.pid = None

    def interrupt(self) -> None:
        self.killed.set()
        self.control.go.release()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.pid = 1
        if function is playing.load:
            errors = self.control.load_errors.get(args[0].version)
            if errors:
                raise errors.pop(0)
            self.control.loading.append(self)
            self.control.loading_at_once.append(len(self.control.loading))
            if when := self.control.load_when.get(args[0].version):
                assert when.wait(WAIT_SECONDS)
            with self.control.playing:
                found = function(*args)
                self._loaded = playing._loaded[0]
            self.control.loading.remove(self)
            return found
        if function is playing.serve_calls:
            with self.control.playing:
                playing._loaded[:] = [self._loaded]
                return function(*args)
        self.playing = True
        self.control.batches.put([one.text for one in args[0].values()])
        if not self.control.free:
            assert self.control.go.acquire(timeout=WAIT_SECONDS)
        self.playing = False
        if self.killed.is_set():
            self.killed.clear()
            self.pid = None
            raise ServiceError("the process that computed play was killed by SIGKILL")
        with self.control.playing:
            playing._loaded[:] = [self._loaded]
            return function(*args, **kwargs)


def use_fakes(patch: Any) -> Control:
    """Put the stand-ins in place."""
    control = Control()
    patch.setattr(FakeChild, "control", control, raising=False)
    patch.setattr("slmsearch.serving.api.player.Child", FakeChild)
    patch.setattr(playing, "open_indexed_corpus", lambda *_: corpus_of(make_toolbox()))
    patch.setattr(playing, "make_policy_sampler", control.make_sampler)
    patch.setattr(playing.gc, "freeze", lambda: None)
    return control


def promise(threshold: float, key: str = NameIndex.key) -> Promise:
    """A promise by which an answer from one search and one section read, stated there, has the confidence 0.5."""
    calibration = Calibration(key, (0.0,) * 6, (1.0,) * 6, (0.0,) * 6, 0.0, (), 0)
    return Promise(0.05, calibration, KeptAnswers(threshold, 1.0, 0.0, 0.0, 0.03, 100))


def served(version: str = "tiny/1", batch: int = 64) -> ServedPolicy:
    config = RunConfig().changed({"evaluate.batch_size": batch, "searcher.max_episode_tokens": 4000, "searcher.max_turn_tokens": 400})
    return ServedPolicy(version, PolicySpec("champion", config.policy), config)


def settings(**values: Any) -> ServiceConfig:
    return ServiceConfig(**{"deadline_s": WAIT_SECONDS, **values})


NOT_THERE = ModelError("no model at 'gone'; correct policy.model")
