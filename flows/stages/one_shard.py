"""Play one shard of an evaluation where this process runs; imports neither MLflow nor the other stages."""

import socket

from flows.runtime.device import device
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.config.section import ConfigSection
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.shards import EvaluationTarget, Shard, has_shard, play_evaluation
from tasks.child import in_child
from tasks.progress import Progress


class ShardRequest(ConfigSection):
    """One shard of an evaluation; workers find its inputs in the data directory that they share."""

    key: str
    """Content key of the whole evaluation."""
    digest: str
    """Directory of the corpus."""
    index_key: str
    name: str
    """The policy's name in tables."""
    policy: PolicyConfig
    shard: Shard
    """Questions of this shard."""


def play_shard(request: ShardRequest, config: RunConfig) -> dict[str, object]:
    """Hold the device and play a shard, or find its stored rows; also for a shard that no worker takes."""
    shard, spec = request.shard, PolicySpec(request.name, request.policy)
    with device(config.train):
        found = has_shard(config.paths.evals, request.key, shard)
        if not found:
            with Progress(f"evaluate {spec.name}, shard {shard.name}", "questions") as progress:
                target = EvaluationTarget(request.key, shard)
                in_child(play_evaluation, target, spec, request.digest, request.index_key, config, progress=progress)
    return {"n": shard.stop - shard.start, "found": found, "host": socket.gethostname()}
