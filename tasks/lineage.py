"""`slmsearch lineage`: one thing, everything it was made from, everything made from it, and differences from its record.

It works without a server and reads the data directory and the store of MLflow directly. MLflow's runs and model versions are nodes of the
graph, too; its tags name their inputs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.errors import ConfigError, ModelError
from slmsearch.lineage.graph import Graph, Name, Node, Ref, Step, gaps, read_stored
from slmsearch.lineage.verify import Change, Verified, verify
from slmsearch.models.hashes import model_hash, weights_file
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, PREFIX, RunRecord, RunRegistry, VersionRecord, open_run_registry

KINDS = {"source_key": "source", "data_digest": "corpus", "index_key": "index", "train_key": "training", "config_hash": "config"}
"""Tag, without the prefix -> kind of the thing it names."""
MADE_HERE = {"index": "index", "train": "training", "train-control": "training", "train-reader": "training", "train-sft": "training"}
"""Stage -> kind of the thing its key names; stages `evaluate-*` make evaluations."""
TAUGHT = {"control_key": "control-", "reader_key": "control-", "sft_key": "sft-"}
"""Tag, without the prefix, of a model taught by supervision -> beginning of its directory's name."""
SHORTEST = 4
"""Digits of a key or run id that suffice if they name one thing."""
REGISTERED = ("version", "run", "adapter", "training")
"""Kinds whose registered versions, above or below, are checked, too."""
FORMS = "an adapter's directory, name/version, models:/name@alias, a content key, or an MLflow run id (or the beginning of one)"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The record of one thing."""

    name: Name
    up: list[Step]
    down: list[Step]
    gaps: list[str]
    verified: Verified | None
    """Differences from the record; None if nothing was hashed again."""

    def to_dict(self) -> dict[str, object]:
        """Return the lineage as JSON-serialisable values."""
        verified = None
        if self.verified is not None:
            verified = {**asdict(self.verified), "changes": [{**asdict(c), "text": c.describe()} for c in self.verified.changes]}
        return {
            "kind": self.name[0],
            "key": self.name[1],
            "made_from": [_to_dict(step) for step in self.up],
            "made_into": [_to_dict(step) for step in self.down],
            "gaps": self.gaps,
            "verified": verified,
        }


def _to_dict(step: Step) -> dict[str, object]:
    node = step.node
    told = {"facts": dict(node.facts), "place": str(node.place) if node.place else None} if node else {}
    return {"depth": step.depth, "role": step.role, "kind": step.name[0], "key": step.name[1], "stored": node is not None, **told}


@dataclass
class Tracked:
    """All records: the graph, and the records of MLflow behind it."""

    graph: Graph
    registry: RunRegistry | None
    runs: dict[str, RunRecord] = field(default_factory=dict)
    versions: dict[str, VersionRecord] = field(default_factory=dict)
    """Versions by label, `name/version`."""

    def maker(self, version: VersionRecord) -> RunRecord | None:
        """Return the flow's run that made a version, None where MLflow no longer has it."""
        run = self.runs.get(version.run_id)
        return self.runs.get(run.parent, run) if run and run.parent else run


def read_tracked(paths: PathsConfig, tracking: TrackingConfig) -> Tracked:
    """Read data directory and MLflow store; no server is needed.

    Raises:
        ServiceError: the store exists and cannot be read.
    """
    tracked = Tracked(read_stored(paths), open_run_registry(paths, tracking))
    if tracked.registry is not None:
        tracked.runs = {run.id: run for run in tracked.registry.runs()}
        tracked.versions = {version.label: version for version in tracked.registry.versions()}
    for version in tracked.versions.values():
        _add_version(version, tracked)
    for run in tracked.runs.values():
        _add_run(run, tracked)
    return tracked


def named_by(tags: Mapping[str, str]) -> Iterator[Ref]:
    """Return the things that lineage tags name."""
    for tag, value in sorted(tags.items()):
        name = tag.removeprefix(PREFIX)
        if name == tag or not value:
            continue
        if name in KINDS:
            yield Ref(KINDS[name], value)
        elif name.startswith("eval_key"):
            yield Ref("eval", value, name.removeprefix("eval_key").lstrip("_"))
        elif name == "promotion_eval_key":
            yield Ref("eval", value, "promotion")
        elif name in TAUGHT:
            yield Ref("training", TAUGHT[name] + value)
        elif name == "base_hash":
            yield Ref("model", value, "base")


