"""What is in use: what no housekeeping may delete, and for which reason.

In use are: what `CURRENT` points to; whatever the lineage of a promoted (aliased) model version names, with all runs of the flow that
made it; the newest model versions beside; the last green nights; whatever a live run has touched, and everything written since the
oldest of them began; training directories that a process holds; and directories the configuration names. What those were made from is
in use, too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.corpus.store import MANIFEST as CORPUS_MANIFEST
from slmsearch.errors import IndexUnusableError
from slmsearch.evaluate.nights import load_nights
from slmsearch.learn.files import JOB
from slmsearch.learn.files import MANIFEST as TRAINING_MANIFEST
from slmsearch.learn.launch import is_held
from slmsearch.retrieval.versions import current_key, read_version
from tasks.paths import NIGHTS, corpora_dir, evals_dir, index_dir, training_dir, trainings_dir
from tasks.tracking import PREFIX, RunRecord, RunRegistry, VersionRecord, open_run_registry

KEPT_VERSIONS = 3
"""Newest versions of each registered model that count as in use without an alias."""

KEPT_NIGHTS = 5
"""Green nights of each model whose rows stay, at least."""

Reasons = dict[str, str]
"""Key -> why it is in use."""


@dataclass
class InUse:
    """Keys in use by kind, each with the first reason found."""

    corpora: Reasons = field(default_factory=dict)
    indexes: Reasons = field(default_factory=dict)
    evals: Reasons = field(default_factory=dict)
    trainings: Reasons = field(default_factory=dict)
    """By name of the directory: a train key, `control-<key>` or `sft-<key>`."""
    runs: Reasons = field(default_factory=dict)
    """MLflow runs."""

    def keep(self, kind: str, keys: Iterable[str], why: str) -> None:
        """Note keys of a kind (a field's name) as in use."""
        known: Reasons = getattr(self, kind)
        for key in keys:
            if key:
                known.setdefault(key, why)


def in_use(config: RunConfig, kept_versions: int = KEPT_VERSIONS, used_since: float | None = None) -> InUse:
    """Say what is in use under the data directory and in the MLflow store of a configuration.

    Args:
        config: says where both lie.
        kept_versions: newest versions of each registered model kept beside those with an alias.
        used_since: what a run that began later (seconds since the epoch) touched counts as in use; None: only what live runs touch.

    Raises:
        ServiceError: the store cannot be read; then nothing may be deleted.
    """
    used = InUse()
    registry = open_run_registry(config)
    runs = registry.runs() if registry else []
    _keep_current(used, config)
    _keep_versions(used, runs, _chosen_versions(registry, kept_versions) if registry else [])
    _keep_nights(used, config)
    _keep_live(used, config, runs)
    if used_since is not None:
        _keep_touched(used, [run for run in runs if run.started_s >= used_since], "a run touched it lately")
    _keep_held(used, config)
    _keep_configured(used, config)
    _close(used, config)
    return used


def index_keys_in_use(config: RunConfig) -> set[str]:
    """Return the keys of index versions in use, for pruning the others."""
    return set(in_use(config).indexes)


def _keep_current(used: InUse, config: RunConfig) -> None:
    if (key := current_key(index_dir(config))) is not None:
        used.keep("indexes", [key], "CURRENT points to it")


def _chosen_versions(registry: RunRegistry, kept: int) -> list[tuple[VersionRecord, str]]:
    """Choose the versions that count, each with the reason; the newest first."""
    chosen, counts = [], dict[str, int]()
    for version in registry.versions():
        counts[version.name] = counts.get(version.name, 0) + 1
        if version.aliases:
            chosen.append((version, f"{version.label} is {', '.join(version.aliases)}"))
        elif counts[version.name] <= kept:
            chosen.append((version, f"{version.label} is among the newest {kept}"))
    return sorted(chosen, key=lambda item: not item[0].aliases)


def _keep_versions(used: InUse, runs: list[RunRecord], versions: list[tuple[VersionRecord, str]]) -> None:
    by_id = {run.id: run for run in runs}
    for version, why in versions:
        _keep_tags(used, version.tags, why)
        maker = by_id.get(version.run_id)
        top = (maker.parent or maker.id) if maker else version.run_id
        for run in runs:
            if top and top in (run.id, run.parent):
                used.keep("runs", [run.id], why)
                _keep_tags(used, run.tags, why)
        used.keep("runs", [version.run_id], why)


def _keep_nights(used: InUse, config: RunConfig) -> None:
    """Keep the rows that the next nights are compared with."""
    for folder in children(Path(config.paths.mlruns_dir) / NIGHTS):
        green = [night for night in load_nights(folder)[0] if night.is_green]
        for night in green[: max(config.nightly.green_nights, KEPT_NIGHTS)]:
            used.keep("evals", [night.fixed.eval_key], f"the next nights are compared with night {night.night}")


def _keep_tags(used: InUse, tags: Mapping[str, str], why: str) -> None:
    """Note what lineage tags name."""
    for tag, value in tags.items():
        name = tag.removeprefix(PREFIX)
        if name == tag:
            continue
        if name == "data_digest":
            used.keep("corpora", [value], why)
        elif name == "index_key":
            used.keep("indexes", [value], why)
        elif name.startswith("eval_key"):
            used.keep("evals", [value], why)
        elif name == "train_key":
            used.keep("trainings", [value], why)
        elif name in ("control_key", "sft_key"):
            used.keep("trainings", [f"{name.removesuffix('_key')}-{value}"], why)


def _keep_live(used: InUse, config: RunConfig, runs: list[RunRecord]) -> None:
    live = [run for run in runs if run.is_live]
    tops = {run.parent or run.id for run in live}
    _keep_touched(used, [run for run in runs if run.id in tops or run.parent in tops], "a live run touched it")
    if live:
        began = min(run.started_s for run in live)
        for kind, parent in parents(config).items():
            used.keep(kind, (path.name for path in children(parent) if _changed_s(path) >= began), "written since a live run began")


def _keep_touched(used: InUse, runs: list[RunRecord], why: str) -> None:
    """Note runs, what their tags name, and what they are making."""
    for run in runs:
        used.keep("runs", [run.id], why)
        _keep_tags(used, run.tags, why)
        if made := _made_by(run):
            used.keep(made[0], [made[1]], why)


def _made_by(run: RunRecord) -> tuple[str, str] | None:
    """Return kind and key of what a stage makes: while it runs there is no other trace of it."""
    stages = {"index": ("indexes", ""), "train": ("trainings", ""), "train-control": ("trainings", "control-"),
        "train-sft": ("trainings", "sft-")}  # fmt: skip
    kind, prefix = ("evals", "") if run.stage.startswith("evaluate-") else stages.get(run.stage, ("", ""))
    return (kind, f"{prefix}{run.key}") if kind else None


def _keep_held(used: InUse, config: RunConfig) -> None:
    held = (path.name for path in children(trainings_dir(config)) if is_held(path))
    used.keep("trainings", held, "a process trains in it")


def _keep_configured(used: InUse, config: RunConfig) -> None:
    named = (config.policy.model, config.policy.adapter, *config.evaluate.baselines)
    used.keep("trainings", (_training_of(config, name) for name in named), "the configuration names it")


def _training_of(config: RunConfig, name: str | None) -> str:
    """Return the training directory that a model's path lies in, empty if in none."""
    home = trainings_dir(config)
    path = Path(name) if name else Path()
    return path.relative_to(home).parts[0] if name and path.is_relative_to(home) and path != home else ""


def _close(used: InUse, config: RunConfig) -> None:
    """Add what the things in use were made from."""
    waiting = list(used.trainings)
    while waiting:
        name = waiting.pop()
        why = f"training {name} was made from it"
        job, manifest = (_read(training_dir(config, name) / file) for file in (JOB, TRAINING_MANIFEST))
        policy = job.get("config", {}).get("policy", {})
        for facts in (job, manifest):
            used.keep("corpora", [str(facts.get("corpus_digest", ""))], why)
            used.keep("indexes", [str(facts.get("index_key", ""))], why)
        for source in (policy.get("model"), policy.get("adapter")):
            if (start := _training_of(config, source)) and start not in used.trainings:
                used.keep("trainings", [start], why)
                waiting.append(start)
    for key in list(used.evals):
        used.keep("indexes", [str(_read(evals_dir(config) / key / "manifest.json").get("sources", {}).get("index_key", ""))],
            f"evaluation {key} was made from it")  # fmt: skip
    _keep_pages_of_indexes(used, config)


def _keep_pages_of_indexes(used: InUse, config: RunConfig) -> None:
    """Keep one corpus with the pages of each index in use, the newest where none is in use for itself."""
    holding: dict[str, list[Path]] = {}
    for corpus in sorted(children(corpora_dir(config)), key=_changed_s, reverse=True):
        holding.setdefault(str(_read(corpus / CORPUS_MANIFEST).get("pages_digest")), []).append(corpus)
    for key in used.indexes:
        try:
            corpora = holding.get(read_version(index_dir(config), key).pages_digest, [])
        except IndexUnusableError:
            continue
        if corpora and not any(corpus.name in used.corpora for corpus in corpora):
            used.keep("corpora", [corpora[0].name], f"index {key} was made from it")


def parents(config: RunConfig) -> dict[str, Path]:
    """Return where things of each kind lie."""
    return {
        "corpora": corpora_dir(config),
        "indexes": index_dir(config),
        "evals": evals_dir(config),
        "trainings": trainings_dir(config),
    }


def children(parent: Path) -> list[Path]:
    """Return the directories in a directory, those with staged work in them left out."""
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")) if parent.is_dir() else []


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was renamed to its place, or away, a moment ago
        return float("inf")


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
