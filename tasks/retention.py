"""Data in use: what housekeeping must not delete, and the reasons.

In use are: the target of `CURRENT`; everything in the lineage of a promoted (aliased) model version, with all runs of the flow that made
it; that of the champion before, to which a rollback returns; the newest model versions beside; the last green nights; everything that a
live run has touched, and everything written since the oldest of them began; training directories that a process holds; and directories that
the configuration names. The inputs of those are in use, too.
"""

from collections.abc import Iterable
from pathlib import Path

from slmsearch.artifacts.files import read_json
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.evaluate.nights import load_nights
from slmsearch.lineage.graph import Graph, Ref, homes, read_stored
from slmsearch.retrieval.versions import current_key
from slmsearch.training.launch import is_held
from tasks.lineage import made_by, named_by
from tasks.tracking import CHAMPION, RunRecord, RunRegistry, VersionRecord, open_run_registry
from tasks.tracking.champions import champion_before

KEPT_VERSIONS = 3
"""Newest versions of each registered model that count as in use without an alias."""
KEPT_NIGHTS = 5
"""Minimum number of green nights of each model whose rows stay."""
FIELDS = {"corpus": "corpora", "index": "indexes", "eval": "evals", "training": "trainings", "run": "runs"}
"""Kind in a lineage -> field of this kind in `InUse`."""

InUse = dict[str, dict[str, str]]
"""Data in use, by the names in `FIELDS`: key -> the first reason found. Trainings go by their directory: a train key, `control-<key>`
or `sft-<key>`; runs are MLflow's.
"""


def _keep(used: InUse, refs: Iterable[Ref], why: str) -> None:
    """Mark things as in use; things of other kinds are never deleted."""
    for ref in refs:
        if ref.key and ref.kind in FIELDS:
            used[FIELDS[ref.kind]].setdefault(ref.key, why)


def _keep_runs(used: InUse, runs: Iterable[RunRecord], why: str) -> None:
    """Mark runs, the things their tags name, and their unfinished results."""
    for run in runs:
        made = made_by(run)
        _keep(used, [Ref("run", run.id), *named_by(run.tags), *([made] if made else [])], why)


def in_use(config: RunConfig, kept_versions: int = KEPT_VERSIONS, used_since: float | None = None) -> InUse:
    """Return the data in use under the data directory and in the MLflow store of a configuration.

    Args:
        config: names both places.
        kept_versions: newest versions of each registered model kept beside those with an alias.
        used_since: time in seconds since the epoch; data touched by a later run are in use. None: only data of live runs.

    Raises:
        ServiceError: the store cannot be read; then nothing may be deleted.
    """
    used: InUse = {name: {} for name in FIELDS.values()}
    registry = open_run_registry(config.paths, config.tracking)
    runs = registry.runs() if registry else []
    _keep(used, [Ref("index", current_key(config.paths.index) or "")], "CURRENT points to it")
    for version, why in _chosen_versions(registry, kept_versions) if registry else ():
        _keep(used, [Ref("run", version.run_id), *named_by(version.tags)], why)
        _keep_runs(used, _family(version.run_id, runs), why)
    for folder in children(config.paths.nights):
        green = [night for night in load_nights(folder)[0] if night.is_green]
        for night in green[: max(config.nightly.green_nights, KEPT_NIGHTS)]:
            _keep(used, [Ref("eval", night.fixed.eval_key)], f"the next nights are compared with night {night.night}")
    for record in sorted(Path(config.paths.data_dir).glob("live/*.json")):
        state = read_json(record)
        refs = (Ref("corpus", state["served"]["digest"]), Ref("index", state["served"]["key"]), Ref("corpus", state["known"]))
        _keep(used, refs, f"{record} serves it")
    for name, recorded in (registry.all_documents() if registry else {}).items():
        digest, key, *_ = [*recorded.split(), "", ""]
        _keep(used, (Ref("corpus", digest), Ref("index", key)), f"{name} answers from it")
    _keep_live(used, config.paths, runs)
    if used_since is not None:
        _keep_runs(used, (run for run in runs if (run.ended_s or run.started_s) >= used_since), "a run touched it lately")
    held = (path.name for path in children(config.paths.training) if is_held(path))
    _keep(used, (Ref("training", name) for name in held), "a process trains in it")
    evaluate, learn = config.evaluate, config.learn
    named = (config.policy.model, config.policy.adapter, learn.adapter, learn.writer, learn.reader, evaluate.policy, *evaluate.baselines)
    _keep(used, (training_of(config.paths, name) for name in named), "the configuration names it")
    _close(used, config.paths, read_stored(config.paths))
    return used


