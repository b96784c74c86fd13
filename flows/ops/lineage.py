"""`slmsearch lineage`: one thing, everything it was made from, everything made from it, and what is not as recorded.

Works without a server: the data directory and the store of MLflow are read directly.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.cli.settings import loggable
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError, SlmSearchError
from slmsearch.learn.models import model_hash
from slmsearch.lineage.graph import Name, Node, Step, gaps
from slmsearch.lineage.verify import INDEX, TRAIN, Change, Verified, following, setting_stages, verify
from tasks.environment import describe_environment
from tasks.lineage import Tracked, check_records, read_tracked
from tasks.tracking import RunRecord, VersionRecord

SHORTEST = 4
"""Digits of a key or run id that are enough where they name one thing."""
FORMS = "an adapter's directory, name/version, models:/name@alias, a content key, or an MLflow run id (or the beginning of one)"
OTHER = ("paths.", "tracking.")
"""Settings of the machine, not of the run."""


@dataclass(frozen=True, slots=True)
class OtherSettings:
    """Settings that were given beside those recorded."""

    different: dict[str, dict[str, object]]
    """Name -> `recorded` and `given`."""
    stages: tuple[str, ...]
    """Stages that would run again with those given."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What is known of one thing."""

    name: Name
    up: list[Step]
    down: list[Step]
    gaps: list[str]
    verified: Verified | None
    """None where nothing was hashed again."""
    notes: list[str]
    settings: OtherSettings | None
    """None where none were given."""

    @property
    def as_recorded(self) -> bool:
        """Whether nothing that was looked at differs from what was recorded."""
        return not (self.verified and self.verified.changes) and not (self.settings and self.settings.different)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-serialisable values."""
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
            "notes": self.notes,
            "settings": asdict(self.settings) if self.settings else None,
        }


def _to_dict(step: Step) -> dict[str, Any]:
    node = step.node
    told = {"facts": dict(node.facts), "place": str(node.place) if node.place else None} if node else {}
    return {"depth": step.depth, "role": step.role, "kind": step.name[0], "key": step.name[1], "stored": node is not None, **told}


def trace(
    config: RunConfig,
    target: str,
    again: bool = False,
    given: Callable[[RunConfig], RunConfig] | None = None,
    tracked: Tracked | None = None,
) -> Lineage:
    """Tell the lineage of something.

    Args:
        config: says where data and MLflow store are.
        target: as `FORMS` says.
        again: hash every stored content again, and compare settings, packages and the record in MLflow.
        given: makes the configuration to compare with the recorded one; None compares none.
        tracked: everything known, where it was read already.

    Raises:
        ConfigError: the target names nothing, or more than one thing.
        ServiceError: the store cannot be read.
    """
    tracked = tracked or read_tracked(config)
    name = resolve(tracked, target)
    up, down = tracked.graph.upward(name), _downward(tracked, name)
    run, version = _find_run(tracked, name, up, down)
    recorded = recorded_config(tracked, run) if again or given else None
    missing, notes, settings, verified = gaps(up), list[str](), None, None
    if given is not None and recorded is None:
        missing.append("the settings of the run that made it are not recorded: nothing to compare with")
    elif given is not None and recorded is not None:
        settings = _compare_settings(recorded, given(recorded))
    if again:
        found = verify(tracked.graph, [step.node for step in up if step.node])
        more = [*(check_records(tracked, version, run) if version else []), *_check_embedder(recorded, up), *_check_packages(up)]
        verified = Verified((*found.changes, *more), found.checked, found.unchecked)
        notes = _describe_drift(tracked, run)
    return Lineage(name, up, down, missing, verified, notes, settings)


def _downward(tracked: Tracked, name: Name) -> list[Step]:
    """Walk to what was made from something; what stands on a version's adapter stands on the version."""
    down = tracked.graph.downward(name)
    adapters = [ref.name for ref in tracked.graph.nodes[name].inputs if ref.kind == "adapter"] if name[0] == "version" else []
    known = {name, *(step.name for step in down)}
    return [*(step for adapter in adapters for step in tracked.graph.downward(adapter) if step.name not in known), *down]


