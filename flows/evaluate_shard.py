"""The flow `evaluate-shard`: play one shard of an evaluation and store its rows. `flows/stages/sharding.py` starts it, not a person."""

from prefect import flow

from flows.runtime.worker_secrets import settle
from flows.stages.one_shard import ShardRequest, play_shard
from slmsearch.config import RunConfig

DEFAULTS = RunConfig()
"""Parameters of a flow run without any; not those of `pipeline.py`, which loads MLflow: a shard has no MLflow run of its own."""


@flow(name="evaluate-shard", flow_run_name="shard-{request.shard.name}", persist_result=True, result_serializer="json")
def evaluate_shard(request: ShardRequest, config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Play a shard, or find its stored rows; return its number of questions and where it was played.

    Args:
        request: shard, as the evaluation that starts it writes it.
        config: settings of that evaluation.
    """
    return play_shard(request, settle(config, ("nightly.",)))