def made_by(run: RunRecord) -> Ref | None:
    """Return the result of a stage's run, None for a flow's run: while a stage runs there is no other trace of it."""
    kind = "eval" if run.stage.startswith("evaluate-") else MADE_HERE.get(run.stage)
    prefix = TAUGHT.get(f"{run.stage.removeprefix('train-')}_key", "")
    return Ref(kind, prefix + run.key) if kind else None


def _add_version(version: VersionRecord, tracked: Tracked) -> None:
    """Add the nodes of a version, of the model under it, and of its adapter if only the registered copy is left."""
    tags, graph = version.tags, tracked.graph
    weights, base, path = tags.get(ADAPTER_HASH, ""), tags.get(f"{PREFIX}base_hash"), tags.get(BASE_MODEL)
    adapter = next((node.key for node in graph.of_kind("adapter") if weights and node.facts.get("sha256") == weights), None)
    if adapter is None and (copy := _registered_copy(version, tracked.registry)):
        adapter, training = model_hash(str(copy)), tags.get(f"{PREFIX}train_key")
        graph.add(Node("adapter", adapter, (Ref("training", training),) if training else (), {"sha256": weights}))
    needed = {"training": "train_key", "corpus": "data_digest", "index": "index_key", "model": "base_hash"}
    needed = {kind: tag for kind, tag in needed.items() if tags.get(f"{PREFIX}{tag}") != ""}  # empty: played without one
    missing = [(kind, f"it carries no tag {PREFIX}{tag}: that input is not recorded") for kind, tag in needed.items()]
    missing.append(("adapter", "neither the adapter nor its registered copy is here"))
    facts = {"aliases": ", ".join(version.aliases), "sha256": weights, "run": version.run_id}
    refs = (*([Ref("adapter", adapter)] if adapter else []), *named_by(tags))
    graph.add(Node("version", version.label, refs, {name: value for name, value in facts.items() if value}, None, tuple(missing)))
    if base and path:
        graph.add(Node("model", base, (), {"path": path}, Path(path) if Path(path).is_dir() else None))


def _registered_copy(version: VersionRecord, registry: RunRegistry | None) -> Path | None:
    """Return the directory of a version's registered copy, None if it does not exist."""
    try:
        copy = registry.fetch_adapter(version.name, version.version) if registry else None
    except ModelError:
        return None
    return copy if copy and weights_file(copy).is_file() else None


def _add_run(run: RunRecord, tracked: Tracked) -> None:
    """Add the node of a run, and the facts of its tags to its result."""
    made, refs = made_by(run), list(named_by(run.tags))
    if made:
        refs = [made]
    elif f"{PREFIX}model_version" in run.tags:
        family = {run.id, *(other.id for other in tracked.runs.values() if other.parent == run.id)}
        refs += [Ref("version", label) for label, version in tracked.versions.items() if version.run_id in family]
    facts = {"stage": run.stage, "status": run.status, **({"parent": run.parent} if run.parent else {})}
    missing = () if made or run.parent else (("corpus", "it carries no lineage tags: it failed early, or is older than they are"),)
    tracked.graph.add(Node("run", run.id, tuple(dict.fromkeys(refs)), facts, None, missing))
    digest, settings = run.tags.get(f"{PREFIX}data_digest"), run.tags.get(f"{PREFIX}config_hash")
    if made and made.kind == "eval" and digest and made.name in tracked.graph.nodes:
        tracked.graph.add(Node("eval", run.key, (Ref("corpus", digest, "questions"),)))
    if settings and run.parent is None:
        tracked.graph.add(Node("config", settings, (), {"run": run.id}))


def _check_records(tracked: Tracked, version: VersionRecord) -> list[Change]:
    """Compare the tags of a version with those of the flow's run that made it, and its registered adapter with the trained one."""
    run = tracked.maker(version)
    named, tags = lineage_tags(version.tags), lineage_tags(run.tags) if run else {}
    changes = [
        Change("version", version.label, "tags", f"says {name} {named[name]}, the run {tags[name]}")
        for name in sorted(named.keys() & tags.keys())
        if named[name] != tags[name]
    ]
    copy, how = _registered_copy(version, tracked.registry), "is gone"
    if copy is not None:
        adapter = next((ref.key for ref in tracked.graph.nodes["version", version.label].inputs if ref.kind == "adapter"), "")
        how = "" if (now := model_hash(str(copy))) == adapter else f"is {now} instead of {adapter}"
    return [*changes, Change("version", version.label, "registered copy", how)] if how else changes