def resolve(tracked: Tracked, target: str) -> Name:
    """Find what a person means.

    Raises:
        ConfigError: nothing, or more than one thing.
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


def _find_run(tracked: Tracked, name: Name, up: list[Step], down: list[Step]) -> tuple[RunRecord | None, VersionRecord | None]:
    """Find the version nearest to something, and the flow's run that made it; None where there is none or no telling which."""
    if name[0] == "run":
        run = tracked.runs[name[1]]
        run = tracked.runs.get(run.parent, run) if run.parent else run
        made = [version for version in tracked.versions.values() if tracked.maker(version) == run]
        return run, made[0] if len(made) == 1 else None
    near = [name[1]] if name[0] == "version" else [step.name[1] for step in (*up, *down) if step.name[0] == "version"]
    if len(near) != 1 or name[0] not in ("version", "adapter", "training"):
        return None, None
    version = tracked.versions[near[0]]
    return tracked.maker(version), version


def recorded_config(tracked: Tracked, run: RunRecord | None) -> RunConfig | None:
    """Return the settings that a run recorded; None where it has none that can be read."""
    values = tracked.registry.read_json(run.id, "config.json") if run and tracked.registry else None
    try:
        return RunConfig.read_record(values) if values else None
    except ValidationError:
        return None


def _compare_settings(recorded: RunConfig, given: RunConfig) -> OtherSettings:
    """Name the settings that differ, both values of each, and the stages that would run again with those given."""
    before, now = loggable(recorded), loggable(given)
    names = [name for name in sorted({*before, *now}) if name == "tracking.registered_model" or not name.startswith(OTHER)]
    different = {name: {"recorded": before.get(name), "given": now.get(name)} for name in names if before.get(name) != now.get(name)}
    same_place = given.model_copy(update={"paths": recorded.paths})
    return OtherSettings(different, setting_stages(recorded, same_place) if different else ())


def _check_embedder(recorded: RunConfig | None, up: list[Step]) -> list[Change]:
    """Compare the embedder that the settings give now with the one the index was made with."""
    from slmsearch.retrieval.embedders import load_embedder

    indexes = [step.node for step in up if step.node and step.node.kind == "index" and step.node.place]
    if recorded is None or not indexes:
        return []
    try:
        embedder = load_embedder(recorded.retrieval.embedder)
    except SlmSearchError as error:
        return [Change("embedder", recorded.retrieval.embedder.model, "weights", f"cannot be had ({error})", following(INDEX))]
    now = f"{embedder.id}@{embedder.revision}"
    named = {ref.key for node in indexes for ref in node.inputs if ref.kind == "embedder"}
    return [Change("embedder", key, "weights", f"are {now} now", following(INDEX)) for key in sorted(named) if key != now]


def _check_packages(up: list[Step]) -> list[Change]:
    """Compare the packages in a train key with those installed."""
    now = describe_environment()["packages"]
    changes = []
    for node in (step.node for step in up if step.node and step.node.kind == "training"):
        packages = {name.removeprefix("packages."): was for name, was in node.facts.items() if name.startswith("packages.")}
        for package, was in packages.items():
            if now.get(package) != was:
                changes.append(Change(*node.name, f"package {package}", f"is {now.get(package)} instead of {was}", following(TRAIN)))
    return changes


def _describe_drift(tracked: Tracked, run: RunRecord | None) -> list[str]:
    """Say which packages and which code are others than when the run was made, where no key holds them."""
    was = tracked.registry.read_json(run.id, "environment.json") if run and tracked.registry else None
    if not was:
        return ["packages and code of the run were not recorded"] if run else []
    now = describe_environment()
    packages, code = ([name for name, old in was[part].items() if now[part].get(name) != old] for part in ("packages", "code"))
    versions = ", ".join(f"{name} {was['packages'][name]} -> {now['packages'].get(name)}" for name in packages)
    notes = [f"packages differ from the run's: {versions}"] if packages else []
    return notes + ([f"code differs from the run's, and results stored before are still found: {', '.join(code)}"] if code else [])
