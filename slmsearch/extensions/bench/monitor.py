"""`slmsearch bench monitor`: does the collapse monitor leave healthy runs alone, and does it see planted collapses?

Made-up runs of the shape of each preset (questions a step, group size, steps, held-out questions, checkpoints) go through the real
monitor and the real comparison of held-out scores. Assumptions about a run:

- How often a question is solved follows Beta(m, conc); a step's rewards are the binomial draws of its groups. m stays, or rises over
  the run (`SHAPES`); conc is the spread of difficulty (`SPREADS`): 1 is nearly always or nearly never, 10 hardly any spread.
- Skill itself wanders: a slow walk on the log-odds, worth some two points, which training and held-out questions share.
- Some steps have harder questions than others: a lower reward, a higher entropy, more calls and more malformed episodes. The logarithm
  of the entropy has a standard deviation of 0.6 from step to step (0.35 to 1.2 were measured in a run of the demo), and the entropy
  falls to a quarter while a policy learns. Gradients vary as much, grow with the spread inside groups, are 0 where no group has any, and
  one in fifty is 6 to 20 times as large.
- An episode makes one to some eight calls, fewer as the policy learns what calls cost; a planner's calls are its subproblems.
- Held-out questions are played greedily. A scoring draws anew for half of the questions whether they are solved, so that one in five to
  eight comes out otherwise than before.

A planted collapse unfolds over ten steps, begins at least 60 steps before the end, and changes only its own figure: a reward that is
halved, an entropy of 10 %, 60 % malformed (reward 0), one call in 90 % of episodes - a single one, or the same one for every question. A
collapse counts as caught if it is reported after it began and before the run ends.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.extensions.bench.result import Result, Say, tabulate
from slmsearch.training.monitor import ALONE, CollapseMonitor, Scores, find_fall

Floats = NDArray[np.float64]

SHAPES = {"stationary": (0.6, 0.6), "stationary, weak": (0.35, 0.35), "improving": (0.45, 0.70)}
"""Share right at the start and at the end."""
SPREADS = (1.0, 3.0, 10.0)
Course = tuple[float, float, float]
"""Share right at the start and at the end, and spread of difficulty."""
KINDS = ("reward", "entropy", "malformed", "single call", "same call")
MIN_STEPS, ASSUMED_QUESTIONS, MAX_STEPS = 200, 1500, 600
"""Minimum of simulated steps; training questions if a preset counts epochs; maximum of simulated steps."""
EARLIEST, BEFORE_END, RAMP = 10, 60, 10
"""Earliest step of a collapse, minimum of steps between it and the end, and steps that it takes to unfold."""
COLUMNS = {
    "preset": "{preset}",
    "step": "{questions_per_step} x {group_size}",
    "healthy: stopped / restored once": "{healthy_stopped_frac:.1%} / {healthy_restored_frac:.1%}",
    "caught": "{caught_frac:.1%}",
    "median steps": "{median_steps:.0f}",
    **{kind: f"{{kinds[{kind}][caught_frac]:.0%}}" for kind in KINDS},
}
GRID = 24
"""Levels of skill between which a held-out question's chance is interpolated."""


@dataclass(frozen=True, slots=True)
class RunShape:
    """Fixed values of a preset's run."""

    questions: int
    """Number per step."""
    group: int
    steps: int
    held_out: int
    checkpoint: int
    """Steps between scorings."""
    max_collapses: int
    planner: bool


def shape_of(config: RunConfig) -> RunShape | str:
    """Return the shape of a run from its configuration, or the reason why it has none."""
    train, watch = config.train, config.train.monitor
    steps = train.steps or math.ceil(train.epochs * (train.limit or ASSUMED_QUESTIONS) / train.questions_per_step)
    if config.planner.sft.enabled:
        return "trains by supervision, which has no monitor"
    if not watch.held_out:
        return "switches the monitor off"
    if steps <= BEFORE_END:
        return f"has {steps} steps: a collapse is planted at least {BEFORE_END} before the end"
    return RunShape(
        train.questions_per_step,
        train.group_size,
        min(MAX_STEPS, max(MIN_STEPS, steps)),
        watch.held_out,
        train.checkpoint_steps,
        watch.max_collapses,
        SEARCH not in environment_of(config).tool_names,
    )


