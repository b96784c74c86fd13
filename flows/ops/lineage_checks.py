"""What a lineage is compared with beside the data themselves: settings, embedder, packages, code, and Prefect's copy of it."""

from typing import Any

from pydantic import ValidationError

from flows.cli.settings import loggable, read_environment
from flows.ops.api import client_of, find_up
from slmsearch.config import RunConfig
from slmsearch.errors import SlmSearchError
from slmsearch.keys import content_key
from slmsearch.lineage.graph import Step
from slmsearch.lineage.stages import INDEX, TRAIN, following, setting_stages
from slmsearch.lineage.verify import Change
from slmsearch.serve.health import answers
from tasks.environment import describe_environment
from tasks.lineage import Tracked, differences, lineage_tags
from tasks.tracking import PREFIX, RunRecord

OTHER = ("paths.", "tracking.")
"""Settings of the machine, not of the run."""


def recorded_config(tracked: Tracked, run: RunRecord | None) -> RunConfig | None:
    """Return the settings that a run recorded; None where it has none that can be read."""
    values = _recorded_values(tracked, run)
    try:
        return RunConfig.read_record(values) if values else None
    except ValidationError:
        return None


def _recorded_values(tracked: Tracked, run: RunRecord | None) -> dict[str, Any] | None:
    return tracked.registry.read_json(run.id, "config.json") if run and tracked.registry else None


def compare_settings(recorded: RunConfig, given: RunConfig) -> dict[str, Any]:
    """Name the settings that differ, both values of each, and the stages that would run again with those given."""
    before, now = loggable(recorded), loggable(given)
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name) and not name.startswith(OTHER)]
    names += ["tracking.registered_model"] if before["tracking.registered_model"] != now["tracking.registered_model"] else []
    different = {name: {"recorded": before.get(name), "given": now.get(name)} for name in names}
    same_place = given.model_copy(update={"paths": recorded.paths})
    return {"different": different, "stages": list(setting_stages(recorded, same_place)) if different else []}


def check_settings(tracked: Tracked, run: RunRecord | None) -> list[Change]:
    """Hash the settings that a run recorded again."""
    recorded = run.tags.get(f"{PREFIX}config_hash") if run else None
    if not recorded:
        return []
    values = _recorded_values(tracked, run)
    now = content_key(config=values) if values else "unreadable"
    if now == recorded:
        return []
    return [Change("config", recorded, "config.json", f"is {now} now: a run of it would be another run", following("validate"))]


def check_embedder(recorded: RunConfig | None, up: list[Step]) -> list[Change]:
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


def check_packages(up: list[Step]) -> list[Change]:
    """Compare the packages in a train key with those installed."""
    now = describe_environment()["packages"]
    changes = []
    for step in up:
        if step.node is None or step.node.kind != "training":
            continue
        for name, was in step.node.facts.items():
            package = name.removeprefix("packages.")
            if package != name and now.get(package) != was:
                changes.append(Change(*step.name, f"package {package}", f"is {now.get(package)} instead of {was}", following(TRAIN)))
    return changes


def describe_drift(tracked: Tracked, run: RunRecord | None) -> list[str]:
    """Say which packages and which code are others than when the run was made, where no key holds them."""
    was = tracked.registry.read_json(run.id, "environment.json") if run and tracked.registry else None
    if not was:
        return ["packages and code of the run were not recorded"] if run else []
    now = describe_environment()
    packages = [
        f"{name} {version} -> {now['packages'].get(name)}"
        for name, version in was["packages"].items()
        if now["packages"].get(name) != version
    ]
    packages = [name for name, digest in was["code"].items() if now["code"].get(name) != digest]
    notes = [f"packages differ from the run's: {', '.join(packages)}"] if packages else []
    return notes + ([f"code differs from the run's, and results stored before are still found: {', '.join(packages)}"] if packages else [])


def check_prefect(config: RunConfig, run: RunRecord | None, notes: list[str]) -> list[Change]:
    """Compare Prefect's copy of the lineage with the tags, where an API answers; say so where none does."""
    flow_run = run.tags.get("prefect.flow_run_id") if run else None
    if run is None or flow_run is None:
        return []
    up = find_up(config)
    api = (up.api if up else read_environment().get("PREFECT_API_URL") or "").rstrip("/")
    if not api or not answers(f"{api}/health", elsewhere=True):
        notes.append("no Prefect API answers: its copy of the lineage was not compared")
        return []
    from flows.stages.artifacts import read_lineage

    with client_of(config, api) as client:
        shown = read_lineage(client, flow_run)
    if shown is None:
        notes.append(f"Prefect has no lineage of flow run {flow_run}")
        return []
    return [Change("run", run.id, "Prefect's artifact", how, ()) for how in differences(shown, lineage_tags(run.tags))]
