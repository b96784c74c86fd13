"""`slmsearch lineage`: one thing, everything it was made from, everything made from it, and what is not as recorded.

Works without a server: the data directory and the store of MLflow are read directly; Prefect's copy is compared where its API answers.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.ops.lineage_checks import (
    check_embedder,
    check_packages,
    check_prefect,
    check_settings,
    compare_settings,
    describe_drift,
    recorded_config,
)
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.learn.models import model_hash
from slmsearch.lineage.graph import Name, Node, Step, gaps
from slmsearch.lineage.verify import Verified, verify
from tasks.lineage import Tracked, check_records, read_tracked
from tasks.tracking import RunRecord, VersionRecord

SHORTEST = 4
"""Digits of a key or run id that are enough where they name one thing."""
FORMS = "an adapter's directory, name/version, models:/name@alias, a content key, or an MLflow run id (or the beginning of one)"


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
    settings: dict[str, Any] | None
    """Settings given that differ from those recorded, and the stages that would run again; None where none were given."""

    @property
    def as_recorded(self) -> bool:
        """Whether nothing that was looked at differs from what was recorded."""
        return not (self.verified and self.verified.changes) and not (self.settings and self.settings["different"])

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
            "settings": self.settings,
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
        again: hash every stored content again and compare the copies of the record.
        given: makes the configuration to compare with the recorded one; None compares none.
        tracked: everything known, where it was read already.

    Raises:
        ConfigError: the target names nothing, or more than one thing.
        ServiceError: the store cannot be read.
    """
    tracked = tracked or read_tracked(config)
    name = resolve(tracked, target)
    up, down = tracked.graph.upward(name), _downward(tracked, name)
    run, version = find_run(tracked, name, up, down)
    recorded = recorded_config(tracked, run) if again or given else None
    missing = gaps(up)
    if given is not None and recorded is None:
        missing.append("the settings of the run that made it are not recorded: nothing to compare with")
    notes: list[str] = []
    verified = None
    if again:
        verified = verify(tracked.graph, [step.node for step in up if step.node])
        more = [*check_records(tracked, version, run), *check_settings(tracked, run), *check_embedder(recorded, up), *check_packages(up)]
        more += check_prefect(config, run, notes)
        verified = Verified((*verified.changes, *more), verified.checked, verified.unchecked)
        notes += describe_drift(tracked, run)
    settings = compare_settings(recorded, given(recorded)) if given is not None and recorded is not None else None
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
    path = Path(target).expanduser()
    if not path.is_dir():
        return []
    path = path.resolve()
    lying = [node.name for node in tracked.graph.nodes.values() if node.place and node.place.resolve() == path and node.kind != "config"]
    if lying:
        return sorted(lying, key=lambda name: name[0] != "adapter")[:1]
    if not any((path / file).is_file() for file in ("adapter_config.json", "config.json")):
        return []
    kind, key = ("adapter" if (path / "adapter_config.json").is_file() else "model"), model_hash(str(path))
    if tracked.graph.find(kind, key) is None:
        missing = (("training", "no training known here left it, or it was changed since"),)
        tracked.graph.add(Node(kind, key, (), {}, path, missing))
    return [(kind, key)]


def _by_version(tracked: Tracked, target: str) -> list[Name]:
    match = re.fullmatch(r"(?:models:/)?([^@]+?)(?:@([\w-]+)|/(\d+))", target)
    if match is None:
        return []
    model, alias, number = match.groups()
    return [
        ("version", label)
        for label, version in tracked.versions.items()
        if version.name == model and (alias in version.aliases if alias else version.version == number)
    ]


def _by_key(tracked: Tracked, target: str) -> list[Name]:
    if len(target) < SHORTEST or not re.fullmatch(r"(control-|sft-)?[0-9a-f]+", target):
        return []
    names = [node.name for node in tracked.graph.nodes.values()]
    exact = [name for name in names if name[1] == target]
    shas = [
        node.name for node in tracked.graph.nodes.values() if node.kind == "adapter" and node.facts.get("sha256", "").startswith(target)
    ]
    return exact or list(dict.fromkeys([*(name for name in names if name[1].startswith(target)), *shas]))


def find_run(tracked: Tracked, name: Name, up: list[Step], down: list[Step]) -> tuple[RunRecord | None, VersionRecord | None]:
    """Find the version nearest to something, and the flow's run that made it; None where there is none or no telling which."""
    if name[0] == "run":
        run = tracked.runs[name[1]]
        run = tracked.runs.get(run.parent, run) if run.parent else run
        made = [v for v in tracked.versions.values() if tracked.maker(v) == run]
        return run, made[0] if len(made) == 1 else None
    near = [name[1]] if name[0] == "version" else [step.name[1] for step in (*up, *down) if step.name[0] == "version"]
    if name[0] == "version" or (len(near) == 1 and name[0] in ("adapter", "training")):
        version = tracked.versions[near[0]]
        return tracked.maker(version), version
    return None, None
