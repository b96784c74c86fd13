"""Verdict and record of a night: its inputs, its references, and the files it is written to."""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import EvaluateConfig, PathsConfig, RunConfig, TrackingConfig
from slmsearch.corpus.store import read_manifest
from slmsearch.environments.registry import environment_of
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.nightly import Scores, questions_key, scores_of
from slmsearch.evaluate.nights import ADAPTER, Night, PlayedSet, Promotion, judge_night, load_nights, save_night
from slmsearch.evaluate.policies import PolicySpec, describe_policy
from slmsearch.evaluate.store import load_rows
from slmsearch.keys import content_key
from slmsearch.retrieval.versions import read_version
from tasks.corpus_data import Data
from tasks.environment import describe_environment
from tasks.promotion import Champion, promotion_evaluation
from tasks.tracking import open_tracker
from tasks.tracking.champions import PROMOTION_EVAL


def nights_dir(paths: PathsConfig, tracking: TrackingConfig) -> Path:
    """Return the directory of the records of a model's nights."""
    return paths.nights / re.sub(r"[^\w.-]+", "-", tracking.registered_model)


def name_night(date: str, spec: PolicySpec, settings: Mapping[str, object], evaluate: EvaluateConfig) -> str:
    """Name a night by its date and its inputs: another adapter, settings, packages or code give another night of the same date."""
    played_with = {"policy": describe_policy(spec, evaluate), "settings": dict(settings), "environment": describe_environment()}
    return f"{date}-{content_key(**played_with)[:8]}"


def accept_night(folder: Path, name: str, reason: str, by: str) -> Night:
    """Accept a regressed night as the new reference: later nights are compared with it.

    Raises:
        EvaluationError: there is no such night, or it is green.
    """
    nights, _ = load_nights(folder)
    found = [night for night in nights if night.night.startswith(name)] if name else []
    if len(found) != 1:
        shown = ", ".join(night.night for night in (found or nights)[:5]) or "none yet"
        raise EvaluationError(f"{name!r} names {len(found)} nights; give one of {shown}")
    if found[0].is_green:
        raise EvaluationError(f"night {found[0].night} is green already: there is nothing to accept")
    accepted = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "by": by, "reason": reason}
    night = replace(found[0], accepted=accepted)
    save_night(folder, night)
    return night


@task(name="judge-night", cache_policy=NO_CACHE)
def judge_night_task(
    spec: PolicySpec, keys: dict[str, str], make: dict[str, str], champion: dict[str, str] | None, ids: dict[str, str], config: RunConfig
) -> dict[str, object]:
    """Compare a night with the nights before it and with the promotion; write and return its record.

    Args:
        spec: sets that were played, and the night.
        keys: evaluations by set, `fixed` and perhaps `fresh`.
        make: inputs of the evaluations.
        champion: version and tags; None if the policy is no champion.
        ids: ids of the run in the trackers.
        config: settings of the run.
    """
    metric = config.decision.metric
    sets = {name: load_rows(config.paths.evals / key) for name, key in keys.items()}
    scores = {name: scores_of(rows, metric) for name, rows in sets.items()}
    played = {
        name: PlayedSet(keys[name], questions_key(rows), len(scores[name].ids), len(rows) - len(scores[name].ids), scores[name].summarise())
        for name, rows in sets.items()
    }
    folder, model = nights_dir(config.paths, config.tracking), config.tracking.registered_model
    nights, notes = load_nights(folder)
    promoted = Champion(open_tracker(config.paths, config.tracking), model, champion) if champion else None
    promotion = load_promotion(promoted, config.paths.evals, metric, notes) if promoted else None
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    accepted = next((known.accepted for known in nights if known.night == spec.night), {})
    found = Night(spec.night, at, "green", spec.name, metric, make, played["fixed"], played.get("fresh"))
    found = replace(found, notes=tuple(notes), ids=ids, accepted=accepted)

    def load(key: str) -> Scores:
        return scores_of(load_rows(config.paths.evals / key), metric)

    judged = judge_night(nights, found, scores["fixed"], load, promotion, config.nightly)
    save_night(folder, judged)
    return judged.to_dict()


def load_promotion(champion: Champion, evals: Path, metric: str, notes: list[str]) -> Promotion | None:
    """Load the evaluation that the champion was promoted by, and its recorded inputs; None if no evaluation is recorded or stored."""
    tracker, of_version = champion.tracker, (champion.model, champion.version)
    key = champion.tags.get(PROMOTION_EVAL) or promotion_evaluation(tracker, *of_version)
    if not key:
        return None
    try:
        rows = load_rows(evals / key)
    except EvaluationError as error:
        notes.append(f"the evaluation of the promotion, {key}: {error}")
        return None
    run = tracker.maker_run(*of_version)
    known = tracker.read_json(run, "environment.json") if run else None
    tags = {"data.corpus": champion.tags.get("slmsearch.data_digest"), "index.key": champion.tags.get("slmsearch.index_key")}
    make = {name: value for name, value in tags.items() if value} | _flat_environment(known or {})
    return Promotion(key, questions_key(rows), scores_of(rows, metric), make)


def describe_make(data: Data, spec: PolicySpec, version: str | None, settings: Mapping[str, object], config: RunConfig) -> dict[str, str]:
    """Return the inputs of a night, from the manifests and this process, under dotted names.

    `version` is that of the champion, None if the policy is none; `settings` are those that decide how it plays.
    """
    corpus, policy = read_manifest(config.paths.corpora / data.digest), describe_policy(spec, config.evaluate)
    make: dict[str, object] = {
        ADAPTER: content_key(policy=policy),
        **{f"adapter.{name}": value for name, value in policy.items()},
        "adapter.version": version,
        "data.corpus": data.digest,
        "data.pages": corpus.pages_digest,
        "data.questions": corpus.questions_digest,
        "prompt.text": content_key(messages=[dict(message) for message in environment_of(config).opening("")]),
        **{f"settings.{name}": value for name, value in settings.items()},
        **_flat_environment(describe_environment()),
        "machine.host": socket.gethostname(),
    }
    if data.index_key:
        index = read_version(config.paths.index, data.index_key)
        make |= {"index.key": data.index_key, "index.embedder": f"{index.embedder_id}@{index.embedder_revision}"}
        make |= {"index.chunker": index.chunker_version, "index.lexical": index.lexical_version, "index.passages": index.passages}
    return {name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in make.items() if value is not None}


def _flat_environment(found: Mapping[str, Any]) -> dict[str, str]:
    flat = {f"machine.{name}": str(found[name]) for name in ("python", "machine") if name in found}
    for part in ("packages", "code"):
        flat |= {f"{part}.{name}": str(value) for name, value in found.get(part, {}).items()}
    return flat
