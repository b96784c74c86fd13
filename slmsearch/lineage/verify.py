"""Verification of a lineage: hash its artifacts again, and name every file and every part of a source that differs from its record.

A changed input gives other keys, so everything made from it is made again. A damaged artifact keeps its key: running the same flow again
remakes it, and artifacts made from it remain valid.
"""

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import numpy as np
from pydantic import ValidationError

from slmsearch.artifacts.directories import SEAL, read_seal
from slmsearch.artifacts.files import file_hash, read_json
from slmsearch.config import CorpusConfig
from slmsearch.corpus import store as corpora
from slmsearch.environments.registry import collect_source
from slmsearch.errors import CorpusError
from slmsearch.evaluate.store import has_evaluation
from slmsearch.foreign import cause_of
from slmsearch.keys import content_key
from slmsearch.lineage.graph import Graph, Node
from slmsearch.models.hashes import model_hash
from slmsearch.retrieval import versions
from slmsearch.training import files
from slmsearch.training.job import read_manifest

TOLERANCE = 1e-4
"""Largest difference between a vector in Chroma and the vector it was given, per value."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference from the record."""

    kind: str
    key: str
    what: str
    """File, or part of a key."""
    how: str

    def describe(self) -> str:
        """Describe the difference in one line."""
        return f"{self.kind} {self.key}: {self.what} {self.how}"


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification."""

    changes: tuple[Change, ...]
    checked: tuple[str, ...]
    """Artifacts that were hashed again."""
    unchecked: tuple[str, ...]
    """Artifacts that could not be hashed, and why."""


def verify(graph: Graph, nodes: Iterable[Node]) -> Verified:
    """Hash the artifacts of a graph's nodes again; artifacts that are not stored are left out, because a lineage's gaps name them."""
    changes, checked, unchecked = list[Change](), list[str](), list[str]()
    for node in nodes:
        if node.place is None or node.kind in ("config", "run", "version"):
            continue
        found = _check(graph, node, node.place)
        if isinstance(found, str):
            unchecked.append(f"{node.kind} {node.key}: {found}")
        else:
            checked.append(f"{node.kind} {node.key}")
            changes += found
    return Verified(tuple(changes), tuple(checked), tuple(unchecked))


def _check(graph: Graph, node: Node, place: Path) -> list[Change] | str:
    """Return the differences from the record, or why they cannot be determined."""
    match node.kind:
        case "source":
            return _check_source(graph, node, place)
        case "corpus":
            return _compare_seal(node, place, corpora.is_complete(place))
        case "eval":
            return _compare_seal(node, place, has_evaluation(place.parent, place.name))
        case "index":
            found = _compare_seal(node, place, versions.is_complete(place))
            if isinstance(found, list) and versions.find_graph_damage(place) is None:  # Chroma must not open a damaged graph
                found += [Change(*node.name, versions.CHROMA, how) for how in _check_chroma(place)]
            return found
        case "training":
            supervised = "-" in place.name  # its weights are checked where they are used
            if not supervised and not (place / files.MANIFEST).is_file():
                return "training has not ended"
            return _compare_seal(node, place, supervised or read_manifest(place) is not None)
        case _:
            now = model_hash(str(place))
            return [] if now == node.key else [Change(*node.name, str(place), f"is {now} now")]


def _compare_seal(node: Node, place: Path, is_complete: bool) -> list[Change] | str:
    """Compare a directory with its seal."""
    try:
        sealed = read_seal(place)
    except ValueError as error:
        return [Change(*node.name, SEAL, f"was changed: {error}")]
    changes = []
    for name, was in (sealed or {}).items():
        path = place / name
        if not path.is_file():
            changes.append(Change(*node.name, name, "is gone"))
        elif file_hash(path) != was:
            changes.append(Change(*node.name, name, "was changed since it was written"))
    if not changes and not is_complete:
        return [Change(*node.name, str(place), "does not agree with its manifest")]
    return "it has no seal: only what its manifest hashes was compared, and that is as recorded" if sealed is None else changes


def _check_source(graph: Graph, node: Node, place: Path) -> list[Change] | str:
    """Collect the hashed parts of a source again, and name those that changed."""
    recorded = read_json(place).get("parts")
    made = (corpus for corpus in graph.of_kind("corpus") if any(ref.name == node.name for ref in corpus.inputs))
    corpus = next((found.place for found in made if found.place), None)
    if not recorded or corpus is None:
        return "what it was hashed from was not recorded"
    if content_key(**recorded) != node.key:
        return [Change(*node.name, place.name, "is not what its name says")]
    try:
        now = collect_source(CorpusConfig.model_validate(read_json(corpus / files.MANIFEST).get("source") or {}), recorded)
    except (CorpusError, ValidationError) as error:
        return cause_of(error)
    if now is None:
        return "its files or the Hub cannot be asked"
    parts = [name for name in sorted({*recorded, *now}) if recorded.get(name) != now.get(name)]
    before, after = recorded.get("sources"), now.get("sources")
    if "sources" in parts and isinstance(before, list) and isinstance(after, list):
        parts.remove("sources")
        parts += [table for table, was, found in zip(("pages", "questions"), before, after, strict=False) if was != found]
    named = ("code of slmsearch.corpus" if part == "code" else part for part in parts)
    return [Change(*node.name, part, "is not as it was when the corpus was made") for part in named]


def _check_chroma(place: Path) -> list[str]:
    """Compare Chroma's copy of the vectors with the vectors; it is opened as a copy, because opening it changes its files."""
    from slmsearch.retrieval.chroma import opened_collection

    if not (place / versions.CHROMA).is_dir():
        return []  # a server holds it, which may be down; `slmsearch index verify` checks it
    try:
        vectors = np.load(place / versions.VECTORS)[np.unique(versions.read_keys(place)[1], return_index=True)[1]]
        with tempfile.TemporaryDirectory() as folder:
            copied = copytree(place / versions.CHROMA, Path(folder) / "chroma")
            with closing(sqlite3.connect(copied / "chroma.sqlite3")) as database:
                verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
            if verdict != "ok":
                return [f"has a damaged database ({verdict})"]
            with opened_collection(copied) as collection:
                held = collection.get(include=["embeddings"])
        stored = np.asarray(held["embeddings"])[np.argsort([int(name, 16) for name in held["ids"]])]
    except Exception as error:  # Chroma reports damage in many ways
        return [f"cannot be read ({cause_of(error)})"]
    if stored.shape != vectors.shape:
        return [f"holds {len(stored)} vectors instead of {len(vectors)}"]
    wrong = np.flatnonzero(~(np.abs(stored - vectors).max(axis=1) <= TOLERANCE))  # NaN is wrong, too
    return [f"holds other vectors than {versions.VECTORS} in {len(wrong)} rows"] if len(wrong) else []
