"""The flow `evaluate-shard`: play and store a shard of an evaluation, or of demonstrations. `flows/stages/sharding.py` starts it, not a
person."""

from prefect import flow

from flows.runtime.worker_secrets import settle
from flows.stages.one_shard import ShardRequest, play_shard
from slmsearch.config import RunConfig

DEFAULTS = RunConfig()
"""Parameters of a flow run without any; not those of `pipeline.py`, which loads MLflow: a shard has no MLflow run of its own."""


@flow(name="evaluate-shard", flow_run_name="shard-{request.shard.name}", persist_result=True, result_serializer="json")
def evaluate_shard(request: ShardRequest, config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Play a shard, or find it stored; return its number of questions and where it was played.

    Args:
        request: shard, as what starts it writes it.
        config: settings of the evaluation or the training.
    """
    return play_shard(request, settle(config, ("nightly.",)))
