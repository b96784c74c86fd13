"""A folder of documents that is served while people edit it: watched, indexed anew, and let in by the gate.

A version is what the folder held at one time. The record of a folder (`data/live/NAME.json`) names the version that is served, so that a
killed service begins with it again, and what was made here and can go.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from flows.stages.calibrating import calibrate_loaded
from flows.stages.policy_choice import SearcherChoice
from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.corpus.store import is_complete as is_corpus
from slmsearch.corpus.store import remove_corpus
from slmsearch.errors import ConfigError, EvaluationError, IndexUnusableError, ServiceError, SlmSearchError
from slmsearch.evaluate.confidence import read_calibration
from slmsearch.processes.call import Child
from slmsearch.retrieval.upkeep import remove_version
from slmsearch.retrieval.versions import is_complete as is_index
from slmsearch.serving.api import playing
from slmsearch.serving.api.player import HeldBackError
from slmsearch.serving.api.playing import Promise, ServedPolicy
from slmsearch.serving.documents import refresh
from slmsearch.serving.documents.gate import judge_replay
from slmsearch.serving.documents.listing import list_documents
from slmsearch.serving.documents.refresh import Refreshed, Version
from slmsearch.serving.documents.withdrawal import Withdrawal
from tasks.learn import learnt_dir
from tasks.retention import in_use

LOOK_S = 1.0
"""Time between two looks at the folder, in seconds; ten times as long as a look takes, if that is more."""
QUIET_S = 0.3
"""Time after which a change is looked at again, whether it goes on."""
SETTLE_S = 10.0
"""Time after which a folder that changes at every look is indexed; else a look without a change comes first: no half-written file."""
AGAIN_S = 60.0
"""Time after which a version that could not be made, or a champion that could not be played, is tried again."""
REMEMBERED = 4
"""Number of versions whose files are remembered."""
REMEDY = "correct the files; or serve them as they are with --accept; or `slmsearch learn` the folder, which trains and measures anew"
CALIBRATED = 64
"""Maximum number of a calibration's questions that are played again for a version."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Why a version is not served."""

    edit: str
    reasons: tuple[str, ...]
    at: float
    replayed: bool
    """The policy's answers hold it back, else the texts."""


