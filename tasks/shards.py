"""Play one shard of an evaluation, and exchange by URL what it takes and gives where machines share no data directory."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from slmsearch.artifacts.sharing import fetch, forget, is_shared, share
from slmsearch.config import RunConfig
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_sources
from slmsearch.evaluate.shards import Shard, has_shard, merge_shards, play_evaluation, remove_shards, shards_dir
from slmsearch.evaluate.store import write_evaluation
from slmsearch.learn.models import model_hash
from slmsearch.retrieval.upkeep import pull_version, push_version
from tasks.child import in_child
from tasks.evaluate import questions_of
from tasks.paths import corpora_dir, evals_dir, index_dir, shared_models_dir
from tasks.progress import Progress

CORPORA, INDEXES, MODELS, SHARDS = "corpora", "indexes", "models", "shards"
"""Folders under `evaluate.shard_url`."""


def play_shard(key: str, shard: Shard, spec: PolicySpec, digest: str, index_key: str, config: RunConfig) -> dict[str, Any]:
    """Play a shard and store it, or find it; return its number of questions, its seconds and the machine.

    Args:
        key: content key of the whole evaluation.
        shard: part of its questions.
        spec: policy.
        digest: corpus.
        index_key: index version.
        config: run.
    """
    found = has_shard(evals_dir(config), key, shard)
    if not found:
        with Progress(f"evaluate {spec.name}, shard {shard.name}", "questions") as progress:
            in_child(play_evaluation, spec, digest, index_key, config, shard, progress=progress)
    return {"n": shard.stop - shard.start, "found": found, "host": socket.gethostname()}


def merge(key: str, shards: list[Shard], spec: PolicySpec, digest: str, index_key: str, config: RunConfig) -> None:
    """Store the whole evaluation from its shards, and remove them.

    Raises:
        EvaluationError: as for `merge_shards`.
    """
    questions, evals = questions_of(digest, config), evals_dir(config)
    whole = merge_shards(evals, key, shards, questions, config.decision.max_failed_frac)
    write_evaluation(evals, key, whole, eval_sources(questions, index_key, spec, config), digest)
    remove_shards(evals, key)
    if url := config.evaluate.shard_url:
        for shard in shards:
            forget(url, _shared_name(key, shard))


def share_inputs(digest: str, index_key: str, spec: PolicySpec, config: RunConfig) -> dict[str, str]:
    """Put corpus, index version, model and adapter under the URL; return the names of the last two.

    Raises:
        ServiceError, IndexUnusableError: the storage refuses.
    """
    url = config.evaluate.shard_url
    names = {"model_hash": "", "adapter_hash": ""}
    if url is None or spec.policy is None:
        return names
    share(corpora_dir(config) / digest, url, f"{CORPORA}/{digest}")
    if index_key:
        push_version(index_dir(config), index_key, f"{url.rstrip('/')}/{INDEXES}")
    for name, place in (("model_hash", spec.policy.model), ("adapter_hash", spec.policy.adapter)):
        if place and Path(place).is_dir():
            names[name] = model_hash(place)
            share(Path(place), url, f"{MODELS}/{names[name]}")
    return names


def fetch_inputs(digest: str, index_key: str, spec: PolicySpec, model: str, adapter: str, config: RunConfig) -> PolicySpec:
    """Fetch what a shard is played with from the URL; return the policy as it lies here.

    Raises:
        ServiceError, IndexUnusableError: something is not there, or not what its name says.
    """
    url = str(config.evaluate.shard_url)
    fetch(url, f"{CORPORA}/{digest}", corpora_dir(config) / digest)
    if index_key:
        pull_version(index_dir(config), index_key, f"{url.rstrip('/')}/{INDEXES}")
    places = {}
    for field, name in (("model", model), ("adapter", adapter)):
        if name:
            places[field] = str(shared_models_dir(config) / name)
            fetch(url, f"{MODELS}/{name}", Path(places[field]))
    policy = spec.policy.model_copy(update=places) if spec.policy else None
    return replace(spec, policy=policy)


def give_back(key: str, shard: Shard, config: RunConfig) -> None:
    """Put a played shard under the URL.

    Raises:
        ServiceError: the storage refuses.
    """
    share(shards_dir(evals_dir(config), key) / shard.name, str(config.evaluate.shard_url), _shared_name(key, shard))


def collect(key: str, shard: Shard, config: RunConfig) -> bool:
    """Say whether a shard is played, fetching it where only the URL has it.

    Raises:
        ServiceError: the storage refuses, or its copy is damaged.
    """
    here = has_shard(evals_dir(config), key, shard)
    url = config.evaluate.shard_url
    if here or url is None or not is_shared(url, _shared_name(key, shard)):
        return here
    place = shards_dir(evals_dir(config), key) / shard.name
    return fetch(url, _shared_name(key, shard), place, lambda _: has_shard(evals_dir(config), key, shard))


def _shared_name(key: str, shard: Shard) -> str:
    return f"{SHARDS}/{key}-{shard.name}"
