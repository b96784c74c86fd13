"""`slmsearch ops reproduce`: run the flow that made a model version again from its recorded settings, and compare item by item."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from flows.ops.runner import FLOWS, run_flow
from flows.runtime.servers import Say
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.errors import ConfigError, ModelError
from tasks.lineage import Tracked, lineage_tags, read_tracked, resolve
from tasks.tracking import RunRecord, RunRegistry, open_run_registry

TIMED = ("time/", "memory/", "eval/time/")
"""Metrics of the machine, which differ in every run."""
PLACES = ("source_key", "config_hash")
"""Keys that hold paths, or the code that reads them: the data behind them are compared instead."""


@dataclass(frozen=True, slots=True)
class ComparedItem:
    """A key or a metric of both runs."""

    name: str
    recorded: str | float | None
    again: str | float | None
    same: bool


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A recorded run and its repetition."""

    version: str
    run: str
    """Recorded run in MLflow."""
    directory: str | None
    """Directory of the new run; None if it was removed."""
    items: tuple[ComparedItem, ...]
    same: bool
    """True if all items are equal."""


def reproduce_version(config: RunConfig, version: str, out: Path | None, say: Say) -> Reproduction:
    """Run a version's flow again in a data directory of its own and compare keys, adapter hash and metrics.

    Args:
        config: names the data directory and the MLflow store.
        version: `name/version` or `models:/name@alias`.
        out: directory to run in; None makes one and removes it if all items are equal.
        say: receives lines for a person.

    Raises:
        ConfigError: no such version, or its record is incomplete.
    """
    tracked = read_tracked(config.paths, config.tracking)
    kind, label = resolve(tracked, version)
    if kind != "version":
        raise ConfigError(f"{version!r} is a {kind}: give a model version, such as {config.tracking.registered_model}/1")
    run = tracked.maker(tracked.versions[label])
    recorded = _recorded_config(tracked, run)
    if run is None or recorded is None or run.stage not in FLOWS:
        raise ConfigError(f"{label}: the run that made it, or its config.json, is not in MLflow; only its lineage can be shown")
    Path(config.paths.data_dir).mkdir(parents=True, exist_ok=True)
    folder = out or Path(tempfile.mkdtemp(prefix="reproduce-", dir=config.paths.data_dir))
    if out and out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: a run in it would find what lies there; give a new folder")
    say(f"running {run.stage} again in {folder}")
    keys = {"judge.api_key": config.judge.api_key, "policy.api_key": config.policy.api_key}  # a record holds no secrets
    operated = {"tracking.approval_s": 0.0, "forecast.if_worth_it": False, "evaluate.shards": 1}  # nobody is asked, nothing spread
    fresh = recorded.changed({**fresh_places(recorded.policy.model, config.paths, folder.resolve()), **keys, **operated})
    again = run_flow(run.stage, fresh, say, here=True)
    items = _compare_runs(tracked, run, open_run_registry(fresh.paths, fresh.tracking), str(again["mlflow_run_id"]))
    same = all(item.same for item in items)
    if out is None and same:
        shutil.rmtree(folder, ignore_errors=True)
    return Reproduction(label, run.id, None if out is None and same else str(folder), items, same)


def _recorded_config(tracked: Tracked, run: RunRecord | None) -> RunConfig | None:
    """Return the settings that a run recorded; None if none can be read."""
    values = tracked.registry.read_json(run.id, "config.json") if run and tracked.registry else None
    try:
        return RunConfig.model_validate(values) if values else None
    except ValidationError:
        return None


def fresh_places(model: str, paths: PathsConfig, folder: Path) -> dict[str, object]:
    """Return the settings that move a run to a folder, and copy the known results of judges there.

    Raises:
        ModelError: the trained model is no longer at its path.
    """
    if Path(model).is_absolute() and not Path(model).is_dir():
        raise ModelError(f"the base model {model} does not exist any more; restore it, then reproduce again")
    data_dir = folder / "data"
    verdicts = Path(paths.data_dir) / "judge"
    if verdicts.is_dir():  # whether a judge has passed is known there
        shutil.copytree(verdicts, data_dir / "judge", dirs_exist_ok=True)
    return {"paths.data_dir": str(data_dir), "paths.mlruns_dir": str(folder / "mlruns"), "tracking.uri": None}


def _compare_runs(tracked: Tracked, run: RunRecord, registry: RunRegistry | None, run_id: str) -> tuple[ComparedItem, ...]:
    """Compare a recorded run with its repetition: every key of the lineage, and every metric but those of the machine."""
    assert tracked.registry is not None and registry is not None
    again = {found.id: found for found in registry.runs()}
    before, after = lineage_tags(run.tags), lineage_tags(again[run_id].tags)
    items = [_item(name, before.get(name), after.get(name)) for name in sorted({*before, *after}) if name not in PLACES]
    for stage, recorded_id in _stages(tracked.runs, run.id).items():
        made_id = _stages(again, run_id).get(stage)
        was, now = tracked.registry.metrics(recorded_id), registry.metrics(made_id) if made_id else {}
        names = [name for name in sorted({*was, *now}) if not name.startswith(TIMED)]
        items += [_item(f"{stage}: {name}", was.get(name), now.get(name)) for name in names]
    return tuple(items)


def _stages(runs: dict[str, RunRecord], parent: str) -> dict[str, str]:
    return {run.stage: run.id for run in runs.values() if run.parent == parent}


def _item(name: str, recorded: str | float | None, again: str | float | None) -> ComparedItem:
    return ComparedItem(name, recorded, again, recorded == again)


def render_comparison(found: Reproduction) -> str:
    """Render the comparison: every key, and the number of equal metrics with the names of the others."""
    keys = [item for item in found.items if ":" not in item.name]
    metrics = [item for item in found.items if ":" in item.name]
    shown = [*keys, *(item for item in metrics if not item.same)]
    rows = [f"{'same' if item.same else 'DIFFERENT':<10} {item.name:<28} {_values(item)}" for item in shown]
    verdict = "reproduced" if found.same else f"not reproduced; the new run is in {found.directory}"
    same = sum(item.same for item in metrics)
    return "\n".join([*rows, f"{same} of {len(metrics)} metrics are the same", f"{found.version}: {verdict}"])


def _values(item: ComparedItem) -> str:
    return str(item.recorded) if item.same else f"{json.dumps(item.recorded)} -> {json.dumps(item.again)}"