class LiveDocuments:
    """The documents of a folder; `watch` runs in a thread of its own, the other methods are called by the service."""

    def __init__(self, choice: SearcherChoice, folder: Path, accept: bool = False) -> None:
        """Watch nothing yet.

        Args:
            choice: policy to serve, with the settings of the corpus.
            folder: folder of documents.
            accept: serve the folder as it is at the start, whatever it has lost.

        Raises:
            ConfigError: programs would see pages that are gone, or results would be written into the folder.
        """
        paths = choice.config.paths
        if choice.config.searcher.programs:
            raise ConfigError("programs see all of the corpus, also what was deleted: set searcher.programs to false, or leave --watch out")
        for name, place in (("data_dir", paths.data_dir), ("mlruns_dir", paths.mlruns_dir)):
            if Path(place).resolve().is_relative_to(folder.resolve()):
                raise ConfigError(f"paths.{name} ({place}) lies in {folder}, which would change with every answer: name another place")
        self._first = choice.config.changed({"corpus.pages": str(folder), "corpus.limit_pages": 0})
        config = self._first.changed({"corpus.questions": None})
        self.folder, self._config, self._choice, self._accept = folder, config, replace(choice, config=config), accept
        self._record = Path(paths.data_dir) / "live" / f"{learnt_dir(paths, str(folder)).name}.json"
        self._building = self._record.with_suffix(".building")
        """Notes of keys, each written before what it names is built."""
        self._dirty, self._held, self._next = threading.Event(), dict[str, HeldBack](), dict[str, Refreshed]()
        self._gone = Withdrawal(self._record.with_suffix(".gone"))
        self._is_gone = False
        self._changed_since = 0.0
        """Time of the first of several looks that found changes, by `time.monotonic`; 0.0 if the last one found none."""
        self.since = time.time()
        """Time since which the version plays, in seconds since the epoch; of a service that was started again, since before."""
        self._made: dict[str, list[str]] = {"corpora": [], "indexes": []}
        """Keys of what was made here."""
        self._known = ""
        """Digest of the corpus whose questions decide."""
        self._files: dict[str, dict[str, str]] = {}
        """File of each page, by digest of the corpus."""
        self._noted: tuple[str, str | None] = ("", None)
        """Policy and digest that were recorded last."""
        self._not_before: dict[str, float] = {}
        """Time of the next try, by `time.monotonic`: of the documents (""), and of champions."""
        self._told = ""
        self._child = Child()
        """Process that makes the next version; it lives as long as the thread that looks for versions, because its start takes seconds."""
        self._skipped: list[dict[str, str]] = []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder, so that no other service with this data directory removes the versions of this one.

        Raises:
            ConfigError: another one watches it.
        """
        self._record.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self._record.with_suffix(".lock"), timeout=0):
                yield
        except Timeout:
            raise ConfigError(
                f"another service watches {self.folder} with this data directory: stop it, or give this one another paths.data_dir"
            ) from None

    def find(self) -> ServedPolicy:
        """Return the policy and the version to begin with: the one that was served last, else the champion's, else the folder as it is.

        Raises:
            SlmSearchError: the policy is missing, or the folder cannot be read.
        """
        (served, _), record = self._choice.find_here(), read_json(self._record)
        self._made |= record.get("made", {})
        self._remember()
        own = Version(served.corpus_digest or "", served.index_key or "")
        if own.digest and not self._is_ours(own.digest):
            log.warning("%s was measured on other documents than %s, and is not known to do well here", served.version, self.folder)
            own = Version("", "")
        last = Version(**record["served"]) if record else own
        version = None if self._accept else next((one for one in (last, own) if self._is_there(one)), None)
        read_at = record.get("read", 0.0) if version == last else 0.0
        if version is None:
            read_at, version = time.time(), self._build()
        self._gone.note_read(version.digest, read_at)
        known = (served.measured_on if own.digest else "", record.get("known", ""))
        self._known = next((digest for digest in known if digest and is_corpus(self._config.paths.corpora / digest)), version.digest)
        served = replace(served, corpus_digest=version.digest, index_key=version.key, config=self._config, measured_on=self._known)
        if served.promise is not None and (made := read_calibration(self._calibration_file(served))) and made.index_key == version.key:
            served = replace(served, promise=self._choice.promise_of(made) or served.promise)
        self._files_of(version.digest)
        self._look()
        self._note(served)
        self._changed_since = 0.0
        self._dirty.set()
        return served

    def _build(self) -> Version:
        first = self._first
        with Child() as child:
            try:
                return child.call(refresh.build_version, first.paths, first.corpus, first.retrieval, self._building).version
            finally:
                self._remember()

    def _remember(self) -> None:
        """Take what was noted before it was built, also by a process that was killed while it built."""
        notes = self._building.read_text(encoding="utf-8").splitlines() if self._building.is_file() else []
        for kind, key in (note.split() for note in notes if len(note.split()) == 2):
            if kind in self._made and key not in self._made[kind]:
                self._made[kind].append(key)

    def _is_there(self, version: Version) -> bool:
        paths = self._config.paths
        return bool(version.key) and is_corpus(paths.corpora / version.digest) and is_index(paths.index / version.key)

    def _is_ours(self, digest: str) -> bool:
        """Return whether a corpus was read from this folder: at least half of its files are there."""
        paths = [path for path in self._files_of(digest).values() if path] if is_corpus(self._config.paths.corpora / digest) else []
        return bool(paths) and 2 * sum((self.folder / path).is_file() for path in paths) >= len(paths)

    def find_new(self, served: ServedPolicy) -> ServedPolicy | None:
        """Return a new champion, or the policy that plays with the next version of the documents; None if there is neither.

        Raises:
            SlmSearchError: the next version cannot be made.
        """
        self._note(served)
        if (champion := self._find_champion(served)) is not None:
            return champion
        if self._dirty.is_set() and self._gone.listing is not None and self._is_time(""):
            self._dirty.clear()
            try:
                self._refresh(served)
            except Exception:
                self._dirty.set()
                self._not_before[""] = time.monotonic() + AGAIN_S
                raise
        pending = next((made.version for made in self._next.values() if self._is_time(made.version.digest)), None)
        if pending is None:
            return None
        self._not_before[pending.digest] = time.monotonic() + AGAIN_S  # if it cannot be loaded
        self._files_of(pending.digest)
        return replace(served, corpus_digest=pending.digest, index_key=pending.key)

    def _is_time(self, what: str) -> bool:
        return time.monotonic() >= self._not_before.get(what, 0.0)

    def _find_champion(self, served: ServedPolicy) -> ServedPolicy | None:
        """Return a champion that does not play yet; a failure to find or to load one keeps no edit back."""
        if not self._choice.follows:
            return None
        try:
            champion = self._choice.find_new(served, documents=False)
        except SlmSearchError as error:
            if str(error) != self._told:
                log.warning("no other champion was looked for: %s", error)
            self._told = str(error)
            return None
        if champion is None or not self._is_time(champion.version):
            return None
        self._not_before[champion.version] = time.monotonic() + AGAIN_S  # if it cannot be loaded
        if champion.corpus_digest and self._is_ours(champion.corpus_digest):
            self._known = champion.measured_on or champion.corpus_digest
        now = replace(champion, config=self._config, corpus_digest=served.corpus_digest, index_key=served.index_key)
        return replace(now, measured_on=self._known)

    def _refresh(self, served: ServedPolicy) -> None:
        """Make the version of the folder as it is now; it becomes the next one if it differs and has lost nothing."""
        assert served.corpus_digest is not None and served.index_key is not None
        self._next.clear()
        version, began, config = Version(served.corpus_digest, served.index_key), time.time(), self._config
        sections = config.paths, config.corpus, config.retrieval
        try:
            made = self._child.call(refresh.refresh, *sections, version, self._known, self._building)
        finally:
            self._remember()
        self._skipped = [asdict(item) for item in made.skipped]
        self._gone.note_read(made.version.digest, began)
        same = self._files_of(version.digest).keys() - {*made.edit.changed, *made.edit.removed}
        self._gone.note_same(version.digest, began, frozenset(same))
        if not made.edit:
            self._held.clear()
        elif made.losses:
            self._hold(made, made.losses, replayed=False)
        elif (held := self._held.get(made.version.digest)) is None or not held.replayed:
            self._held.pop(made.version.digest, None)  # what its texts had lost is there again, or may be gone
            self._next[made.version.digest] = made
        self._clean(served)

    def judge(self, before: ServedPolicy, after: ServedPolicy, child: Child) -> Promise | None:
        """Let the policy answer on both versions; return the promise that it keeps on the new one, None if it is that of before.

        Raises:
            HeldBackError: it answers fewer questions rightly than before.
        """
        made = self._next.get(after.corpus_digest or "")
        if made is None:  # a champion, which was measured
            return self._promise_again(after, child)
        assert before.corpus_digest is not None and before.index_key is not None
        pairs = child.call(playing.replay, made.replayed, before.corpus_digest, before.index_key) if made.replayed else []
        was, now = [old for old, _ in pairs], [new for _, new in pairs]
        if reasons := judge_replay(was, now):
            self._next.clear()
            self._hold(made, tuple(reasons), replayed=True)
            raise HeldBackError(f"the documents of before go on: {made.edit}")
        log.warning("documents: %s; of %d questions %d are answered rightly, %d before", made.edit, len(pairs), sum(now), sum(was))
        promise = self._promise_again(after, child)
        self._write_record(after, time.time())  # first: killed right after its first answer, a service begins with it
        self._noted = "", self._noted[1]
        return promise

    def _promise_again(self, served: ServedPolicy, child: Child) -> Promise | None:
        """Calibrate a policy on documents that it is about to answer from; if that cannot be, answers say that no promise holds."""
        if served.promise is None or served.promise.calibration.index_key == served.index_key:
            return None
        try:
            calibration = calibrate_loaded(self._choice, served, child, CALIBRATED)
            promise = self._choice.promise_of(calibration)
            if promise is None:
                raise EvaluationError("too many answers are wrong")
        except SlmSearchError as error:  # the documents are served all the same
            log.warning("documents: the promise does not hold on them: %s", error)
            return None
        calibration.write(self._calibration_file(served))
        return promise

    def _calibration_file(self, served: ServedPolicy) -> Path:
        file = self._choice.calibration_file(served.spec)
        return file.with_name(f"{file.stem}-{self._record.stem}.json")

    def _hold(self, made: Refreshed, reasons: tuple[str, ...], replayed: bool) -> None:
        if made.version.digest not in self._held:
            log.warning("documents: %s; held back (%s): %s", made.edit, "; ".join(reasons), REMEDY)
        self._held[made.version.digest] = HeldBack(str(made.edit), reasons, time.time(), replayed)

    def _note(self, served: ServedPolicy) -> None:
        """Record the version that plays, if it is another one."""
        if (served.version, served.corpus_digest) == self._noted:
            return
        if served.corpus_digest != self._noted[1]:
            record = read_json(self._record)
            was_served = record.get("served", {}).get("digest") == served.corpus_digest
            self.since = record.get("since", time.time()) if was_served else time.time()
        self._noted = served.version, served.corpus_digest
        self._files_of(served.corpus_digest or "")
        self._gone.note_played(served.corpus_digest or "")
        self._not_before.clear()  # it plays: what made others wait is over
        self._held.clear()
        self._next.pop(served.corpus_digest or "", None)
        self._clean(served)

    def _clean(self, served: ServedPolicy) -> None:
        """Write the record, then remove what was made here and nothing uses: neither this service nor any version, run or evaluation."""
        paths = self._config.paths
        self._write_record(served, self.since)
        self._building.unlink(missing_ok=True)
        versions = [made.version for made in self._next.values()]
        coming = {served.corpus_digest, served.index_key, self._known, *(one.digest for one in versions), *(one.key for one in versions)}
        if all(key in coming for keys in self._made.values() for key in keys):
            return
        try:
            used = in_use(self._config)
        except ServiceError as error:
            log.info("old versions stay for now: %s", error)
            return
        for kind, parent in (("indexes", paths.index), ("corpora", paths.corpora)):
            for key in [key for key in self._made[kind] if key not in coming and key not in used[kind]]:
                try:
                    remove_version(parent / key, self._config.retrieval) if kind == "indexes" else remove_corpus(parent, key)
                    self._made[kind].remove(key)
                except (IndexUnusableError, OSError) as error:  # a process reads it: next time
                    log.info("%s stays for now: %s", key, error)
        self._write_record(served, self.since)

    def _write_record(self, served: ServedPolicy, since: float) -> None:
        digest = served.corpus_digest or ""
        state = {"version": served.version, "served": {"digest": digest, "key": served.index_key}, "known": self._known, "since": since}
        self._record.parent.mkdir(parents=True, exist_ok=True)
        replace_json(self._record, {**state, "read": self._gone.read_at(digest), "made": self._made})

    def watch(self, stop: threading.Event) -> None:
        """Look at the folder until `stop` is set."""
        pause_s, told = LOOK_S, ""
        while not stop.wait(pause_s):
            began = time.monotonic()
            try:
                self._look()
                told = ""
            except Exception as error:  # whatever a file system does, the next look comes
                if str(error) != told:
                    log.warning("%s cannot be looked at, and is tried again: %s", self.folder, error, exc_info=True)
                told = str(error)
            pause_s = max(QUIET_S if self._changed_since else LOOK_S, 10 * (time.monotonic() - began))

    def _look(self) -> None:
        found, before = list_documents(self.folder), self._gone.listing
        if found is None:
            if not self._is_gone:
                log.warning("%s is gone, or holds no document: the version of before is served", self.folder)
            self._is_gone = True
            return
        if self._is_gone and before is not None:
            log.warning("%s is there again", self.folder)
        self._is_gone = False
        now = time.monotonic()
        if before is None or found.files != before.files or found.there != before.there:
            self._changed_since = self._changed_since or now
        elif self._changed_since:  # nobody writes any more
            self._changed_since = 0.0
            self._dirty.set()
        if self._changed_since and now - self._changed_since >= SETTLE_S:
            self._changed_since = now
            self._dirty.set()
        self._gone.look(found, (path for files in [*self._files.values()] for path in files.values()))
        self._gone.tell(digest := self._noted[1] or "", self._files.get(digest, {}))

    def withdrawn(self, served: ServedPolicy) -> frozenset[str]:
        """Return the ids of a version's pages whose files are gone."""
        return self._gone.find_gone(digest := served.corpus_digest or "", self._files_of(digest))

    def _files_of(self, digest: str) -> dict[str, str]:
        """Return the file of each page of a corpus, by page id; empty where a page is no document."""
        if digest not in self._files:
            pages = refresh.read_by_id(self._config.paths.corpora / digest)
            kept = [*self._files.items()][1 - REMEMBERED :]
            self._files = {**dict(kept), digest: {name: str(page.metadata.get("path", "")) for name, page in pages.items()}}
        return self._files[digest]

    def describe(self) -> dict[str, object]:
        """Return the folder, its pages, what is held back and why, and the files that could not be read."""
        held = next(reversed([*self._held.values()]), None)
        shown = held and {"edit": held.edit, "reasons": held.reasons, "at": held.at, "remedy": REMEDY}
        pages, gone = len(self._files.get(self._noted[1] or "", ())), len(self._gone.told)
        return {"folder": str(self.folder), "pages": pages, "withdrawn": gone, "held_back": shown, "skipped": self._skipped}
