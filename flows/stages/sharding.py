"""One evaluation, or the demonstrations of a start, on several workers, which share the data directory: submit the shards, follow them,
resubmit lost ones, merge.

A shard is lost when its flow run crashed, was cancelled with its worker, or is silent; played questions stay played, also when this
process is killed. This process plays a shard that no worker takes, so that a pool of one busy worker does not block.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Cancelling, Crashed

from flows.runtime.flow_errors import as_error
from flows.runtime.pool import POOL
from flows.runtime.worker_secrets import submitted
from flows.stages.one_shard import ShardRequest, is_played, play_shard
from flows.stages.pipeline import Pipeline
from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_sources
from slmsearch.evaluate.shards import Shard, merge_shards, remove_shards, split_shards
from slmsearch.evaluate.store import has_evaluation, write_evaluation
from slmsearch.foreign import cause_of
from slmsearch.training.gold_parts import GoldParts
from tasks.corpus_data import Data
from tasks.evaluate import questions_of
from tasks.reconcile import UNBEGUN_S, why_dead

DEPLOYMENT = "evaluate-shard/evaluate-shard"
POLL_SECONDS = 1.0
LOOK_SECONDS = 15.0
"""Time between two checks that a shard's run is alive."""
PATIENCE_SECONDS = 60.0
"""Time that a shard may wait while no other one runs, before this process plays it."""
START_SECONDS = {"process": 120.0}
"""Time limit for a worker, by pool type, to start a flow run it has fetched; else `UNBEGUN_S`: it may have to pull an image."""
ATTEMPTS = 4
"""Times a shard is submitted; a shard that is lost that often ends its workers, too."""


@dataclass
class Waiting:
    """A shard that this process does not know to be played."""

    shard: Shard
    run: FlowRun | None = None
    attempts: int = 0
    since: float = 0.0
    """Time of its last submission."""
    looked: float = 0.0
    """Time of the last check that it is alive."""


def play_in_shards(run: Pipeline, key: str, spec: PolicySpec, data: Data) -> None:
    """Play an evaluation of a policy with a model on the workers of the pool, and store it as one under its content key.

    Raises:
        ConfigError: this Prefect server knows no deployment that plays shards.
        SlmSearchError: the error that ended a shard.
    """
    config, evals = run.config, run.config.paths.evals
    questions = questions_of(data.digest, config.paths, config.evaluate)
    shards = split_shards(len(questions), config.evaluate.batch_size, config.evaluate.shards)
    assert spec.policy is not None
    policy = spec.policy.model_copy(update={"api_key": None})
    first = ShardRequest(key=key, digest=data.digest, index_key=data.index_key, name=spec.name, policy=policy, shard=shards[0])
    _distribute(run, first, shards)
    try:
        whole = merge_shards(evals, key, shards, questions, config.decision.max_failed_frac)
        write_evaluation(evals, key, whole, eval_sources(questions, data.index_key, spec, config, data.digest), data.digest)
    except EvaluationError:
        if not has_evaluation(evals, key):  # else another run was faster, and removed the shards
            raise
    remove_shards(evals, key)


def demonstrate_in_shards(run: Pipeline, key: str, data: Data) -> None:
    """Make the gold demonstrations of a key on the workers of the pool; `collect_gold` finds what they store.

    Raises:
        ConfigError, SlmSearchError: as for `play_in_shards`.
    """
    shards = GoldParts(run.config, data.digest).shards()
    first = ShardRequest(key=key, digest=data.digest, index_key=data.index_key, name="gold demonstrations", policy=None, shard=shards[0])
    _distribute(run, first, shards)


def _distribute(run: Pipeline, first: ShardRequest, shards: list[Shard]) -> None:
    with get_client(sync_client=True) as client:
        play = _Play(client, _find_deployment(client), run, first)
        try:
            play.until_done(shards)
        finally:
            play.cancel_rest()


def _find_deployment(client: SyncPrefectClient) -> UUID:
    try:
        return client.read_deployment_by_name(DEPLOYMENT).id
    except ObjectNotFound:
        raise ConfigError(
            f"evaluate.shards asks for workers, and this Prefect server has no deployment {DEPLOYMENT}: start `slmsearch up` (or "
            "`slmsearch ops deploy` and `slmsearch ops worker`), or set evaluate.shards to 1"
        ) from None


