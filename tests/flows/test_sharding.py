"""Following shards, with a Prefect server that says what the test wants."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.states import Cancelled, Completed, Crashed, Failed, Late, Pending, Running, State

from flows.evaluate_shard import ShardRequest
from flows.stages import sharding
from flows.stages.sharding import ATTEMPTS, _Play
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.errors import EvaluationError, ModelError
from slmsearch.evaluate.shards import split_shards

Story = Callable[[int], list[State[Any]]]


class Server:
    """Runs what is submitted through the states that a story tells for the n-th submission."""

    def __init__(self, story: Story) -> None:
        self.story, self.played = story, set[str]()
        self.runs: dict[UUID, tuple[str, list[State[Any]]]] = {}
        self.forced: list[str] = []
        self.beats = True

    def submit(self, _deployment: UUID, parameters: dict[str, Any], **_: Any) -> Any:
        request, run = parameters["request"], uuid4()
        self.runs[run] = ("{number}-of-{of}".format(**request["shard"]), list(self.story(len(self.runs))))
        return SimpleNamespace(id=run, state=None)

    def read_flow_run(self, run: UUID) -> Any:
        name, states = self.runs[run]
        state = states.pop(0) if len(states) > 1 else states[0]
        if state.is_completed():
            self.played.add(name)
        return SimpleNamespace(id=run, state=state, labels={}, infrastructure_pid=None)

    def read_events(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(events=[])

    def read_work_pool(self, _name: str) -> Any:
        return SimpleNamespace(type="process")

    def set_flow_run_state(self, run: UUID, state: State[Any], force: bool = False) -> None:
        self.forced.append(str(state.name))
        self.runs[run] = (self.runs[run][0], [state])


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], tuple[Server, _Play]]:
    def make(story: Story) -> tuple[Server, _Play]:
        server = Server(story)
        monkeypatch.setattr("prefect.deployments.run_deployment", server.submit)
        monkeypatch.setattr(sharding, "get_run_logger", lambda: SimpleNamespace(info=lambda *_: None, warning=lambda *_: None))
        monkeypatch.setattr(sharding, "is_played", lambda request, evals: request.shard.name in server.played)
        monkeypatch.setattr(sharding, "play_shard", lambda request, config: server.played.add(request.shard.name))
        monkeypatch.setattr(sharding, "POLL_SECONDS", 0.0)
        return server, _Play(server, uuid4(), SimpleNamespace(config=RunConfig()), FIRST)  # type: ignore[arg-type]

    return make


SHARDS = split_shards(8, 2, 4)
FIRST = ShardRequest(key="k", digest="d", index_key="i", name="untrained", policy=PolicyConfig(), shard=SHARDS[0])


def test_what_is_played_is_not_played_again(play: Any) -> None:
    server, made = play(lambda n: [Running(), Completed()])
    server.played = {"2-of-4", "3-of-4"}
    made.until_done(SHARDS)
    assert sorted(name for name, _ in server.runs.values()) == ["1-of-4", "4-of-4"]


def test_what_another_run_has_stored_as_a_whole_is_not_played(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = play(lambda n: [Running(), Completed()])
    monkeypatch.setattr(sharding, "has_evaluation", lambda evals, key: key == "k" and bool(server.runs))  # while the first ones are played
    monkeypatch.setattr(sharding, "is_played", lambda *_: False)  # it has removed the shards
    made.until_done(SHARDS)
    assert len(server.runs) == 4


@pytest.mark.parametrize("end", [Crashed(message="exited with -9"), Cancelled(message="its worker was terminated"), Completed()])
def test_a_shard_that_is_lost_is_submitted_again(play: Any, end: State[Any]) -> None:
    def story(number: int) -> list[State[Any]]:
        return [Running(), end] if number == 0 else [Running(), Completed()]

    server, made = play(story)
    lost = server.read_flow_run

    def read(run: UUID) -> Any:
        found = lost(run)
        if found.state.is_completed() and run == next(iter(server.runs)):
            server.played.discard("1-of-4")  # it says so, and there is nothing
        return found

    server.read_flow_run = read
    made.until_done(SHARDS)
    assert sorted(name for name, _ in server.runs.values()) == ["1-of-4", "1-of-4", "2-of-4", "3-of-4", "4-of-4"]


def test_a_shard_that_takes_its_worker_along_every_time_ends_it(play: Any) -> None:
    server, made = play(lambda n: [Crashed(message="out of memory")])
    with pytest.raises(EvaluationError, match=rf"was lost {ATTEMPTS} times \(last: Crashed: out of memory\); look at the logs"):
        made.until_done(SHARDS[:1])
    assert len(server.runs) == ATTEMPTS


def test_what_fails_for_a_reason_fails_for_that_reason_and_the_rest_is_cancelled(play: Any) -> None:
    failed = Failed(message="Flow run encountered an exception: ModelError: no model at 'x'; set policy.model")
    server, made = play(lambda n: [failed] if n == 1 else [Running()])
    with pytest.raises(ModelError, match="no model at 'x'"):
        try:
            made.until_done(SHARDS)
        finally:
            made.cancel_rest()
    assert server.forced.count("Cancelling") == 4


def test_a_run_without_heartbeats_is_dead_and_said_to_be(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = play(lambda n: [Running()] if n == 0 else [Completed()])
    monkeypatch.setattr(sharding, "LOOK_SECONDS", 0.0)
    silent = [None, None, "it has sent no heartbeat for 91 s"]
    monkeypatch.setattr(sharding, "why_dead", lambda run, client, unbegun_s: silent.pop(0))
    made.until_done(SHARDS[:1])
    assert server.forced == ["Crashed"]
    assert len(server.runs) == 2


def test_a_run_that_was_fetched_and_never_starts_is_lost(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sharding.START_SECONDS, "process", 0.0)
    monkeypatch.setattr(sharding, "LOOK_SECONDS", 0.0)
    server, made = play(lambda n: [Pending()] if n == 0 else [Completed()])
    made.until_done(SHARDS[:1])
    assert server.forced == ["Crashed"]
    assert len(server.runs) == 2


def test_what_no_worker_takes_is_played_here(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = play(lambda n: [Late()])
    monkeypatch.setattr(sharding, "PATIENCE_SECONDS", 0.0)
    made.until_done(SHARDS)
    assert server.played == {shard.name for shard in SHARDS}
    assert server.forced == ["Cancelled"] * 4


def test_nothing_is_played_here_while_another_one_runs(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = play(lambda n: [Running()] * 20 + [Completed()] if n == 0 else [Late()] * 15 + [Completed()])
    monkeypatch.setattr(sharding, "PATIENCE_SECONDS", 0.0)
    called: list[str] = []
    monkeypatch.setattr(
        sharding, "play_shard", lambda request, config: (called.append(request.shard.name), server.played.add(request.shard.name))
    )
    made.until_done(SHARDS[:2])
    assert len(called) <= 1 and "1-of-4" not in called
