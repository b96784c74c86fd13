"""How much a judge that takes its time adds to a step, and what it does when.

Two steps are timed, with the exact judge (the baseline) and with a judge of 50 ms a verdict that begins while others are still
sampled. Verdicts are the same: the served judge says no to everything it is asked, which is what did not match exactly.

    plain     a writer that sleeps; every answer is another one and none matches: each costs a call. Here a third side begins when
              all have ended (`judge.overlap` off).
    grpo      whole GRPO steps of tiny-searcher on the demo's world, as training takes them
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from slmsearch.bench.judge_server import Behaviour, always_no, serve_apart
from slmsearch.config import JudgeConfig, RewardConfig, RunConfig, SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.evaluate.grade import grade_episodes, judging_ahead
from slmsearch.generate.scripted import ScriptedWriter
from slmsearch.generate.writer import Message, Sampling, Writer, Written
from slmsearch.judge import ExactJudge, Judge
from slmsearch.judge.clients import JudgeClient, make_client
from slmsearch.judge.llm import LlmJudge
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import render_answer, render_call
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import VIEW, Toolbox

VERDICT_S, CONCURRENCY = 0.05, 8
MAX_TURNS = 8
TURN_S = 1.3
"""Seconds one turn of the plain step takes; eight of them make a step of more than ten."""
SIDES = ("exact", "overlapped", "afterwards")


@dataclass
class Timeline:
    """What happened when in one step, in seconds of `time.perf_counter`."""

    turns: list[tuple[float, float]] = field(default_factory=list)
    verdicts: list[tuple[float, float]] = field(default_factory=list)
    end: float = 0.0
    """When the last verdict was there."""

    @property
    def waited(self) -> float:
        """Seconds between the end of the last turn and the last verdict."""
        return self.end - self.turns[-1][1]

    def relative(self) -> dict[str, Any]:
        """Return everything in seconds from the first turn."""
        start = self.turns[0][0]
        spans = {name: [(a - start, b - start) for a, b in sorted(getattr(self, name))] for name in ("turns", "verdicts")}
        return {**spans, "end": self.end - start}


class TimedClient:
    """A client that notes when it was asked."""

    def __init__(self, client: JudgeClient, timeline: Timeline) -> None:
        self._client, self._timeline = client, timeline
        self.identify, self.release = client.identify, client.release

    def ask(self, prompt: str) -> str:
        """See `JudgeClient.ask`."""
        started = time.perf_counter()
        reply = self._client.ask(prompt)
        self._timeline.verdicts.append((started, time.perf_counter()))
        return reply


class TimedWriter:
    """A writer that notes when it wrote."""

    def __init__(self, writer: Writer, timeline: Timeline) -> None:
        self._writer, self._timeline = writer, timeline

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Writer.open`."""
        return self._writer.open(prompts, sampling)

    def write(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[Written]:
        """See `Writer.write`."""
        started = time.perf_counter()
        written = self._writer.write(rows, results, room)
        self._timeline.turns.append((started, time.perf_counter()))
        return written

    def close(self) -> None:
        """See `Writer.close`."""
        self._writer.close()


class SleepingWriter(ScriptedWriter):
    """Takes the same time for every turn; calls a tool until its question's turn to answer has come."""

    def __init__(self, lengths: dict[str, int], turn_s: float) -> None:
        def script(question: str, results: list[str]) -> str:
            done = len(results) + 1 >= lengths[question]
            return render_answer(f"what was read about {question}") if done else render_call(ToolCall(VIEW, "nowhere"))

        super().__init__(script)
        self._turn_s = turn_s

    def write(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[Written]:
        """See `Writer.write`."""
        time.sleep(self._turn_s)
        return super().write(rows, results, room)


def make_side(side: str, url: str, timeline: Timeline) -> Judge:
    """Make the judge of a side; its verdicts are not kept, so that every step asks."""
    if side == "exact":
        return ExactJudge()
    overlap = side == "overlapped"
    config = JudgeConfig(kind="ollama", model="judge", base_url=url, concurrency=CONCURRENCY, overlap=overlap, cache=False)
    return LlmJudge(TimedClient(make_client(config), timeline), config)


def measure_plain(episodes: int, runs: int, turn_s: float = TURN_S) -> dict[str, Any]:
    """Time the plain step with each judge in turn.

    Args:
        episodes: played together; they answer in turns 1 to 8, drawn with a fixed seed.
        runs: measured steps of each side.
        turn_s: seconds of one turn.
    """
    chance = random.Random(0)
    questions = [Question(f"q{i}", f"Who is number {i}?", f"nobody {i}") for i in range(episodes)]
    lengths = {question.question: chance.randint(1, MAX_TURNS) for question in questions}
    lengths[questions[0].question] = MAX_TURNS
    toolbox = Toolbox(Library([]), _NoIndex(), top_k=3, max_section_chars=1500)
    limits = SearcherConfig(max_turns=MAX_TURNS, max_turn_tokens=1 << 20, max_episode_tokens=1 << 20)

    def step(judge: Judge, timeline: Timeline) -> float:
        started = time.perf_counter()
        writer = TimedWriter(SleepingWriter(lengths, turn_s), timeline)
        with judging_ahead(judge) as on_end:
            played = play_episodes(questions, writer, toolbox, limits, Sampling(), on_end)
        rows = grade_episodes(questions, played, judge, RewardConfig())
        timeline.end = time.perf_counter()
        assert not any(row.failed or row.correct for row in rows)
        return timeline.end - started

    with serve_apart(Behaviour(truth=always_no, delay_s=VERDICT_S)) as server:
        return _alternate(runs, SIDES, lambda side: _timed(step, side, server.url), episodes)


def _timed(step: Any, side: str, url: str) -> tuple[float, Timeline]:
    timeline = Timeline()
    return step(make_side(side, url, timeline), timeline), timeline


class _NoIndex:
    key = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Any]]:
        """See `Index.search`."""
        return [[] for _ in queries]


