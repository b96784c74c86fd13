"""Deletion of unneeded data: checkpoints, index versions, evaluations, trainings, corpora, verdicts, results, pages, traces, runs.

It first makes a plan and carries it out only on request; data in use (`retention.py`) and new data stay. A run goes in two steps: it is
marked as deleted, as in MLflow's UI, where a user can restore it, and is removed as many days later.
"""

import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from slmsearch.artifacts.directories import find_abandoned, remove, remove_abandoned
from slmsearch.config import PathsConfig, RetrievalConfig, RunConfig
from slmsearch.corpus.sources import PARSED
from slmsearch.corpus.store import SOURCES, remove_corpus
from slmsearch.errors import IndexUnusableError, ServiceError
from slmsearch.evaluate.shards import SHARDS
from slmsearch.judge.cache import FILE as VERDICTS
from slmsearch.judge.cache import VerdictCache
from slmsearch.lineage.graph import homes
from slmsearch.retrieval.upkeep import remove_partial, remove_version
from slmsearch.retrieval.vectors import PARTIAL_PREFIX
from slmsearch.sampling.llamacpp import is_loaded
from slmsearch.training.export_gguf import FILES
from slmsearch.training.files import CHECKPOINTS, MANIFEST, SCRATCH
from slmsearch.training.launch import is_held
from tasks.retention import FIELDS, KEPT_VERSIONS, InUse, changed_s, children, in_use
from tasks.tracking import RunRecord, RunRegistry, open_run_registry

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of deletion."""

    older_than_days: float = 14.0
    """Minimum age in days; also data that a newer run touched stay."""
    kept_versions: int = KEPT_VERSIONS
    """Newest versions of each registered model whose lineage stays, beside those with an alias."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item that may be deleted."""

    kind: str
    """Kind of the item: `corpora`, `indexes`, `evals`, `trainings`, `checkpoints`, `shards`, `half-written`, `verdicts`, `results`,
    `parsed`, `pages`, `gguf`, `traces`, `runs`, `deleted runs`.
    """
    key: str
    age_days: float
    num_bytes: int = 0
    path: Path | None = None
    experiment: str = ""
    """MLflow experiment of a trace."""
    before_s: float = 0.0
    """Age limit inside a collection: files older than this are deleted; seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Items to delete, and items that stay because they are needed."""

    items: tuple[Item, ...]
    used: InUse


def _item(kind: str, path: Path, changed: float, now: float) -> Item:
    return Item(kind, path.name, (now - changed) / DAY_S, _size(path), path)


def _old(kind: str, parent: Path, limit: float, now: float, kept: Collection[str] = ()) -> Iterator[Item]:
    """Return the directories in a directory that are older than the limit and not kept."""
    for path in children(parent):
        if path.name not in kept and (changed := changed_s(path)) < limit:
            yield _item(kind, path, changed, now)


def _played(files: Path) -> set[str]:
    """Return the names of the directories with a GGUF that a process plays."""
    return {file.parent.name for file in files.glob("*/*.gguf") if is_loaded(file)}


def _checkpoints(home: Path, limit: float, now: float) -> Iterator[Item]:
    """Return checkpoints of finished trainings, which are not resumed. Checkpoints of unfinished trainings stay with them."""
    for path in children(home):
        manifest, checkpoints = path / MANIFEST, path / CHECKPOINTS
        is_over = manifest.is_file() and not is_held(path) and changed_s(manifest) < limit
        if is_over and checkpoints.is_dir() and any(checkpoints.iterdir()):
            yield Item("checkpoints", path.name, (now - changed_s(manifest)) / DAY_S, _size(checkpoints), checkpoints)


def _collections(paths: PathsConfig, limit: float, now: float) -> Iterator[Item]:
    """Return collections that grow with each run: results of tasks, parsed folders, pages and figures, verdicts; all can be made again."""
    data_dir, mlruns_dir = Path(paths.data_dir), Path(paths.mlruns_dir)
    places = (
        *(("results", data_dir / "prefect" / "results"), ("parsed", paths.corpora / SOURCES / PARSED)),
        *(("pages", mlruns_dir / "reports"), ("pages", mlruns_dir / "plots")),
    )
    for kind, path in places:
        if old := list(_older_files(path, limit)):
            age_days = (now - min(map(changed_s, old))) / DAY_S
            yield Item(kind, f"{len(old)} of {path.name}", age_days, sum(map(_size, old)), path, before_s=limit)
    verdicts = data_dir / VERDICTS
    if verdicts.is_file() and (count := VerdictCache(verdicts).count(limit)):
        share = count / VerdictCache(verdicts).count()
        yield Item("verdicts", f"{count} of {verdicts.name}", (now - limit) / DAY_S, int(share * _size(verdicts)), verdicts, before_s=limit)


def _older_files(directory: Path, limit: float) -> Iterator[Path]:
    yield from (path for path in directory.rglob("*") if path.is_file() and changed_s(path) < limit)


