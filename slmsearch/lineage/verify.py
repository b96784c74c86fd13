"""Hashing again what a lineage names, and saying of every byte that is not as recorded which file it is in and what runs again.

A changed input gives other keys, and all that stands on them is made anew. A damaged artifact keeps its key: only the stage that made
it runs again, and what stands on it is found as before.
"""

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
from pydantic import ValidationError

from slmsearch.artifacts.directories import SEAL, read_seal
from slmsearch.artifacts.files import file_hash, read_json
from slmsearch.config import CorpusConfig, PlannerConfig, RunConfig
from slmsearch.corpus import store as corpora
from slmsearch.corpus.fingerprint import source_parts
from slmsearch.environments.registry import environment_of
from slmsearch.errors import CorpusError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_sources
from slmsearch.evaluate.store import has_evaluation
from slmsearch.keys import content_key
from slmsearch.learn import files
from slmsearch.learn.job import train_sources
from slmsearch.learn.models import model_hash
from slmsearch.learn.result import read_manifest
from slmsearch.lineage.graph import Graph, Node
from slmsearch.planner.sources import problems_parts
from slmsearch.retrieval import versions

VALIDATE, INDEX, EVALUATE, TRAIN, COMPARE, REGISTER = STAGES = ("validate", "index", "evaluate", "train", "compare", "register")
_FOLLOWING = {
    VALIDATE: STAGES,
    INDEX: (INDEX, EVALUATE, TRAIN, COMPARE, REGISTER),
    EVALUATE: (EVALUATE, COMPARE),
    TRAIN: (EVALUATE, TRAIN, COMPARE, REGISTER),  # another adapter is evaluated anew
    COMPARE: (COMPARE,),
    REGISTER: (REGISTER,),
}
CHANGED_QUESTIONS = (VALIDATE, EVALUATE, TRAIN, COMPARE, REGISTER)
"""An index knows pages alone."""
TOLERANCE = 1e-4
"""Difference of a vector in Chroma from the one it was given, per value."""


def following(*changed: str) -> tuple[str, ...]:
    """Return the stages that run again when the inputs of some change, in order."""
    found = {stage for first in changed for stage in _FOLLOWING[first]}
    return tuple(stage for stage in STAGES if stage in found)


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
    """Return what is not as recorded, or why that cannot be said."""
    match node.kind:
        case "source":
            return _check_source(graph, node, place)
        case "corpus":
            return _compare_seal(node, place, () if corpora.is_complete(place) else (VALIDATE,))
        case "eval":
            return _compare_seal(node, place, () if has_evaluation(place.parent, place.name) else (EVALUATE, COMPARE))
        case "index":
            damaged = versions.find_graph_damage(place)
            found = _compare_seal(node, place, () if versions.is_complete(place) and damaged in (None, SEAL) else (INDEX,))
            if isinstance(found, list) and damaged is None:  # Chroma is not to open what is damaged
                found += [Change(*node.name, versions.CHROMA, how, (INDEX,)) for how in _check_chroma(place)]
            return found
        case "training":
            supervised = "-" in place.name  # the weights it left are checked where they are used
            if not supervised and not (place / files.MANIFEST).is_file():
                return "training has not ended"
            return _compare_seal(node, place, () if supervised or read_manifest(place) else (TRAIN,))
        case _:
            return _check_weights(graph, node, place)


def _compare_seal(node: Node, place: Path, stages: tuple[str, ...]) -> list[Change] | str:
    """Compare a directory with its seal; `stages` run again because of what is damaged in it."""
    try:
        sealed = read_seal(place)
    except ValueError as error:
        return [Change(*node.name, SEAL, f"was changed: {error}", stages)]
    changes = []
    for name, was in (sealed or {}).items():
        path = place / name
        if not path.is_file():
            changes.append(Change(*node.name, name, "is gone", stages))
        elif file_hash(path) != was:
            changes.append(Change(*node.name, name, "was changed since it was written", stages))
    if not changes and stages:
        return [Change(*node.name, str(place), "does not agree with its manifest", stages)]
    return "it has no seal: only what its manifest hashes was compared, and that is as recorded" if sealed is None else changes


def _check_weights(graph: Graph, node: Node, place: Path) -> list[Change]:
    """Hash a model or an adapter."""
    now = model_hash(str(place))
    trained_on = any(ref.name == node.name for training in graph.of_kind("training") for ref in training.inputs)
    stages = (TRAIN,) if node.kind == "adapter" else following(TRAIN) if trained_on else (EVALUATE, COMPARE)
    return [] if now == node.key else [Change(*node.name, str(place), f"is {now} now", stages)]