def _chosen_versions(registry: RunRegistry, kept: int) -> list[tuple[VersionRecord, str]]:
    """Return the versions that count as in use, each with the reason; those with an alias first."""
    chosen, counts, versions = [], dict[str, int](), registry.versions()
    champions = (version for version in versions if CHAMPION in version.aliases)
    before = {f"{one.name}/{champion_before(registry.home, one.name, one.version, one.tags)}" for one in champions}
    for version in versions:
        counts[version.name] = counts.get(version.name, 0) + 1
        if version.aliases:
            chosen.append((version, f"{version.label} is {', '.join(version.aliases)}"))
        elif version.label in before:
            chosen.append((version, f"a rollback returns to {version.label}"))
        elif counts[version.name] <= kept:
            chosen.append((version, f"{version.label} is among the newest {kept}"))
    return sorted(chosen, key=lambda item: not item[0].aliases)


def _family(run_id: str, runs: list[RunRecord]) -> list[RunRecord]:
    """Return all runs of the flow that a run belongs to."""
    top = next((run.parent or run.id for run in runs if run.id == run_id), run_id)
    return [run for run in runs if top and top in (run.id, run.parent)]


def _keep_live(used: InUse, paths: PathsConfig, runs: list[RunRecord]) -> None:
    live = [run for run in runs if run.is_live]
    for run in live:
        _keep_runs(used, _family(run.id, runs), "a live run touched it")
    began = min((run.started_s for run in live), default=float("inf"))
    for kind, parent in homes(paths).items():
        written = (Ref(kind, path.name) for path in children(parent) if live and changed_s(path) >= began)
        _keep(used, written, "written since a live run began")


def training_of(paths: PathsConfig, name: str | None) -> Ref:
    """Return the training of a model's path; one without a key if the path is in none."""
    home, path = paths.training, Path(name or "")
    return Ref("training", path.relative_to(home).parts[0] if path.is_relative_to(home) and path != home else "")


def _close(used: InUse, paths: PathsConfig, graph: Graph) -> None:
    """Add the inputs of the things in use."""
    waiting = list(used["trainings"])
    while waiting:
        key = waiting.pop()
        node, settings = graph.nodes.get(("training", key)), dict[str, str]()
        refs = list(node.inputs) if node else []
        for ref in refs:
            if ref.kind == "config" and ref.name in graph.nodes:
                settings = dict(graph.nodes[ref.name].facts)
        starts = [training_of(paths, settings.get(name)) for name in ("policy.model", "policy.adapter")]
        waiting += [start.key for start in starts if start.key and start.key not in used["trainings"]]
        _keep(used, (*refs, *starts), f"training {key} was made from it")
    for key in list(used["evals"]):
        node = graph.nodes.get(("eval", key))
        _keep(used, (ref for ref in node.inputs if node and ref.kind == "index") if node else (), f"evaluation {key} was made from it")
    for key in used["indexes"]:
        node = graph.nodes.get(("index", key))
        corpora = [ref for ref in node.inputs if ref.kind == "corpus"] if node else []
        if corpora and not any(ref.key in used["corpora"] for ref in corpora):  # one corpus with its pages is enough, the newest
            newest = max(corpora, key=lambda ref: changed_s(paths.corpora / ref.key))
            _keep(used, [newest], f"index {key} was made from it")


def children(parent: Path) -> list[Path]:
    """Return the directories in a directory, without those that hold staged work."""
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")) if parent.is_dir() else []


def changed_s(path: Path) -> float:
    """Return the time of a path's last change, in seconds since the epoch; infinity if it was renamed a moment ago."""
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")
