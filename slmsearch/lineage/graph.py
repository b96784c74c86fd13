"""Graph of artifacts and their inputs: nodes named by kind and content key, read from a data directory, and two walks over them.

Files are read as plain JSON, not as the dataclasses of their packages, so that files of older and newer versions can be read. After
housekeeping has deleted an artifact, MLflow's tags still name its keys. No file is hashed here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slmsearch.artifacts.directories import SEAL
from slmsearch.artifacts.files import read_json
from slmsearch.config import PathsConfig
from slmsearch.keys import content_key
from slmsearch.models.hashes import hash_recorded, model_hash
from slmsearch.training.files import ADAPTER, JOB, MANIFEST, SOURCES

Name = tuple[str, str]
"""Kind and key. Kinds: source, corpus, embedder, index, model, eval, config, training, adapter; in MLflow: version, run."""
Values = Mapping[str, Any]
"""Content of a JSON file."""
MADE_MODELS = {"control": "control.json", "sft": "sft.json"}
"""Directories `<name>-<key>` of models made beside adapters, and the file that marks them as complete."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference from one node to another."""

    kind: str
    key: str
    role: str = ""
    """Role of the input; empty where the kind says it."""
    alternative: bool = False
    """True if any alternative of the kind would do: a walk takes one that it has already met."""

    @property
    def name(self) -> Name:
        """Name of the referenced node."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class Node:
    """A stored artifact, or another input."""

    kind: str
    key: str
    inputs: tuple[Ref, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts for a person."""
    place: Path | None = None
    """Path of the artifact."""
    missing: tuple[tuple[str, str], ...] = ()
    """Inputs that should be recorded and are not: the kind of input that would fix it, empty where none would, and a sentence."""

    @property
    def name(self) -> Name:
        """Kind and key."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class Step:
    """A node on a walk."""

    depth: int
    role: str
    name: Name
    node: Node | None
    """Node; None: it is named as an input, but not stored."""


class Graph:
    """Nodes by name; a node added twice is merged: inputs and facts of both."""

    def __init__(self) -> None:
        self.nodes: dict[Name, Node] = {}

    def add(self, node: Node) -> None:
        """Add a node, or merge it into the one of that name."""
        known = self.nodes.get(node.name)
        if known is not None:
            inputs, missing = dict.fromkeys((*known.inputs, *node.inputs)), dict.fromkeys((*known.missing, *node.missing))
            facts = {**node.facts, **known.facts}
            node = Node(node.kind, node.key, tuple(inputs), facts, known.place or node.place, tuple(missing))
        self.nodes[node.name] = node

    def of_kind(self, kind: str) -> list[Node]:
        """Return the nodes of a kind."""
        return [node for node in self.nodes.values() if node.kind == kind]

    def upward(self, start: Name) -> list[Step]:
        """Walk to everything a node was made from, each node once, with its inputs below it."""
        return list(self._walk(Ref(*start), 0, set(), lambda name: self.nodes[name].inputs if name in self.nodes else ()))

    def downward(self, start: Name) -> list[Step]:
        """Walk to everything that was made from a node."""
        users: dict[Name, list[Ref]] = {}
        for node in self.nodes.values():
            for ref in node.inputs:
                users.setdefault(ref.name, []).append(Ref(node.kind, node.key, ref.role))
        return list(self._walk(Ref(*start), 0, set(), lambda name: users.get(name, ())))[1:]

    def _walk(self, ref: Ref, depth: int, seen: set[Name], following: Callable[[Name], Iterable[Ref]]) -> Iterator[Step]:
        if ref.name in seen:
            return
        seen.add(ref.name)
        yield Step(depth, ref.role, ref.name, self.nodes.get(ref.name))
        refs = following(ref.name)
        met = {further.kind for further in refs if further.alternative and further.name in seen}
        for further in refs:
            if not (further.alternative and further.kind in met):
                yield from self._walk(further, depth + 1, seen, following)


def gaps(steps: Iterable[Step]) -> list[str]:
    """Describe the gaps of a walk: inputs that are not recorded or not stored."""
    found = []
    for step in steps:
        kind, key = step.name
        if step.node is not None:
            has = {ref.kind for ref in step.node.inputs}
            found += [f"{kind} {key}: {text}" for fixed_by, text in step.node.missing if fixed_by not in has]
        elif kind != "embedder":  # it has no directory of its own
            found.append(f"{kind} {key} is named and is not stored here: pruned, moved, or made elsewhere")
    return found


def homes(paths: PathsConfig) -> dict[str, Path]:
    """Return the directory of each kind."""
    return {"corpus": paths.corpora, "index": paths.index, "eval": paths.evals, "training": paths.training}


def read_stored(paths: PathsConfig) -> Graph:
    """Read everything stored into a graph."""
    graph, made_of = Graph(), dict[str, list[Ref]]()
    for path in sorted((paths.corpora / "sources").glob("*.json")):
        entry = read_json(path)
        made_of.setdefault(str(entry.get("digest")), []).append(Ref("source", path.stem))
        parts = entry.get("parts") or {}
        graph.add(Node("source", path.stem, (), flatten(parts), path, () if parts else (("", "what it was hashed from was not recorded"),)))
    for kind, home in homes(paths).items():
        for place in sorted(home.glob("[!.]*/")):
            for node in _nodes(kind, place):
                graph.add(node)
    for digest, refs in made_of.items():
        if ("corpus", digest) in graph.nodes:
            graph.add(Node("corpus", digest, tuple(refs)))
    corpora = graph.of_kind("corpus")
    for index in graph.of_kind("index"):  # any corpus with the same pages would do
        pages = index.facts.get("pages_digest")
        refs = [Ref("corpus", node.key, "pages", alternative=True) for node in corpora if node.facts.get("pages_digest") == pages]
        graph.add(Node("index", index.key, tuple(refs)))
    return graph


def _nodes(kind: str, place: Path) -> Iterator[Node]:
    if kind == "training":
        record = MADE_MODELS.get(place.name.partition("-")[0], "")
        if record and (place / record).is_file():
            yield from _made_model(place, record)
        elif (place / MANIFEST).is_file() or (place / JOB).is_file():
            yield from _training(place)
    elif (place / MANIFEST).is_file():
        yield {"corpus": _corpus, "index": _index, "eval": _eval}[kind](read_json(place / MANIFEST), place)


def _corpus(manifest: Values, place: Path) -> Node:
    told = _chosen(manifest, ("pages", "questions", "pages_digest", "questions_digest", "split_seed"))
    source = {name: value for name, value in (manifest.get("source") or {}).items() if value is not None}
    return Node(
        "corpus", place.name, (), flatten({**told, "source": source}), place, (("source", "which source gave it was not recorded"),)
    )


def _index(manifest: Values, place: Path) -> Node:
    told = {name: value for name, value in manifest.items() if isinstance(value, str | int | float) and name not in ("key", "seconds")}
    embedder = Ref("embedder", f"{manifest.get('embedder_id')}@{manifest.get('embedder_revision')}")
    missing = (("corpus", f"no corpus with its pages ({manifest.get('pages_digest')}) is here"),)
    return Node("index", place.name, (embedder,), flatten(told), place, missing)


def _eval(manifest: Values, place: Path) -> Node:
    sources = manifest.get("sources") or {}
    policy = sources.get("policy") or {}
    refs = (
        Ref("corpus", manifest.get("corpus") or "", "questions"),
        Ref("index", sources.get("index_key") or ""),
        Ref("model", policy.get("model") or "", "policy"),
        Ref("adapter", policy.get("adapter") or ""),
        Ref("eval", policy.get("made_of") or "", "made of"),
    )
    told = {name: value for name, value in sources.items() if name not in ("index_key", "policy")}
    name = policy.get("baseline") or policy.get("served") or "a model" + (" with an adapter" if policy.get("adapter") else "")
    missing = (("corpus", "the corpus of its questions was not recorded"),)
    return Node("eval", place.name, _named(refs), flatten({"n": str(manifest.get("n")), "policy": name, **told}), place, missing)


def _training(place: Path) -> Iterator[Node]:
    """Yield the nodes of a training run: itself, its settings, the model it began with, and its results."""
    key = place.name
    manifest, job, sources = (read_json(place / name) for name in (MANIFEST, JOB, SOURCES))
    config = job.get("config") or {}
    path, made_of = (config.get("policy") or {}).get("model"), sources.get("policy") or {}
    settings = content_key(config=config) if config else ""
    refs = (
        Ref("corpus", job.get("corpus_digest") or manifest.get("corpus_digest") or ""),
        Ref("index", job.get("index_key") or manifest.get("index_key") or ""),
        Ref("model", made_of.get("model") or "", "base"),
        Ref("adapter", made_of.get("adapter") or "", "start"),
        Ref("config", settings),
    )
    missing = [] if sources else [("", "what its key was hashed from (base model, package versions) was not recorded")]
    told = {name: value for name, value in sources.items() if name not in ("policy", "corpus", "index")}
    facts = flatten({**_chosen(manifest, ("steps", "seconds", "base_model")), **told})
    yield Node("training", key, _named(refs), facts, place, (*missing, ("config", "its settings were not recorded")))
    if settings:
        yield Node("config", settings, (), flatten(config), place / JOB)
    if made_of.get("model"):
        yield Node("model", made_of["model"], (), {"path": str(path)}, Path(path) if path and Path(path).is_dir() else None)
    if manifest.get("adapter_hash"):
        adapter, recorded = place / ADAPTER, manifest.get("adapter_files")
        left = hash_recorded(recorded) if recorded else (model_hash(str(adapter)) if adapter.is_dir() else "")
        yield Node("adapter", left, (Ref("training", key),), {"sha256": manifest["adapter_hash"]}, adapter)
        if (config.get("train") or {}).get("method") == "full":  # evaluated as a model, not as an adapter on one
            yield Node("model", left, (Ref("adapter", left),), {}, adapter)


def _made_model(place: Path, record: str) -> Iterator[Node]:
    """Yield the nodes of a model from supervised training: the model, and the training it is named after."""
    key, sealed = place.name, read_json(place / SEAL).get("files")
    yield Node("training", key, (), flatten(read_json(place / record)), place, (("", f"what {key} was made from is only in its key"),))
    yield Node("model", hash_recorded(sealed) if sealed else model_hash(str(place)), (Ref("training", key),), {"path": str(place)}, place)


def _named(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    return tuple(ref for ref in refs if ref.key)


def _chosen(values: Values, names: Iterable[str]) -> dict[str, object]:
    return {name: values[name] for name in names if name in values}


def flatten(values: Values, prefix: str = "") -> dict[str, str]:
    """Flatten nested values to dotted leaves, for a person to read."""
    leaves: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            leaves |= flatten(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return leaves
