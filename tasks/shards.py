"""Play one shard of an evaluation, and exchange by URL what it takes and gives where machines share no data directory."""

import socket
from pathlib import Path

from slmsearch.artifacts.sharing import fetch, forget, is_shared, share
from slmsearch.config import PathsConfig, PolicyConfig, RunConfig
from slmsearch.config.sections import Section
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_sources
from slmsearch.evaluate.shards import Shard, Target, has_shard, merge_shards, play_evaluation, remove_shards, shards_dir
from slmsearch.evaluate.store import write_evaluation
from slmsearch.learn.models import model_hash
from slmsearch.retrieval.upkeep import pull_version, push_version
from tasks.child import in_child
from tasks.data import Data
from tasks.evaluate import questions_of
from tasks.progress import Progress

CORPORA, INDEXES, MODELS, SHARDS = "corpora", "indexes", "models", "shards"
"""Folders under `evaluate.shard_url`."""


class ShardRequest(Section):
    """Which shard of which evaluation; all of it content keys and names, so that any machine can play it."""

    key: str
    """Content key of the whole evaluation."""
    digest: str
    """Corpus."""
    index_key: str
    name: str
    """The policy's name in tables."""
    policy: PolicyConfig
    """Its model and adapter; what is a directory where the evaluation was started is found by the hashes below where that is elsewhere."""
    model_hash: str = ""
    """Name of a shared copy of the model; empty where it is no directory."""
    adapter_hash: str = ""
    """Name of a shared copy of the adapter; empty where there is none."""
    shard: Shard
    """Its part of the questions."""


def play_shard(request: ShardRequest, policy: PolicyConfig, config: RunConfig) -> dict[str, object]:
    """Play a shard with the policy as it lies here and store it, or find it; return its number of questions and the machine."""
    shard, spec = request.shard, PolicySpec(request.name, policy)
    found = has_shard(config.paths.evals, request.key, shard)
    if not found:
        with Progress(f"evaluate {spec.name}, shard {shard.name}", "questions") as progress:
            in_child(play_evaluation, Target(request.key, shard), spec, request.digest, request.index_key, config, progress=progress)
    return {"n": shard.stop - shard.start, "found": found, "host": socket.gethostname()}


def merge(key: str, shards: list[Shard], spec: PolicySpec, data: Data, config: RunConfig) -> None:
    """Store the whole evaluation from its shards, and remove them.

    Raises:
        EvaluationError: as for `merge_shards`.
    """
    questions, evals = questions_of(data.digest, config), config.paths.evals
    whole = merge_shards(evals, key, shards, questions, config.decision.max_failed_frac)
    write_evaluation(evals, key, whole, eval_sources(questions, data.index_key, spec, config), data.digest)
    remove_shards(evals, key)
    if url := config.evaluate.shard_url:
        for shard in shards:
            forget(url, _shared_name(key, shard))


def share_inputs(data: Data, policy: PolicyConfig, config: RunConfig) -> dict[str, str]:
    """Put corpus, index version, model and adapter under the URL, if there is one; return the names of the last two.

    Raises:
        ServiceError, IndexUnusableError: the storage refuses.
    """
    url, names = config.evaluate.shard_url, dict[str, str]()
    if url is None:
        return names
    share(config.paths.corpora / data.digest, url, f"{CORPORA}/{data.digest}")
    if data.index_key:
        push_version(config.paths.index, data.index_key, f"{url.rstrip('/')}/{INDEXES}")
    for name, place in (("model_hash", policy.model), ("adapter_hash", policy.adapter)):
        if place and Path(place).is_dir():
            names[name] = model_hash(place)
            share(Path(place), url, f"{MODELS}/{names[name]}")
    return names


def fetch_inputs(request: ShardRequest, url: str, paths: PathsConfig) -> PolicyConfig:
    """Fetch what a shard is played with from the URL; return the policy as it lies here.

    Raises:
        ServiceError, IndexUnusableError: something is not there, or not what its name says.
    """
    fetch(url, f"{CORPORA}/{request.digest}", paths.corpora / request.digest)
    if request.index_key:
        pull_version(paths.index, request.index_key, f"{url.rstrip('/')}/{INDEXES}")
    places = {}
    for field, name in (("model", request.model_hash), ("adapter", request.adapter_hash)):
        if name:
            places[field] = str(paths.shared_models / name)
            fetch(url, f"{MODELS}/{name}", Path(places[field]))
    return request.policy.model_copy(update=places)


def give_back(request: ShardRequest, url: str, evals: Path) -> None:
    """Put a played shard under the URL.

    Raises:
        ServiceError: the storage refuses.
    """
    share(shards_dir(evals, request.key) / request.shard.name, url, _shared_name(request.key, request.shard))


def collect(key: str, shard: Shard, config: RunConfig) -> bool:
    """Say whether a shard is played, fetching it where only the URL has it.

    Raises:
        ServiceError: the storage refuses, or its copy is damaged.
    """
    here = has_shard(config.paths.evals, key, shard)
    url = config.evaluate.shard_url
    if here or url is None or not is_shared(url, _shared_name(key, shard)):
        return here
    place = shards_dir(config.paths.evals, key) / shard.name
    return fetch(url, _shared_name(key, shard), place, lambda _: has_shard(config.paths.evals, key, shard))


def _shared_name(key: str, shard: Shard) -> str:
    return f"{SHARDS}/{key}-{shard.name}"