def measure_grpo(config: RunConfig, episodes: int, runs: int) -> dict[str, Any]:
    """Time whole GRPO steps of the configured policy with each judge in turn.

    Args:
        config: the demo's settings.
        episodes: of one step; a multiple of `train.group_size`.
        runs: measured steps of each side, after one that warms up.
    """
    from slmsearch.bench.rollout import Stopwatch, make_ours
    from slmsearch.bench.shapes import demo_shape

    train = config.train.model_copy(update={"questions_per_step": episodes // config.train.group_size})
    shape, sides = demo_shape(config.model_copy(update={"train": train})), SIDES[:2]
    timelines = {side: Timeline() for side in sides}
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory, serve_apart(Behaviour(truth=always_no, delay_s=VERDICT_S)) as server:
        watches: dict[str, Stopwatch] = {}
        trainers: dict[str, Any] = {}
        for side in sides:
            timeline, watches[side] = timelines[side], Stopwatch()
            judge, wrap = make_side(side, server.url, timeline), partial(TimedWriter, timeline=timeline)
            trainers[side] = make_ours(shape, Path(directory) / side, watches[side], judge, wrap)

        def step(side: str) -> tuple[float, Timeline]:
            timeline, (trainer, bridge) = timelines[side], trainers[side]
            timeline.turns.clear()
            timeline.verdicts.clear()
            trainer.train()
            timeline.end = timeline.turns[-1][1] + bridge.metrics.get("time/judge_wait_s", 0.0)
            return watches[side].steps[-1], Timeline(list(timeline.turns), list(timeline.verdicts), timeline.end)

        for side in sides:
            step(side)
        rewards = {side: bridge.rewards for side, (_, bridge) in trainers.items()}
        assert rewards["exact"] == rewards["overlapped"], "the sides were not rewarded alike"
        return _alternate(runs, sides, step, episodes)


def _alternate(runs: int, sides: Sequence[str], step: Any, episodes: int) -> dict[str, Any]:
    """Take a step of every side `runs` times, the order turned each time, and summarise."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    waited: dict[str, list[float]] = {side: [] for side in sides[1:]}
    timelines: dict[str, Timeline] = {}
    for number in range(runs):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            taken, timelines[side] = step(side)
            seconds[side].append(taken)
            if side in waited:
                waited[side].append(timelines[side].waited)
    added = {side: [a / b - 1 for a, b in zip(seconds[side], seconds["exact"], strict=True)] for side in waited}
    return {
        "episodes": episodes,
        "asked": len(timelines["overlapped"].verdicts),
        "step_s": {side: _spread(values) for side, values in seconds.items()},
        "added_frac": {side: _spread(values) for side, values in added.items()},
        "waited_s": {side: _spread(values) for side, values in waited.items()},
        "timeline": {side: timelines[side].relative() for side in waited},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "low": min(values), "high": max(values)}