def _runs(registry: RunRegistry, used: InUse, limit: float, now: float) -> Iterator[Item]:
    """Return whole families of runs that have ended, are old, and made no registered version, kept or not."""
    families: dict[str, list[RunRecord]] = {}
    for run in registry.runs():
        families.setdefault(run.parent or run.id, []).append(run)
    makers = {version.run_id for version in registry.versions()}
    for family in families.values():
        needed = any(run.id in used["runs"] or run.id in makers or run.is_live for run in family)
        last = max(run.ended_s or run.started_s for run in family)
        if not needed and last < limit:
            yield from (Item("runs", run.id, (now - last) / DAY_S) for run in family)


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """Deletion under some rules from the data directory and the MLflow store of a configuration."""

    config: RunConfig
    rules: Rules
    now: float | None = None
    """Time in seconds since the epoch; None takes the clock."""

    def plan(self) -> DeletionPlan:
        """Return the items that may be deleted; change nothing.

        Raises:
            ServiceError: the MLflow store cannot be read: the needs of its aliases are not known, so nothing may be deleted.
        """
        config, now = self.config, time.time() if self.now is None else self.now
        limit = now - self.rules.older_than_days * DAY_S
        used = in_use(config, self.rules.kept_versions, used_since=limit)
        registry = open_run_registry(config.paths, config.tracking)
        items: list[Item] = []
        for kind, parent in homes(config.paths).items():
            items += _old(FIELDS[kind], parent, limit, now, {SOURCES, *used[FIELDS[kind]]})
            items += [_item("half-written", path, changed_s(path), now) for path in find_abandoned(parent)]
        files = Path(config.paths.data_dir) / FILES
        items += [
            *_old("gguf", files, limit, now, _played(files)),
            *(_item("half-written", path, changed_s(path), now) for path in find_abandoned(files)),
        ]
        unfinished = [*sorted(config.paths.index.glob(f"{PARTIAL_PREFIX}*")), *sorted(config.paths.training.glob(f".*{SCRATCH}"))]
        items += [_item("half-written", path, changed_s(path), now) for path in unfinished if changed_s(path) < limit]
        going = {item.path for item in items}
        items += [item for item in _checkpoints(config.paths.training, limit, now) if item.path and item.path.parent not in going]
        if registry is None or not any(run.is_live for run in registry.runs()):
            items += _old("shards", config.paths.evals / SHARDS, limit, now)  # not merged yet; they can be played again
            items += _collections(config.paths, limit, now)
        if registry is not None:
            for experiment, trace, key, at in registry.traces(limit):
                if key not in used["evals"] and key not in used["trainings"]:
                    items.append(Item("traces", trace, (now - at) / DAY_S, experiment=experiment))
            items += _runs(registry, used, limit, now)
            items += [Item("deleted runs", run, (now - at) / DAY_S) for run, at in registry.deleted() if at < limit]
        return DeletionPlan(tuple(items), used)

    def carry_out(self) -> tuple[list[Item], list[str]]:
        """Plan again and delete the items; return the deleted ones, and those that could not be deleted, one line each.

        Raises:
            ServiceError: the store cannot be read, or another housekeeping is running.
        """
        config, data_dir = self.config, Path(self.config.paths.data_dir)
        data_dir.mkdir(parents=True, exist_ok=True)
        gone: list[Item] = []
        failed: list[str] = []
        try:
            with FileLock(data_dir / "housekeeping.lock", timeout=0):
                registry = open_run_registry(config.paths, config.tracking)
                for item in self.plan().items:
                    try:
                        _delete(item, registry, config.retrieval)
                        gone.append(item)
                    except (OSError, ServiceError, IndexUnusableError) as error:
                        failed.append(f"{item.kind} {item.key}: {error}")
        except Timeout as error:
            raise ServiceError(f"another housekeeping is at work in {data_dir}; wait for it") from error
        return gone, failed


def _delete(item: Item, registry: RunRegistry | None, retrieval: RetrievalConfig) -> None:
    if item.kind in ("runs", "deleted runs", "traces"):
        assert registry is not None
        if item.kind == "runs":
            registry.delete_run(item.key)
        elif item.kind == "deleted runs":
            registry.purge(item.key)
        else:
            registry.delete_trace(item.experiment, item.key)
        return
    assert item.path is not None
    if item.kind == "verdicts":
        VerdictCache(item.path).forget(item.before_s)
    elif item.before_s:
        for file in list(_older_files(item.path, item.before_s)):
            file.unlink(missing_ok=True)
    elif item.key.startswith(PARTIAL_PREFIX):
        remove_partial(item.path, retrieval)
    elif item.key.endswith(SCRATCH):
        with FileLock(item.path.with_suffix(".lock"), timeout=0):  # of the model that is taught with it
            remove(item.path, ignore_errors=False)
    elif item.kind == "indexes":
        remove_version(item.path, retrieval)
    elif item.kind == "half-written":
        remove_abandoned(item.path.parent)
    elif item.kind == "corpora":
        remove_corpus(item.path.parent, item.path.name)
    elif item.kind in ("trainings", "checkpoints") and is_held(training := item.path if item.kind == "trainings" else item.path.parent):
        raise ServiceError(f"a process has begun to train in {training}")
    elif item.kind == "gguf" and item.key in _played(item.path.parent):
        raise ServiceError("a process has begun to play it")
    elif item.kind == "checkpoints":
        shutil.rmtree(item.path)
    else:
        remove(item.path, ignore_errors=False)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
