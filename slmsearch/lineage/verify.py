"""Hashing again what a lineage names, and saying of every byte that is not as recorded which file it is in and what runs again."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
from pydantic import ValidationError

from slmsearch.artifacts.directories import SEAL, read_seal
from slmsearch.artifacts.files import file_hash
from slmsearch.config import CorpusConfig, PlannerConfig
from slmsearch.corpus import store as corpora
from slmsearch.corpus.fingerprint import source_parts
from slmsearch.errors import CorpusError
from slmsearch.evaluate.store import has_evaluation
from slmsearch.keys import content_key, file_key
from slmsearch.learn import files
from slmsearch.learn.models import model_hash
from slmsearch.learn.result import UNSEALED as TRAINING_UNSEALED
from slmsearch.learn.result import read_manifest
from slmsearch.lineage.graph import Graph, Node
from slmsearch.lineage.stages import CHANGED_MODEL, COMPARE, EVALUATE, INDEX, TRAIN, VALIDATE, source_stages
from slmsearch.lineage.stored import MANIFEST, read_json
from slmsearch.planner.sources import problems_parts
from slmsearch.retrieval import versions

TOLERANCE = 1e-4
"""Difference of a vector in Chroma from the one it was given, per value."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as recorded."""

    kind: str
    key: str
    what: str
    """File, or part of a key."""
    how: str
    stages: tuple[str, ...]
    """Stages that would run again because of it; empty where none reads it."""

    def describe(self) -> str:
        """Say it in one line."""
        again = f"{', '.join(self.stages)} would run again" if self.stages else "no stage reads it"
        return f"{self.kind} {self.key}: {self.what} {self.how}; {again}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What hashing again found."""

    changes: tuple[Change, ...]
    checked: tuple[str, ...]
    """What was hashed."""
    unchecked: tuple[str, ...]
    """What could not be, and why."""


def verify(graph: Graph, nodes: Iterable[Node]) -> Verified:
    """Hash again what lies behind nodes.

    Args:
        graph: everything stored, for what a node is used by.
        nodes: what to check; those that lie nowhere are left out, a lineage's gaps name them.
    """
    changes: list[Change] = []
    checked: list[str] = []
    unchecked: list[str] = []
    for node in nodes:
        check = _CHECKS.get(node.kind)
        if check is None or (node.place is None and node.kind != "source"):
            continue
        found = check(graph, node)
        if isinstance(found, str):
            unchecked.append(f"{node.kind} {node.key}: {found}")
        else:
            checked.append(f"{node.kind} {node.key}")
            changes += found
    return Verified(tuple(changes), tuple(checked), tuple(unchecked))


Found = list[Change] | str
"""What is not as recorded, or why that cannot be said."""


def _source(graph: Graph, node: Node) -> Found:
    recorded = read_json(node.place).get("parts") if node.place else None
    corpus = next((other for other in graph.nodes.values() if any(ref.name == node.name for ref in other.inputs)), None)
    if not recorded or corpus is None or corpus.place is None:
        return "what it was hashed from was not recorded"
    if content_key(**recorded) != node.key:
        return [Change(*node.name, node.place.name if node.place else "", "is not what its name says", (VALIDATE,))]
    try:
        now = _source_now(read_json(corpus.place / MANIFEST).get("source") or {}, recorded)
    except (CorpusError, ValidationError) as error:
        return " ".join(str(error).split())[:200]
    if now is None:
        return "its files or the Hub cannot be asked"
    changed = source_stages(recorded, now)
    return [Change(*node.name, what, "is not as it was when the corpus was made", stages) for what, stages in changed.items()]


def _source_now(source: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any] | None:
    """Collect again what a source was hashed from."""
    config = CorpusConfig.read_record(source)
    if "kind" not in recorded:
        # Another configuration may have given the same corpus: what the key holds is compared, whoever named it first.
        return source_parts(config.model_copy(update={"limit_pages": recorded["limit_pages"]}))
    if config.questions is None:
        return problems_parts(PlannerConfig(limit=recorded["limit"] or recorded["count"], seed=recorded["seed"]))
    return problems_parts(PlannerConfig(problems=config.questions, limit=recorded["limit"]))


def _corpus(_: Graph, node: Node) -> Found:
    place = _place(node)
    manifest = read_json(place / MANIFEST)
    digests = {corpora.PAGES: manifest.get("pages_digest"), corpora.QUESTIONS: manifest.get("questions_digest")}
    return _compared(node, (), () if corpora.is_complete(place) else (VALIDATE,), lambda name: _file_key(place / name), digests)


def _index(_: Graph, node: Node) -> Found:
    place = _place(node)
    damaged = versions.find_graph_damage(place)
    stages = () if versions.is_complete(place) and damaged in (None, SEAL) else (INDEX,)
    found = _compared(node, (), stages, lambda _: versions.files_key(place), {})
    if isinstance(found, list) and damaged is None:  # Chroma is not to open what is damaged
        found += [Change(*node.name, versions.CHROMA, how, (INDEX,)) for how in _chroma(place)]
    return found


