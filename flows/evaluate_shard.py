"""The flow `evaluate-shard`: play one shard of an evaluation and store its rows. `flows/stages/sharding.py` starts it; people need not."""

from typing import Any

from prefect import flow

from flows.cli.settings import find_project_root, load_config, read_environment, resolve_paths
from flows.ops.device import device
from flows.ops.process_environment import prepare_process_environment
from flows.ops.worker_secrets import with_own_secrets
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.config.sections import Section
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.shards import Shard
from tasks.shards import fetch_inputs, give_back, play_shard

DEFAULTS = RunConfig()
"""Not that of `pipeline.py`, which loads MLflow: a shard has no run of its own there."""


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


@flow(name="evaluate-shard", flow_run_name="shard-{request.shard.name}", persist_result=True, result_serializer="json")
def evaluate_shard(request: ShardRequest, config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Play a shard, or find it played; return how many questions it has and where it was played."""
    config = with_own_secrets(where_this_machine_keeps_things(config), unused=("nightly.",))
    prepare_process_environment(config, read_environment())
    return play_requested(request, config)


def play_requested(request: ShardRequest, config: RunConfig) -> dict[str, Any]:
    """Fetch what is needed, hold the device, play, and give the rows back; also for a shard that no worker takes."""
    spec = PolicySpec(request.name, request.policy)
    if config.evaluate.shard_url:
        spec = fetch_inputs(request.digest, request.index_key, spec, request.model_hash, request.adapter_hash, config)
    with device(config):
        played = play_shard(request.key, request.shard, spec, request.digest, request.index_key, config)
    if config.evaluate.shard_url:
        give_back(request.key, request.shard, config)
    return played


def where_this_machine_keeps_things(config: RunConfig) -> RunConfig:
    """Take the paths of this machine where machines exchange things by URL; else all of them see the same directory."""
    config = resolve_paths(config, find_project_root())
    return config.model_copy(update={"paths": load_config().paths}) if config.evaluate.shard_url else config
