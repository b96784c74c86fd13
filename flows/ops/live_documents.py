"""A folder of documents that is served while people edit it: watched, indexed anew, and let in by the gate.

A version is what the folder held at one time. The record of a folder (`data/live/NAME.json`) names the version that is served, so that a
killed service begins with it again, and those that were made here and can go.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from watchfiles import watch

from flows.stages.policy_choice import SearcherChoice
from slmsearch.artifacts.directories import remove
from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.corpus.documents.folder import list_folder
from slmsearch.corpus.documents.skipped import printable
from slmsearch.corpus.store import is_complete as is_corpus
from slmsearch.errors import ConfigError, CorpusError, IndexUnusableError, SlmSearchError
from slmsearch.processes.call import Child
from slmsearch.retrieval.upkeep import remove_version
from slmsearch.retrieval.versions import is_complete as is_index
from slmsearch.serving.api import playing
from slmsearch.serving.api.player import HeldBackError
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.documents import refresh
from slmsearch.serving.documents.gate import judge_replay
from slmsearch.serving.documents.refresh import Refreshed, Version
from tasks.learn import learnt_dir

LOOK_MS = 2_000
"""Time between two looks at the whole folder where nothing was noticed, in milliseconds: a folder can vanish without a notice."""
REMEDY = "correct the files; or serve them as they are with --accept; or `slmsearch learn` the folder, which trains and measures anew"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Why a version is not served."""

    edit: str
    reasons: tuple[str, ...]
    at: float


