"""Play one shard of an evaluation, or of gold demonstrations, where this process runs; imports neither MLflow nor the other stages."""

import socket
from pathlib import Path

from flows.runtime.device import device
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.config.section import ConfigSection
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.shards import EvaluationTarget, Shard, has_shard, play_evaluation
from slmsearch.training.gold_parts import GoldParts, has_gold, store_gold
from tasks.child import in_child
from tasks.progress import Progress


class ShardRequest(ConfigSection):
    """One shard of an evaluation or of gold demonstrations; workers find its inputs in the data directory that they share."""

    key: str
    """Content key of the whole evaluation, or of all demonstrations."""
    digest: str
    """Directory of the corpus."""
    index_key: str
    name: str
    """The policy's name in tables."""
    policy: PolicyConfig | None
    """The policy; None: gold demonstrations."""
    shard: Shard
    """Questions of this shard."""


def is_played(request: ShardRequest, evals_dir: Path) -> bool:
    """Return whether a shard is stored."""
    return (has_shard if request.policy else has_gold)(evals_dir, request.key, request.shard)


def play_shard(request: ShardRequest, config: RunConfig) -> dict[str, object]:
    """Hold the device and play a shard, or find it stored; also for a shard that no worker takes."""
    shard, spec = request.shard, PolicySpec(request.name, request.policy)
    with device(config.train):
        found = is_played(request, config.paths.evals)
        if not found and request.policy is None:
            in_child(store_gold, GoldParts(config, request.digest), request.index_key, request.key, shard)
        elif not found:
            with Progress(f"evaluate {spec.name}, shard {shard.name}", "questions") as progress:
                target = EvaluationTarget(request.key, shard)
                in_child(play_evaluation, target, spec, request.digest, request.index_key, config, progress=progress)
    return {"n": shard.stop - shard.start, "found": found, "host": socket.gethostname()}