class Run:
    """One simulated run."""

    def __init__(self, shape: RunShape, course: Course, seed: int, collapse: str = "", at: int = 0) -> None:
        """Draw the whole run; `collapse`, one of `KINDS` or none, begins at step `at`."""
        self.shape, self.rng = shape, np.random.default_rng(seed)
        start, end, self._conc = course
        steps = np.arange(shape.steps)
        rng = self.rng
        walk = _walk(rng, shape.steps)
        skill = start + (end - start) * steps / shape.steps
        self._skill = np.clip(1 / (1 + np.exp(-np.log(skill / (1 - skill)) - walk)), 0.03, 0.97)
        ramp = np.clip((steps - at) / RAMP, 0, 1) if collapse else np.zeros(shape.steps)
        self._worth = 1 - 0.5 * ramp if collapse == "reward" else np.ones(shape.steps)
        self._malformed = 0.6 * ramp if collapse == "malformed" else np.zeros(shape.steps)
        self._easy, self._luck = rng.random((2, shape.held_out))
        self._chances: dict[int, Floats] = {}
        self.metrics = self._draw(collapse, ramp, skill)

    def _draw(self, collapse: str, ramp: Floats, skill: Floats) -> list[dict[str, float]]:
        """Draw the report of every step."""
        shape, rng = self.shape, self.rng
        count, episodes = (shape.steps, shape.questions), (shape.steps, shape.questions, shape.group)
        chance = rng.beta(self._skill[:, None] * self._conc, (1 - self._skill)[:, None] * self._conc, count)
        hard = 1 - chance
        malformed = rng.random(episodes) < np.clip(0.01 + 0.04 * hard + self._malformed[:, None], 0, 1)[..., None]
        right = (rng.random(episodes) < (chance * self._worth[:, None])[..., None]) & ~malformed
        calls = self._calls(hard, skill)
        single = ramp if collapse == "single call" else np.zeros(shape.steps)
        calls = np.where(rng.random(episodes) < 0.95 * single[:, None, None], 1, calls)
        worth = 1.0 + 0.2 * rng.random(episodes) + 0.3 * rng.random(count)[..., None] if shape.planner else 1 - 0.03 * calls
        reward = right * worth
        spread = reward.std(axis=2).mean(axis=1)
        episode_noise = 0.6 * rng.standard_normal(shape.steps)
        learnt = (skill - skill[0]) / 0.25
        entropy = 0.15 * np.exp(episode_noise + 0.8 * (hard.mean(1) - hard.mean()) - math.log(4) * learnt)
        entropy = entropy * np.exp(math.log(0.1) * ramp) if collapse == "entropy" else entropy
        grad = 0.05 * spread * np.exp(0.6 * rng.standard_normal(shape.steps))
        grad = np.where(rng.random(shape.steps) < 0.02, grad * rng.uniform(6, 20, shape.steps), grad)
        # The share of the most common call is that of the question whose episodes agree most.
        common = (0.4 + 0.6 * rng.random(count)).max(axis=1) / shape.questions
        if collapse == "same call":
            common = np.maximum(common, (rng.random(episodes) < 0.95).mean((1, 2)) * ramp)
        words = rng.lognormal(0.6, 0.4, count).mean(1)
        columns = {
            "reward/mean": reward.mean((1, 2)),
            "stop/malformed": malformed.mean((1, 2)),
            "policy/entropy": entropy,
            "policy/logprob_right": np.where(right.any((1, 2)), -0.5 * entropy, np.nan),
            "policy/logprob_wrong": np.where((~right).any((1, 2)), -entropy * rng.lognormal(0.7, 0.5, shape.steps), np.nan),
            "optim/grad_norm": grad,
            "episode/single_call_frac": (calls == 1).mean((1, 2)),
            "episode/common_call_frac": common,
            "answer/words": words,
        }
        if not shape.planner:
            columns["episode/searches"] = (calls * 0.4).mean((1, 2))
        rows = np.stack(list(columns.values()), axis=1).tolist()
        return [{name: value for name, value in zip(columns, row, strict=True) if value == value} for row in rows]

    def _calls(self, hard: Floats, skill: Floats) -> NDArray[np.int64]:
        """Draw the calls of each episode: a question has its own number, and an episode may vary it."""
        mean = 1.2 + 2.0 * hard - 2.0 * (skill - skill[0])[:, None]
        own = 1 + self.rng.poisson(np.maximum(0.4, mean))
        calls: NDArray[np.int64] = np.maximum(1, own[..., None] + self.rng.integers(-1, 2, (*own.shape, self.shape.group)))
        return calls

    def score(self, step: int) -> Scores:
        """Draw a scoring of the held-out questions after a step (from 1)."""
        i = max(0, step - 1)
        level = round(float(self._skill[i]) * GRID)
        if level not in self._chances:
            from scipy.stats import beta

            mean = min(max(level / GRID, 0.02), 0.98)
            self._chances[level] = beta.ppf(self._easy, mean * self._conc, (1 - mean) * self._conc)
        chance = self._chances[level] * self._worth[i] * (1 - self._malformed[i])
        worth = 1.25 if self.shape.planner else 0.9
        self._luck = np.where(self.rng.random(len(chance)) < 0.5, self.rng.random(len(chance)), self._luck)
        scores: Scores = ((self._luck < chance) * worth).tolist()
        return scores


