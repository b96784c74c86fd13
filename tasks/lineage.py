"""What the trackers know of lineage: runs and model versions as nodes, and whether their copies of it agree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.errors import ModelError
from slmsearch.learn.models import model_hash, weights_file
from slmsearch.lineage.graph import Graph, Node, Ref
from slmsearch.lineage.pruned import add_pruned
from slmsearch.lineage.stages import REGISTER
from slmsearch.lineage.stored import read_stored
from slmsearch.lineage.verify import Change
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, PREFIX, RunRecord, RunRegistry, VersionRecord, open_run_registry

MADE_HERE = {"index": "index", "train": "training"}
"""Stage -> kind of what its key names; stages `evaluate-*` make evaluations."""


@dataclass
class Tracked:
    """Everything known: the graph, and the records of MLflow behind it."""

    graph: Graph
    registry: RunRegistry | None
    runs: dict[str, RunRecord] = field(default_factory=dict)
    versions: dict[str, VersionRecord] = field(default_factory=dict)
    """By label, `name/version`."""

    def maker(self, version: VersionRecord) -> RunRecord | None:
        """Return the flow's run that made a version, None where MLflow no longer has it."""
        run = self.runs.get(version.run_id)
        return self.runs.get(run.parent, run) if run and run.parent else run


def read_tracked(config: RunConfig) -> Tracked:
    """Read data directory and MLflow store; no server is needed.

    Raises:
        ServiceError: the store is there and cannot be read.
    """
    data_dir = Path(config.paths.data_dir)
    graph, registry = read_stored(data_dir), open_run_registry(config)
    add_pruned(graph, data_dir)
    tracked = Tracked(graph, registry)
    if registry is None:
        return tracked
    tracked.runs = {run.id: run for run in registry.runs()}
    tracked.versions = {version.label: version for version in registry.versions()}
    for version in tracked.versions.values():
        for node in _version_nodes(version, tracked):
            graph.add(node)
    for run in tracked.runs.values():
        for node in _run_nodes(run, tracked):
            graph.add(node)
    return tracked


def _refs(tags: Mapping[str, str]) -> Iterator[Ref]:
    """Return what lineage tags name."""
    kinds = {"source_key": "source", "data_digest": "corpus", "index_key": "index", "train_key": "training", "config_hash": "config"}
    for tag, value in sorted(tags.items()):
        name = tag.removeprefix(PREFIX)
        if name == tag or not value:
            continue
        if name in kinds:
            yield Ref(kinds[name], value)
        elif name.startswith("eval_key"):
            yield Ref("eval", value, name.removeprefix("eval_key").lstrip("_"))
        elif name in ("control_key", "sft_key"):
            yield Ref("training", f"{name.removesuffix('_key')}-{value}")
        elif name == "base_hash":
            yield Ref("model", value, "base")


def _version_nodes(version: VersionRecord, tracked: Tracked) -> Iterator[Node]:
    """Return the node of a version, of the model under it, and of its adapter where only the registered copy is left."""
    tags, graph = version.tags, tracked.graph
    adapter = _adapter_of(version, tracked)
    refs = [*([Ref("adapter", adapter)] if adapter else []), *_refs(tags)]
    needed = {"training": "train_key", "corpus": "data_digest", "index": "index_key", "model": "base_hash"}
    if "planner" in version.name and f"{PREFIX}index_key" not in tags:
        del needed["index"]  # a planner plays without one
    missing = [(kind, f"it carries no tag {PREFIX}{tag}: that input is not recorded") for kind, tag in needed.items()]
    missing.append(("adapter", "neither the adapter nor its registered copy is here"))
    facts = {"aliases": ", ".join(version.aliases), "sha256": tags.get(ADAPTER_HASH, ""), "run": version.run_id}
    yield Node("version", version.label, tuple(refs), {name: value for name, value in facts.items() if value}, None, tuple(missing))
    base, path = tags.get(f"{PREFIX}base_hash"), tags.get(BASE_MODEL)
    if base and path:
        yield Node("model", base, (), {"path": path}, Path(path) if Path(path).is_dir() else None)
    if adapter and graph.find("adapter", adapter) is None:
        training = tags.get(f"{PREFIX}train_key")
        yield Node("adapter", adapter, (Ref("training", training),) if training else (), {"sha256": tags.get(ADAPTER_HASH, "")})