class _Play:
    """The shards of one evaluation while they are played."""

    def __init__(self, client: SyncPrefectClient, deployment: UUID, run: Pipeline, first: ShardRequest) -> None:
        self.client, self.deployment, self.config, self.first = client, deployment, run.config, first
        self.start_seconds = START_SECONDS.get(client.read_work_pool(POOL).type, UNBEGUN_S)
        self.waiting: list[Waiting] = []
        self.log = get_run_logger()

    def until_done(self, shards: list[Shard]) -> None:
        """Return when every shard is played."""
        self.waiting = [Waiting(shard) for shard in shards if not self._is_played(shard)]
        self.log.info("%d of %d shards are to be played", len(self.waiting), len(shards))
        while self.waiting:
            for item in list(self.waiting):
                self._advance(item)
            if self.waiting:
                self._play_one_that_nobody_takes()
                time.sleep(POLL_SECONDS)

    def cancel_rest(self) -> None:
        """Cancel the remaining shards when the evaluation ends without success."""
        for item in self.waiting:
            if item.run is not None:
                with suppress(Exception):  # the server may have ended, and another error is being raised
                    self.client.set_flow_run_state(item.run.id, Cancelling(message="nobody waits for this shard any more"))

    def _advance(self, item: Waiting) -> None:
        if item.run is None:
            self._submit(item)
            return
        item.run = run = self.client.read_flow_run(item.run.id)
        state = run.state
        if state is None:
            return
        if state.is_completed() and self._is_played(item.shard):
            self.log.info("shard %s is played", item.shard.name)
            self.waiting.remove(item)
        elif state.is_failed():
            raise as_error(f"{state.name}: {state.message}")
        elif state.is_final():
            self._lose(item, f"{state.name}: {cause_of(state.message)}")
        elif (state.is_running() or state.is_pending()) and time.monotonic() - item.looked >= LOOK_SECONDS:
            item.looked = time.monotonic()
            if why := why_dead(run, self.client, unbegun_s=self.start_seconds):  # its process, or its worker and its machine, have ended
                self.client.set_flow_run_state(run.id, Crashed(message=why), force=True)
                self._lose(item, why)

    def _request(self, shard: Shard) -> ShardRequest:
        return self.first.model_copy(update={"shard": shard})

    def _is_played(self, shard: Shard) -> bool:
        evals = self.config.paths.evals
        return has_evaluation(evals, self.first.key) or is_played(self._request(shard), evals)

    def _submit(self, item: Waiting) -> None:
        from prefect.deployments import run_deployment

        item.attempts += 1
        parameters = {"request": self._request(item.shard).model_dump(mode="json"), "config": submitted(self.config)}
        item.run = cast("FlowRun", run_deployment(self.deployment, parameters=parameters, timeout=0, as_subflow=True))
        item.since = item.looked = time.monotonic()

    def _lose(self, item: Waiting, why: str) -> None:
        if item.attempts >= ATTEMPTS:
            times = f"shard {item.shard.name} was lost {item.attempts} times"
            raise EvaluationError(f"{times} (last: {why}); look at the logs and the memory of its workers")
        self.log.warning("shard %s was lost (%s) and is submitted again", item.shard.name, why)
        item.run = None

    def _play_one_that_nobody_takes(self) -> None:
        """Play a shard here if all of them have waited long and none runs."""
        runs = [item.run for item in self.waiting if item.run and item.run.state and item.run.state.is_scheduled()]
        patient = all(time.monotonic() - item.since > PATIENCE_SECONDS for item in self.waiting)
        if not patient or len(runs) < len(self.waiting):
            return
        item = self.waiting[0]
        self.log.warning("no worker takes shard %s within %.0f s; it is played here", item.shard.name, PATIENCE_SECONDS)
        self.client.set_flow_run_state(runs[0].id, Cancelled(message="no worker took it; played by who waited for it"), force=True)
        play_shard(self._request(item.shard), self.config)
        self.waiting.remove(item)