def _walk(rng: np.random.Generator, steps: int) -> Floats:
    """Draw a walk that returns to 0: standard deviation 0.08, forgotten over some thirty steps."""
    from scipy.signal import lfilter

    kept = math.exp(-1 / 30)
    noise = rng.standard_normal(steps) * 0.08 * math.sqrt(1 - kept**2)
    walk: Floats = lfilter([1.0], [1.0, -kept], noise)
    return walk


def watch(run: Run) -> Iterator[tuple[int, str]]:
    """Let the monitor watch a run; yield the steps and rules of its collapses. Restored weights continue as before."""
    monitor, shape = CollapseMonitor(run.shape.questions), run.shape
    scorings = [run.score(0)]
    for step, metrics in enumerate(run.metrics, 1):
        suspicion = monitor.look(metrics)
        rule = suspicion.rule if suspicion and not suspicion.confirm else ""
        if not rule and (suspicion or step % shape.checkpoint == 0):
            scores = run.score(step)
            if find_fall(scorings, scores, suspicion.confirm if suspicion else ALONE):
                rule = suspicion.rule if suspicion else "held-out reward"
            else:
                scorings.append(scores)
                if suspicion:
                    monitor.dismiss()
        if rule:
            monitor.restart()
            yield step, rule


def measure(shape: RunShape, runs: int, seed: int = 0) -> dict[str, object]:
    """Simulate healthy runs of a preset, dealt out over shapes and spreads, and half as many planted collapses of each kind."""
    courses = [(start, end, conc) for start, end in SHAPES.values() for conc in SPREADS]
    healthy = [list(watch(Run(shape, courses[i % len(courses)], seed + i))) for i in range(runs)]
    short, planted = replace(shape, steps=MIN_STEPS), (runs + 1) // 2
    caught: dict[str, list[int]] = {}
    for number, kind in enumerate(KINDS, 1):
        delays = (_delay(short, courses[i % len(courses)], seed + 100_000 * number + i, kind) for i in range(planted))
        caught[kind] = [delay for delay in delays if delay is not None]
    every = list(chain(*caught.values()))
    return {
        "questions_per_step": shape.questions,
        "group_size": shape.group,
        "steps": shape.steps,
        "healthy_stopped_frac": sum(len(found) >= shape.max_collapses for found in healthy) / runs,
        "healthy_restored_frac": sum(bool(found) for found in healthy) / runs,
        "caught_frac": len(every) / (planted * len(KINDS)),
        "median_steps": _median(every),
        "kinds": {kind: {"caught_frac": len(delays) / planted, "median_steps": _median(delays)} for kind, delays in caught.items()},
    }


def _delay(shape: RunShape, course: Course, seed: int, kind: str) -> int | None:
    """Plant a collapse; return the steps from its beginning to its discovery, or None."""
    at = int(np.random.default_rng((seed, 1)).integers(EARLIEST, shape.steps - BEFORE_END + 1))
    return next((step - at for step, _ in watch(Run(shape, course, seed, kind, at)) if step > at), None)


def _median(values: Sequence[int]) -> float | None:
    return float(np.median(values)) if values else None


def run_monitor(configs: Mapping[str, RunConfig], runs: int, say: Say = lambda line: None) -> Result:
    """Measure every preset, given by name, in `runs` healthy runs each."""
    presets: dict[str, dict[str, object]] = {}
    left_out: dict[str, str] = {}
    planted = (runs + 1) // 2
    for name, config in configs.items():
        shape = shape_of(config)
        if isinstance(shape, str):
            left_out[name] = shape
            continue
        say(f"{name}: {runs} healthy runs of {shape.steps} steps, {planted} planted collapses of each kind")
        presets[name] = measure(shape, runs)
    table = tabulate(COLUMNS, ({"preset": name, **found} for name, found in presets.items()))
    notes = [f"{runs} healthy runs of each preset, {planted} planted collapses of each kind"]
    notes += [f"{name} is left out: it {reason}" for name, reason in left_out.items()]
    return Result({"healthy_runs": runs, "planted_of_each_kind": planted, "presets": presets, "left_out": left_out}, (table,), notes)