def _chroma(place: Path) -> list[str]:
    """Compare Chroma's copy of the vectors with the vectors; it is opened as a copy, because opening it changes its files."""
    from slmsearch.retrieval.chroma import opened_collection

    if not (place / versions.CHROMA).is_dir():
        return []  # a server holds it, which may not be running; `slmsearch index verify` asks it
    try:
        vectors = np.load(place / versions.VECTORS)
        with tempfile.TemporaryDirectory() as folder:
            copied = copytree(place / versions.CHROMA, Path(folder) / "chroma")
            with closing(sqlite3.connect(copied / "chroma.sqlite3")) as database:
                verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
            if verdict != "ok":
                return [f"has a damaged database ({verdict})"]
            with opened_collection(copied) as collection:
                held = collection.get(include=["embeddings"])
        stored = np.asarray(held["embeddings"])[np.argsort([int(name, 16) for name in held["ids"]])]
        vectors = vectors[np.unique(versions.read_keys(place)[1], return_index=True)[1]]
    except Exception as error:  # Chroma reports damage in many ways
        return [f"cannot be read ({' '.join(str(error).split())[:120]})"]
    if stored.shape != vectors.shape:
        return [f"holds {len(stored)} vectors instead of {len(vectors)}"]
    wrong = np.flatnonzero(~(np.abs(stored - vectors).max(axis=1) <= TOLERANCE))  # what is no number is wrong, too
    return [f"holds other vectors than {versions.VECTORS} in {len(wrong)} rows"] if len(wrong) else []


def _eval(_: Graph, node: Node) -> Found:
    place = _place(node)
    manifest = read_json(place / MANIFEST)
    stages = () if has_evaluation(place.parent, place.name) else (EVALUATE, COMPARE)
    found = _compared(node, (), stages, lambda name: _file_key(place / name), manifest.get("files") or {})
    if isinstance(found, list) and content_key(**(manifest.get("sources") or {})) != node.key:
        found.append(Change(*node.name, f"{MANIFEST} (sources)", "do not give its key", stages))
    return found


def _training(graph: Graph, node: Node) -> Found:
    place = _place(node)
    if "-" in place.name:  # a model that supervised training left: its weights are checked where they are used
        return _compared(node, (), (), lambda _: None, {})
    if not (place / files.MANIFEST).is_file():
        return "training has not ended"
    stages = () if read_manifest(place) else (TRAIN,)
    manifest, sources = read_json(place / files.MANIFEST), read_json(place / files.SOURCES)
    recorded = {f"{files.ADAPTER}/{name}": digest for name, digest in (manifest.get("adapter_files") or {}).items()}
    found = _compared(node, TRAINING_UNSEALED, stages, lambda name: _sha256(place / name), recorded)
    if isinstance(found, list) and sources and content_key(**sources) != node.key:
        found.append(Change(*node.name, files.SOURCES, "does not give its key", stages))
    return found


def _adapter(_: Graph, node: Node) -> Found:
    now = model_hash(str(node.place))
    return [] if now == node.key else [Change(*node.name, str(node.place), f"is {now} now", (TRAIN,))]


def _model(graph: Graph, node: Node) -> Found:
    now = model_hash(str(node.place))
    if now == node.key:
        return []
    trained_on = any(ref.name == node.name for other in graph.nodes.values() if other.kind == "training" for ref in other.inputs)
    return [Change(*node.name, str(node.place), f"is {now} now", CHANGED_MODEL if trained_on else (EVALUATE, COMPARE))]


_CHECKS: dict[str, Callable[[Graph, Node], Found]] = {
    "source": _source,
    "corpus": _corpus,
    "index": _index,
    "eval": _eval,
    "training": _training,
    "adapter": _adapter,
    "model": _model,
}


def _compared(
    node: Node, skipped: tuple[str, ...], stages: tuple[str, ...], digest: Callable[[str], str | None], recorded: dict[str, Any]
) -> Found:
    """Compare a directory with its seal, or with the digests its manifest has where it has no seal."""
    place = _place(node)
    try:
        sealed = read_seal(place)
    except ValueError as error:
        return [Change(*node.name, SEAL, f"was changed: {error}", stages)]
    if sealed is not None:
        now = {name: _sha256(place / name) for name in sealed}
        recorded = sealed
    else:
        now = {name: digest(name) for name in recorded}
    changes = []
    for name, was in recorded.items():
        if now[name] != was:
            changes.append(Change(*node.name, name, "is gone" if now[name] is None else "was changed since it was written", stages))
    if not changes and stages:
        changes.append(Change(*node.name, str(place), "does not agree with its manifest", stages))
    if sealed is None and not changes:
        return "it has no seal: only what its manifest hashes was compared, and that is as recorded"
    return changes


def _place(node: Node) -> Path:
    assert node.place is not None
    return node.place


def _sha256(path: Path) -> str | None:
    return file_hash(path) if path.is_file() else None


def _file_key(path: Path) -> str | None:
    return file_key(path) if path.is_file() else None