def _check_source(graph: Graph, node: Node, place: Path) -> list[Change] | str:
    """Collect again what a source was hashed from, and name the parts that changed."""
    recorded = read_json(place).get("parts")
    corpus = next(
        (corpus for corpus in graph.of_kind("corpus") if corpus.place and any(ref.name == node.name for ref in corpus.inputs)), None
    )
    if not recorded or corpus is None or corpus.place is None:
        return "what it was hashed from was not recorded"
    if content_key(**recorded) != node.key:
        return [Change(*node.name, place.name, "is not what its name says", (VALIDATE,))]
    try:
        now = _collect_source(CorpusConfig.read_record(read_json(corpus.place / files.MANIFEST).get("source") or {}), recorded)
    except (CorpusError, ValidationError) as error:
        return " ".join(str(error).split())[:200]
    if now is None:
        return "its files or the Hub cannot be asked"
    parts: dict[str, tuple[str, ...]] = {name: STAGES for name in sorted({*recorded, *now}) if recorded.get(name) != now.get(name)}
    if parts.pop("code", None):
        parts["code of slmsearch.corpus"] = (VALIDATE,)  # what it gives decides whether anything follows
    if "split_seed" in parts:
        parts["split_seed"] = CHANGED_QUESTIONS
    if "sources" in parts and all(isinstance(found.get("sources"), list) for found in (recorded, now)):
        del parts["sources"]
        for i, (table, stages) in enumerate((("pages", STAGES), ("questions", CHANGED_QUESTIONS))):
            if recorded["sources"][i] != now["sources"][i]:
                parts[table] = stages
    return [Change(*node.name, part, "is not as it was when the corpus was made", stages) for part, stages in parts.items()]


def _collect_source(config: CorpusConfig, recorded: dict[str, Any]) -> dict[str, Any] | None:
    if "kind" not in recorded:
        # Another configuration may have given the same corpus: what the key holds is compared, whoever named it first.
        return source_parts(config.model_copy(update={"limit_pages": recorded["limit_pages"]}))
    if config.questions is None:
        return problems_parts(PlannerConfig(limit=recorded["limit"] or recorded["count"], seed=recorded["seed"]))
    return problems_parts(PlannerConfig(problems=config.questions, limit=recorded["limit"]))


def _check_chroma(place: Path) -> list[str]:
    """Compare Chroma's copy of the vectors with the vectors; it is opened as a copy, because opening it changes its files."""
    from slmsearch.retrieval.chroma import opened_collection

    if not (place / versions.CHROMA).is_dir():
        return []  # a server holds it, which may not be running; `slmsearch index verify` asks it
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
        return [f"cannot be read ({' '.join(str(error).split())[:120]})"]
    if stored.shape != vectors.shape:
        return [f"holds {len(stored)} vectors instead of {len(vectors)}"]
    wrong = np.flatnonzero(~(np.abs(stored - vectors).max(axis=1) <= TOLERANCE))  # what is no number is wrong, too
    return [f"holds other vectors than {versions.VECTORS} in {len(wrong)} rows"] if len(wrong) else []


def setting_stages(recorded: RunConfig, now: RunConfig) -> tuple[str, ...]:
    """Return the stages that run again where one configuration takes the place of another, by the keys of both."""
    before, after = _key_parts(recorded), _key_parts(now)
    return following(*(stage for stage in STAGES if before[stage] != after[stage]))


def _key_parts(config: RunConfig) -> dict[str, Any]:
    """Collect what the keys of each stage are made of, as far as it stands in the settings."""
    environment = environment_of(config)
    try:
        source = environment.data_parts(config)
    except CorpusError:
        source = None
    played = config.evaluate.model_dump(mode="json", include={"split", "limit", "baselines", "policy"})
    return {
        VALIDATE: source,
        INDEX: environment.index_parts(config),
        EVALUATE: (eval_sources([], "", PolicySpec("trained", config.policy), config), played),
        TRAIN: (train_sources(config, "", ""), environment.start_parts(config, "")),
        COMPARE: (config.decision.model_dump(mode="json"), config.control.model_dump(mode="json")),
        REGISTER: config.tracking.registered_model,
    }
