"""`slmsearch bench nightly`: does the nightly comparison find a fall of 5 points, and does it keep quiet for 50 nights?

A made-up policy answers each question with a chance of its own: most are always right or always wrong, the others a coin with any
bias, so that a replay flips a share of the questions, as on a GPU, with a served model or with sampling. Kinds have different levels,
questions of a page succeed together, and every fresh world lies a little higher or lower than the others. The evaluation by which the
champion was promoted is the better of two, as promotion picks. Nights, references and verdicts are those of the flow.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slmsearch.config import NightlyConfig
from slmsearch.evaluate.nightly import FRESH, FRESH_WINDOW, Floats, Scores
from slmsearch.evaluate.nights import ADAPTER, Night, PlayedSet, Promotion, judge_night

KINDS = (("one_hop", 0.40, 0.12), ("two_hop", 0.38, -0.12), ("count", 0.10, 0.05), ("unanswerable", 0.12, -0.04))
"""Kind, share of the questions, how far above the mean."""
PAGE = 4
"""Questions of a page, which succeed or fail together in part."""
PAGE_SD = 0.10
SHAPES = ("spread", "dimmed", "one kind")
"""A fall: questions that go wrong for good, all chances a little lower, or one kind alone."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A made-up policy and its worlds."""

    accuracy: float
    coins: float
    """Share of questions that may come out either way: a replay flips a third of it."""
    world_sd: float = 0.008
    """Standard deviation of worlds."""
    n: int = 1000


QUIET = (Policy(0.6, 0.0), Policy(0.6, 0.15), Policy(0.6, 0.6), Policy(0.94, 0.15))


class Series:
    """Nights of one policy, one after another."""

    def __init__(self, policy: Policy, seed: int, config: NightlyConfig) -> None:
        """Draw the fixed questions and the evaluation of the promotion."""
        self.policy, self.config, self.rng = policy, config, np.random.default_rng(seed)
        self.nights: list[Night] = []
        self.stored: dict[str, Scores] = {}
        self.chances, self.kinds = self._questions(0.0)
        draws = [self._play(self.chances, self.kinds) for _ in range(2)]
        self.promotion = Promotion("promotion", "fixed", max(draws, key=lambda scores: float(scores.values.mean())), {})

    def play(self, fixed_fall: float = 0.0, fresh_fall: float = 0.0, shape: str = "spread", judged: bool = True) -> Night:
        """Play the next night, its chances lower by as much, and judge it."""
        number = len(self.nights)
        fixed = self._play(fell(self.chances, self.kinds, fixed_fall, shape, np.random.default_rng(7)), self.kinds)
        chances, kinds = self._questions(self.policy.world_sd)
        fresh = self._play(fell(chances, kinds, fresh_fall, shape, self.rng), kinds)
        self.stored[f"fixed-{number}"] = fixed
        night = Night(
            night=f"{number:03d}",
            at=f"{number:03d}",
            state="green",
            policy="champion",
            metric="answer/exact_match",
            make={ADAPTER: "a"},
            fixed=PlayedSet(f"fixed-{number}", "fixed", self.policy.n, 0, fixed.summarise()),
            fresh=PlayedSet(f"fresh-{number}", f"fresh-{number}", self.policy.n, 0, fresh.summarise()),
        )
        if judged:
            night = judge_night(self.nights, night, fixed, self.stored.__getitem__, self.promotion, self.config)
        self.nights.insert(0, night)
        return night

    def _questions(self, world_sd: float) -> tuple[Floats, tuple[str, ...]]:
        """Draw the chances of the questions of a world."""
        n, rng = self.policy.n, self.rng
        which = rng.choice(len(KINDS), size=n, p=[share for _, share, _ in KINDS])
        levels = np.array([shift for _, _, shift in KINDS])[which] + self.policy.accuracy + rng.normal(0, world_sd)
        levels = levels + np.repeat(rng.normal(0, PAGE_SD, math.ceil(n / PAGE)), PAGE)[:n]
        sure = (rng.random(n) < np.clip(levels, 0, 1)).astype(float)
        # A coin's bias is anything, more of it on the side of the question's level.
        bias = np.sqrt(rng.random(n))
        coins = np.where(sure == 1, bias, 1 - bias)
        return np.where(rng.random(n) < self.policy.coins, coins, sure), tuple(KINDS[i][0] for i in which)

    def _play(self, chances: Floats, kinds: tuple[str, ...]) -> Scores:
        n = len(chances)
        values = (self.rng.random(n) < chances).astype(float)
        return Scores(tuple(f"q{i:05d}" for i in range(n)), values, kinds, tuple(f"page{i // PAGE}" for i in range(n)))


