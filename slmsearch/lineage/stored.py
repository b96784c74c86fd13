"""Nodes from what lies under a data directory: manifests, jobs and seals. Nothing is hashed here; `verify.py` does that.

Files are read as plain JSON, not as the dataclasses of their packages: what an older or newer version wrote is still told.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slmsearch.artifacts.directories import read_seal
from slmsearch.keys import content_key
from slmsearch.learn import files
from slmsearch.learn.models import hash_recorded, model_hash
from slmsearch.lineage.graph import Graph, Node, Ref

MANIFEST = "manifest.json"
MADE_MODELS = {"control": "control.json", "sft": "sft.json"}
"""Directories `<name>-<key>` of models made beside adapters, and the file that says they are complete."""


def read_stored(data_dir: Path) -> Graph:
    """Return everything stored under a data directory."""
    graph = Graph()
    for read in (_corpora, _indexes, _evals, _trainings):
        for node in read(data_dir):
            graph.add(node)
    return graph


def _corpora(data_dir: Path) -> Iterator[Node]:
    home = data_dir / "corpora"
    made_of: dict[str, list[Ref]] = {}
    for path in sorted((home / "sources").glob("*.json")):
        entry = read_json(path)
        made_of.setdefault(str(entry.get("digest")), []).append(Ref("source", path.stem))
        parts = entry.get("parts")
        yield Node("source", path.stem, (), _flat(parts or {}), path, () if parts else (("", "what it was hashed from was not recorded"),))
    for place in _children(home, MANIFEST):
        yield corpus_node(place.name, read_json(place / MANIFEST), place, tuple(made_of.get(place.name, ())))


def corpus_node(digest: str, manifest: Mapping[str, Any], place: Path | None, made_of: tuple[Ref, ...] = ()) -> Node:
    """Return the node of a corpus."""
    source = {name: value for name, value in (manifest.get("source") or {}).items() if value is not None}
    facts = {
        **_named(manifest, "pages", "questions", "pages_digest", "questions_digest", "split_seed"),
        **{f"source.{name}": value for name, value in _flat(source).items()},
    }
    return Node("corpus", digest, made_of, facts, place, (("source", "which source gave it was not recorded"),))


def _indexes(data_dir: Path) -> Iterator[Node]:
    corpora = {path.name: read_json(path / MANIFEST).get("pages_digest") for path in _children(data_dir / "corpora", MANIFEST)}
    for place in _children(data_dir / "index", MANIFEST):
        yield index_node(place.name, read_json(place / MANIFEST), place, corpora)


def index_node(key: str, manifest: Mapping[str, Any], place: Path | None, corpora: Mapping[str, Any]) -> Node:
    """Return the node of an index version.

    Args:
        corpora: digest of a corpus -> digest of its pages.
    """
    pages = manifest.get("pages_digest")
    made_of = [Ref("corpus", digest, "pages", alternative=True) for digest, of_pages in corpora.items() if of_pages == pages]
    embedder = f"{manifest.get('embedder_id')}@{manifest.get('embedder_revision')}"
    others = {name: value for name, value in manifest.items() if isinstance(value, str | int | float) and name not in ("key", "seconds")}
    missing = (("corpus", f"no corpus with its pages ({pages}) is here"),)
    return Node("index", key, (*made_of, Ref("embedder", embedder)), _flat(others), place, missing)


def _evals(data_dir: Path) -> Iterator[Node]:
    for place in _children(data_dir / "evals", MANIFEST):
        yield eval_node(place.name, read_json(place / MANIFEST), place)


def eval_node(key: str, manifest: Mapping[str, Any], place: Path | None) -> Node:
    """Return the node of a stored evaluation."""
    sources = manifest.get("sources") or {}
    policy = sources.get("policy") or {}
    refs = [
        Ref("corpus", manifest.get("corpus") or "", "questions"),
        Ref("index", sources.get("index_key") or ""),
        Ref("model", policy.get("model") or "", "policy"),
        Ref("adapter", policy.get("adapter") or ""),
        Ref("eval", policy.get("plans_of") or "", "plans"),
    ]
    told = {name: value for name, value in sources.items() if name not in ("index_key", "policy")}
    facts = {"n": str(manifest.get("n")), **_flat({"policy": _policy_name(policy)}), **_flat(told)}
    missing = (("corpus", "the corpus of its questions was not recorded"),)
    return Node("eval", key, tuple(ref for ref in refs if ref.key), facts, place, missing)


def _policy_name(policy: Mapping[str, Any]) -> str:
    return str(policy.get("baseline") or policy.get("served") or "a model" + (" with an adapter" if policy.get("adapter") else ""))


def _trainings(data_dir: Path) -> Iterator[Node]:
    for place in _children(data_dir / "training"):
        name, _, key = place.name.partition("-")
        if name in MADE_MODELS:
            yield from _made_model(place, name, key)
        elif (place / files.MANIFEST).is_file() or (place / files.JOB).is_file():
            yield from training_nodes(place.name, read_json(place / files.JOB), read_json(place / files.MANIFEST), _sources(place), place)


def _sources(place: Path) -> dict[str, Any]:
    return read_json(place / files.SOURCES)


def training_nodes(
    key: str, job: Mapping[str, Any], manifest: Mapping[str, Any], sources: Mapping[str, Any], place: Path | None
) -> Iterator[Node]:
    """Return the nodes of a training run: itself, its settings, the model it began with, and what it left."""
    config = job.get("config") or {}
    policy = config.get("policy") or {}
    made_of = sources.get("policy") or {}
    settings = content_key(config=config) if config else ""
    refs = [
        Ref("corpus", str(job.get("corpus_digest") or manifest.get("corpus_digest") or "")),
        Ref("index", str(job.get("index_key") or manifest.get("index_key") or "")),
        Ref("model", str(made_of.get("model") or ""), "base"),
        Ref("adapter", str(made_of.get("adapter") or ""), "start"),
        Ref("config", settings),
    ]
    missing = [] if sources else [("", "what its key was hashed from (base model, package versions) was not recorded")]
    missing.append(("config", "its settings were not recorded"))
    told = {name: value for name, value in sources.items() if name not in ("policy", "corpus", "index")}
    facts = {**_named(manifest, "steps", "seconds", "base_model"), **_flat(told)}
    yield Node("training", key, tuple(ref for ref in refs if ref.key), facts, place, tuple(missing))
    if settings:
        yield Node("config", settings, (), _flat(config), place / files.JOB if place else None)
    if made_of.get("model"):
        yield Node("model", str(made_of["model"]), (), {"path": str(policy.get("model"))}, _directory(policy.get("model")))
    if manifest.get("adapter_hash"):
        adapter = place / files.ADAPTER if place else None
        recorded = manifest.get("adapter_files")
        left = hash_recorded(recorded) if recorded else (model_hash(str(adapter)) if adapter and adapter.is_dir() else "")
        yield Node("adapter", left, (Ref("training", key),), {"sha256": str(manifest["adapter_hash"])}, adapter)
        if (config.get("train") or {}).get("method") == "full":  # evaluated as a model, not as an adapter on one
            yield Node("model", left, (Ref("adapter", left),), {}, adapter)


def _made_model(place: Path, kind: str, key: str) -> Iterator[Node]:
    """Return the nodes of a model that supervised training left: the model, and the training it is named after."""
    facts = read_json(place / MADE_MODELS[kind])
    if not facts:
        return
    try:
        sealed = read_seal(place)
    except ValueError:
        sealed = None
    left = hash_recorded(sealed) if sealed else model_hash(str(place))
    missing = (("", f"what {place.name} was made from is only in its key"),)
    yield Node("training", place.name, (), _flat(facts), place, missing)
    yield Node("model", left, (Ref("training", place.name),), {"path": str(place)}, place)


def _children(parent: Path, holding: str = "") -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".") and (path / holding).exists())


def _directory(path: Any) -> Path | None:
    return Path(path) if isinstance(path, str) and Path(path).is_dir() else None


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; empty where there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _named(facts: Mapping[str, Any], *names: str) -> dict[str, str]:
    return _flat({name: facts[name] for name in names if name in facts})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested values to dotted leaves, for a person to read."""
    leaves: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            leaves |= _flat(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return leaves