class LiveDocuments:
    """The documents of a folder; `find_new` and `judge` are called by the service, and `watch` runs in a thread of its own."""

    def __init__(self, choice: SearcherChoice, folder: Path, accept: bool = False) -> None:
        """Watch nothing yet.

        Args:
            choice: policy to serve, with the settings of the corpus.
            folder: folder of documents.
            accept: serve the folder as it is at the start, whatever it has lost.

        Raises:
            ConfigError: programs would see pages that are gone.
        """
        if choice.config.searcher.programs:
            raise ConfigError("programs see all of the corpus, also what was deleted: set searcher.programs to false, or leave --watch out")
        self._first = choice.config.changed({"corpus.pages": str(folder), "corpus.limit_pages": 0})
        config = self._first.changed({"corpus.questions": None})
        self.folder, self._config, self._choice, self._accept = folder, config, replace(choice, config=config), accept
        self._record = Path(config.paths.data_dir) / "live" / f"{learnt_dir(config.paths, str(folder)).name}.json"
        self._dirty, self._held, self._next = threading.Event(), dict[str, HeldBack](), dict[str, Refreshed]()
        self._made: list[Version] = []
        self._known = ""
        """Digest of the corpus whose questions decide."""
        self._paths: tuple[str, dict[str, str]] = ("", {})
        """Served digest, and the file of each of its pages."""
        self._skipped: list[dict[str, str]] = []

    def find(self) -> ServedPolicy:
        """Return the policy and the version to begin with: the one that was served last, else the champion's, else the folder as it is.

        Raises:
            SlmSearchError: the policy is missing, or the folder cannot be read.
        """
        served, paths = self._choice.find(), self._config.paths
        record = read_json(self._record)
        self._made = [Version(**made) for made in record.get("made", [])]
        own = Version(served.corpus_digest or "", served.index_key or "")
        if own.digest and not self._is_ours(own.digest):
            log.warning(
                "%s was evaluated on other documents than %s: nothing is known yet of how it does here", served.version, self.folder
            )
            own = Version("", "")
        last = Version(**record["served"]) if record.get("version") == served.version else own
        there = bool(last.key) and is_corpus(paths.corpora / last.digest) and is_index(paths.index / last.key)
        if self._accept or not there:
            with Child() as child:
                last, _ = child.call(refresh.build_version, self._first)
            self._made.append(last)
        self._known = own.digest or record.get("known", "") or last.digest
        if not is_corpus(paths.corpora / self._known):
            self._known = last.digest
        served = replace(served, corpus_digest=last.digest, index_key=last.key, config=self._config)
        self._note(served)
        self._dirty.set()
        return served

    def _is_ours(self, digest: str) -> bool:
        """Return whether a corpus was read from this folder: a file of one of its pages is there."""
        corpus = self._config.paths.corpora / digest
        return is_corpus(corpus) and any((self.folder / path).is_file() for path in _paths_of(corpus).values() if path)

    def find_new(self, served: ServedPolicy) -> ServedPolicy | None:
        """Return a new champion, or the policy that plays with the next version of the documents; None if there is neither.

        Raises:
            SlmSearchError: the next version cannot be made.
        """
        self._note(served)
        if self._choice.follows and (champion := self._choice.find_new(served)) is not None:
            self._dirty.set()  # its version may be older than the folder
            champion = replace(champion, config=self._config)
            if champion.corpus_digest and self._is_ours(champion.corpus_digest):
                self._known = champion.corpus_digest
                return champion
            return replace(champion, corpus_digest=served.corpus_digest, index_key=served.index_key)
        if self._dirty.is_set() and self.folder.is_dir():
            self._dirty.clear()
            self._refresh(served)
        pending = next((made.version for made in self._next.values()), None)
        return replace(served, corpus_digest=pending.digest, index_key=pending.key) if pending else None

    def _refresh(self, served: ServedPolicy) -> None:
        """Make the version of the folder as it is now; it becomes the next one if it differs and has lost nothing."""
        assert served.corpus_digest is not None and served.index_key is not None
        self._next.clear()
        try:
            with Child() as child:
                made = child.call(refresh.refresh, self._config, Version(served.corpus_digest, served.index_key), self._known)
        except CorpusError as error:
            if not self.folder.is_dir():
                return  # `watch` has said so
            raise CorpusError(f"{error}; the version of before is served") from error
        except SlmSearchError:
            self._dirty.set()
            raise
        self._skipped = [asdict(item) for item in made.skipped]
        version = made.version
        if version not in self._made:
            self._made.append(version)
        if not made.edit:
            self._held.clear()
        elif made.losses:
            self._hold(made, made.losses)
        elif version.digest not in self._held:
            self._next[version.digest] = made
        self._clean(served)

    def judge(self, before: ServedPolicy, after: ServedPolicy, child: Child) -> None:
        """Let the policy answer on both versions.

        Raises:
            HeldBackError: it answers fewer questions rightly than before.
        """
        made = self._next.get(after.corpus_digest or "")
        if made is None:  # a champion, which was measured
            return
        assert before.corpus_digest is not None and before.index_key is not None
        pairs = child.call(playing.replay, made.replayed, before.corpus_digest, before.index_key) if made.replayed else []
        reasons = judge_replay([old for old, _ in pairs], [now for _, now in pairs])
        if reasons:
            self._next.clear()
            self._hold(made, tuple(reasons))
            raise HeldBackError(f"the documents of before go on: {made.edit}")
        now, was = (sum(side) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
        log.warning("documents: %s; of %d questions %d are answered rightly, %d before", made.edit, len(pairs), now, was)

    def _hold(self, made: Refreshed, reasons: tuple[str, ...]) -> None:
        if made.version.digest not in self._held:
            log.warning("documents: %s; held back (%s): %s", made.edit, "; ".join(reasons), REMEDY)
        self._held[made.version.digest] = HeldBack(str(made.edit), reasons, time.time())

    def _note(self, served: ServedPolicy) -> None:
        """Record the version that plays, if it is another one."""
        if served.corpus_digest == self._paths[0]:
            return
        digest = served.corpus_digest or ""
        self._paths = (digest, _paths_of(self._config.paths.corpora / digest))
        self._held.clear()
        self._next.pop(digest, None)
        self._clean(served)

    def _clean(self, served: ServedPolicy) -> None:
        """Remove versions that were made here and nobody needs, and write the record."""
        paths, keep = self._config.paths, {served.corpus_digest, self._known, *self._next}
        for version in [made for made in self._made if made.digest not in keep]:
            self._made.remove(version)
            try:
                if (paths.index / version.key).is_dir():
                    remove_version(paths.index / version.key, self._config.retrieval)
                if (paths.corpora / version.digest).is_dir():
                    remove(paths.corpora / version.digest)
            except (IndexUnusableError, OSError) as error:  # in use, or the current one: housekeeping finds it
                log.info("version %s stays: %s", version.key, error)
        self._record.parent.mkdir(parents=True, exist_ok=True)
        state = {"version": served.version, "served": {"digest": served.corpus_digest, "key": served.index_key}, "known": self._known}
        replace_json(self._record, {**state, "made": [asdict(made) for made in self._made]})

    def watch(self, stop: threading.Event, withdraw: Callable[[frozenset[str]], None]) -> None:
        """Watch the folder until `stop` is set; tell at once which pages are gone.

        Args:
            stop: ends it.
            withdraw: receives the ids of the served pages whose files are gone, all of them each time.
        """
        was_there = True
        while not stop.is_set():
            is_there = self.folder.is_dir()
            if is_there != was_there:
                log.warning("%s %s", self.folder, "is there again" if is_there else "is gone: the version of before is served")
                was_there = is_there
                self._dirty.set()
            if not is_there:
                stop.wait(LOOK_MS / 1000)
                continue
            self._withdraw(withdraw)
            for changes in watch(self.folder, stop_event=stop, rust_timeout=LOOK_MS, yield_on_timeout=True, raise_interrupt=False):
                if not self.folder.is_dir():
                    break
                if changes:
                    self._dirty.set()
                self._withdraw(withdraw)

    def _withdraw(self, withdraw: Callable[[frozenset[str]], None]) -> None:
        try:
            there = {printable(entry.place) for entry in list_folder(self.folder)}
        except CorpusError:
            return  # gone meanwhile
        withdraw(frozenset(page for page, path in self._paths[1].items() if path and path not in there))

    def describe(self) -> dict[str, object]:
        """Return the folder, its pages, what is held back and why, and the files that could not be read."""
        held = next(reversed(self._held.values()), None)
        shown = held and {"edit": held.edit, "reasons": held.reasons, "at": held.at, "remedy": REMEDY}
        return {"folder": str(self.folder), "pages": len(self._paths[1]), "held_back": shown, "skipped": self._skipped}


def _paths_of(corpus: Path) -> dict[str, str]:
    return {name: str(page.metadata.get("path", "")) for name, page in refresh.read_by_id(corpus).items()}