def fell(chances: Floats, kinds: Sequence[str], fall: float, shape: str, rng: np.random.Generator) -> Floats:
    """Lower chances so that their mean falls by as much."""
    if fall == 0:
        return chances
    if shape == "dimmed":
        dimmed: Floats = chances * (1 - fall / float(chances.mean()))
        return dimmed
    lowered, wanted = chances.copy(), fall * len(chances)
    order = rng.permutation(len(chances))
    if shape == "one kind":
        order = order[np.array(kinds)[order] == "two_hop"]
    for i in order:
        if wanted <= 0:
            break
        wanted -= lowered[i]
        lowered[i] = 0.0
    return lowered


def run_nightly(config: NightlyConfig, series: int, nights: int, regressions: int) -> dict[str, Any]:
    """Measure false alarms in quiet series, and planted falls of 5 points.

    Args:
        config: rule.
        series: quiet series of each policy.
        nights: nights of a series.
        regressions: falls of each shape and policy.
    """
    quiet = []
    for policy in QUIET:
        alarms = [sum(_quiet(policy, seed, config, nights)) for seed in range(series)]
        quiet.append({"policy": asdict(policy), "alarms": alarms, "most": max(alarms), "more_than_two": sum(found > 2 for found in alarms)})
    planted = []
    for policy in QUIET:
        for shape in SHAPES:
            found = [_planted(policy, 1000 + seed, config, shape) for seed in range(regressions)]
            names = ("first_night", "three_nights", "fresh_first_night", "fresh_three_nights")
            planted.append(
                {"policy": asdict(policy), "shape": shape, "of": regressions, **{name: sum(f[name] for f in found) for name in names}}
            )
    return {"nights": nights, "series": series, "alpha": config.alpha, "min_fall": config.min_fall, "quiet": quiet, "planted": planted}


def _quiet(policy: Policy, seed: int, config: NightlyConfig, nights: int) -> list[bool]:
    series = Series(policy, seed, config)
    return [series.play().state == "regressed" for _ in range(nights)]


def _planted(policy: Policy, seed: int, config: NightlyConfig, shape: str, fall: float = 0.05, before: int = 12) -> dict[str, bool]:
    """Plant a fall after some nights: on both sets, and in a second series in fresh worlds alone."""
    found: dict[str, bool] = {}
    for name, fixed_fall in (("", fall), ("fresh_", 0.0)):
        series = Series(policy, seed, config)
        for _ in range(before):
            series.play(judged=False)
        hits = []
        for _ in range(3):
            night = series.play(fixed_fall, fall, shape)
            seen = [test for test in night.falls if not name or test.against in (FRESH, FRESH_WINDOW)]
            hits.append(bool(seen))
        found |= {f"{name}first_night": hits[0], f"{name}three_nights": any(hits)}
    return found


def render_nightly(result: dict[str, Any]) -> str:
    """Write the result as tables."""
    of = f"{result['series']} series of {result['nights']} quiet nights"
    lines = [f"| right | flipped by a replay | alarms in {of} | most in one | series with more than 2 |", "|---|---|---|---|---|"]
    for row in result["quiet"]:
        lines.append(f"| {_policy(row['policy'])} | {sum(row['alarms'])} | {row['most']} | {row['more_than_two']} |")
    lines += [
        "",
        "| right | flipped by a replay | fall of 5 points | found the first night | within three | in fresh worlds alone | within three |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for row in result["planted"]:
        cells = [f"{row[name]} of {row['of']}" for name in ("first_night", "three_nights", "fresh_first_night", "fresh_three_nights")]
        lines.append(f"| {_policy(row['policy'])} | {row['shape']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _policy(values: dict[str, Any]) -> str:
    return f"{values['accuracy']:.0%} | {values['coins'] / 3:.0%}"