def _adapter_of(version: VersionRecord, tracked: Tracked) -> str | None:
    weights = version.tags.get(ADAPTER_HASH)
    for node in tracked.graph.nodes.values():
        if node.kind == "adapter" and weights and node.facts.get("sha256") == weights:
            return node.key
    copy = registered_copy(version, tracked.registry)
    return model_hash(str(copy)) if copy else None


def registered_copy(version: VersionRecord, registry: RunRegistry | None) -> Path | None:
    """Return the directory of a version's registered copy, None if it is gone."""
    try:
        copy = registry.adapter_of(version) if registry else None
    except ModelError:
        return None
    return copy if copy and weights_file(copy).is_file() else None


def _run_nodes(run: RunRecord, tracked: Tracked) -> Iterator[Node]:
    """Return the node of a run, and what its tags add to what it made."""
    refs = list(_refs(run.tags))
    version = run.tags.get(f"{PREFIX}model_version")
    refs += [Ref("version", label) for label, made in tracked.versions.items() if version and made.run_id in _family(run, tracked)]
    kind = "eval" if run.stage.startswith("evaluate-") else MADE_HERE.get(run.stage)
    if kind:
        refs = [Ref(kind, run.key)]
    facts = {"stage": run.stage, "status": run.status, **({"parent": run.parent} if run.parent else {})}
    missing = () if kind or run.parent else (("corpus", "it carries no lineage tags: it failed early, or is older than they are"),)
    yield Node("run", run.id, tuple(dict.fromkeys(refs)), facts, None, missing)
    digest = run.tags.get(f"{PREFIX}data_digest")
    if kind == "eval" and digest and tracked.graph.find("eval", run.key):
        yield Node("eval", run.key, (Ref("corpus", digest, "questions"),))
    settings = run.tags.get(f"{PREFIX}config_hash")
    if settings and run.parent is None:
        yield Node("config", settings, (), {"run": run.id})


def _family(run: RunRecord, tracked: Tracked) -> set[str]:
    return {run.id, *(other.id for other in tracked.runs.values() if other.parent == run.id)}


def check_records(tracked: Tracked, version: VersionRecord | None, run: RunRecord | None) -> list[Change]:
    """Compare the copies of a lineage with each other: tags of the version, tags and artifact of the run, the registered adapter.

    Args:
        tracked: everything known.
        version: a version on the walk.
        run: the flow's run that made it, or that is asked about.
    """
    changes = []
    if run is not None and tracked.registry is not None:
        tags = lineage_tags(run.tags)
        written = tracked.registry.read_json(run.id, "lineage.json")
        changes += [Change("run", run.id, "lineage.json", how, ()) for how in differences(written, tags)]
        if version is not None:
            named = lineage_tags(version.tags)
            shared = {name: value for name, value in tags.items() if name in named}
            changes += [Change("version", version.label, "tags", how, ()) for how in differences(named, shared)]
    if version is not None:
        changes += _check_copy(version, tracked)
    return changes


def lineage_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that tags name, without what else they say."""
    kept = ("source_key", "config_hash", "data_digest", "index_key", "train_key", "base_hash", "adapter_hash", "control_key", "sft_key")
    names = {tag.removeprefix(PREFIX): value for tag, value in tags.items() if tag.startswith(PREFIX)}
    return {name: value for name, value in names.items() if name in kept or name.startswith("eval_key_")}


def differences(copy: Mapping[str, Any] | None, tags: Mapping[str, str]) -> list[str]:
    """Say where a copy of a lineage does not agree with the tags."""
    if copy is None:
        return ["is gone"] if tags else []
    kept = {name: str(value) for name, value in copy.items() if name != "model_version"}
    wrong = [name for name in sorted({*kept, *tags}) if kept.get(name, "") != tags.get(name, "")]
    return [f"says {name} {kept.get(name) or 'nothing'}, the tags {tags.get(name) or 'nothing'}" for name in wrong]


def _check_copy(version: VersionRecord, tracked: Tracked) -> list[Change]:
    copy = registered_copy(version, tracked.registry)
    if copy is None:
        return [Change("version", version.label, "registered copy", "is gone", (REGISTER,))]
    adapter = next((ref.key for ref in tracked.graph.nodes["version", version.label].inputs if ref.kind == "adapter"), "")
    now = model_hash(str(copy))
    return [] if now == adapter else [Change("version", version.label, "registered copy", f"is {now} instead of {adapter}", (REGISTER,))]