def lineage_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that tags name, without other facts in them."""
    kept = (*KINDS, "base_hash", "adapter_hash", *TAUGHT)
    names = {tag.removeprefix(PREFIX): value for tag, value in tags.items() if tag.startswith(PREFIX)}
    return {name: value for name, value in names.items() if name in kept or name.startswith("eval_key_")}


def trace(tracked: Tracked, target: str, again: bool = False) -> Lineage:
    """Return the lineage of a target, given as `FORMS` says.

    With `again` every stored content is hashed again, and the copies of the record in MLflow are compared.

    Raises:
        ConfigError: the target names nothing, or more than one thing.
    """
    name = resolve(tracked, target)
    up, down, verified = tracked.graph.upward(name), _downward(tracked, name), None
    if again:
        found, near = verify(tracked.graph, [step.node for step in up if step.node]), (*up, *down) if name[0] in REGISTERED else ()
        versions = [tracked.versions[step.name[1]] for step in near if step.name[0] == "version" and step.node]
        records = (change for version in versions for change in _check_records(tracked, version))
        verified = replace(found, changes=(*found.changes, *records))
    return Lineage(name, up, down, gaps(up), verified)


def _downward(tracked: Tracked, name: Name) -> list[Step]:
    """Walk to everything made from a thing; a thing that depends on a version's adapter depends on the version."""
    down = tracked.graph.downward(name)
    adapters = [ref.name for ref in tracked.graph.nodes[name].inputs if ref.kind == "adapter"] if name[0] == "version" else []
    known = {name, *(step.name for step in down)}
    return [*(step for adapter in adapters for step in tracked.graph.downward(adapter) if step.name not in known), *down]


def resolve(tracked: Tracked, target: str) -> Name:
    """Return the thing that a target names.

    Raises:
        ConfigError: it names nothing, or more than one thing.
    """
    found = _by_path(tracked, target) or _by_version(tracked, target) or _by_key(tracked, target)
    if not found:
        raise ConfigError(f"{target!r} names nothing known here; give {FORMS}; `slmsearch index list` and MLflow list them")
    if len(found) > 1:
        shown = ", ".join(f"{kind} {key}" for kind, key in sorted(found)[:6])
        raise ConfigError(f"{target!r} may mean {shown}; write more of it")
    return found[0]


def _by_path(tracked: Tracked, target: str) -> list[Name]:
    path = Path(target).expanduser().resolve()
    if not path.is_dir():
        return []
    lying = [node.name for node in tracked.graph.nodes.values() if node.place and node.place.resolve() == path]
    if lying:
        return sorted(lying, key=lambda name: name[0] != "adapter")[:1]
    is_adapter = (path / "adapter_config.json").is_file()
    if not is_adapter and not (path / "config.json").is_file():
        return []
    missing = (("training", "no training known here left it, or it was changed since"),)
    node = Node("adapter" if is_adapter else "model", model_hash(str(path)), (), {}, path, missing)
    tracked.graph.nodes.setdefault(node.name, node)
    return [node.name]


def _by_version(tracked: Tracked, target: str) -> list[Name]:
    match = re.fullmatch(r"(?:models:/)?([^@]+?)(?:@([\w-]+)|/(\d+))", target)
    if match is None:
        return []
    model, alias, number = match.groups()
    named = [version for version in tracked.versions.values() if version.name == model]
    return [("version", version.label) for version in named if (alias in version.aliases if alias else version.version == number)]


def _by_key(tracked: Tracked, target: str) -> list[Name]:
    if len(target) < SHORTEST or not re.fullmatch(r"(control-|sft-)?[0-9a-f]+", target):
        return []
    nodes = tracked.graph.nodes.values()
    exact = [node.name for node in nodes if node.key == target]
    shas = [node.name for node in tracked.graph.of_kind("adapter") if node.facts.get("sha256", "").startswith(target)]
    return exact or list(dict.fromkeys([*(node.name for node in nodes if node.key.startswith(target)), *shas]))
