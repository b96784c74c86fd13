"""The flow `evaluate-shard`: play one shard of an evaluation and store its rows. `flows/stages/sharding.py` starts it; people need not."""

from prefect import flow

from flows.cli.settings import load_config
from flows.ops.device import device
from flows.ops.worker_secrets import settle
from slmsearch.config import RunConfig
from tasks.shards import ShardRequest, fetch_inputs, give_back, play_shard

DEFAULTS = RunConfig()
"""Not that of `pipeline.py`, which loads MLflow: a shard has no run of its own there."""


@flow(name="evaluate-shard", flow_run_name="shard-{request.shard.name}", persist_result=True, result_serializer="json")
def evaluate_shard(request: ShardRequest, config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Play a shard, or find it played; return how many questions it has and where it was played."""
    if config.evaluate.shard_url:  # else all machines see the same directory
        config = config.model_copy(update={"paths": load_config().paths})
    return play_requested(request, settle(config, ("nightly.",)))


def play_requested(request: ShardRequest, config: RunConfig) -> dict[str, object]:
    """Fetch what is needed, hold the device, play, and give the rows back; also for a shard that no worker takes."""
    url = config.evaluate.shard_url
    policy = fetch_inputs(request, url, config.paths) if url else request.policy
    with device(config.train):
        played = play_shard(request, policy, config)
    if url:
        give_back(request, url, config.paths.evals)
    return played
