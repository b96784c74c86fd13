"""`slmsearch bench nightly`: does the nightly comparison find a fall of 5 points, and does it stay silent for 50 nights?

A made-up policy answers each question with a chance of its own: most are always right or always wrong, the others a coin with any
bias, so that a replay flips a share of the questions, as on a GPU, with a served model or with sampling. Kinds have different levels,
questions of a page succeed together, and every fresh world lies a little higher or lower than the others. The evaluation by which the
champion was promoted is the better of two, as promotion picks. Nights, references and verdicts are those of the flow.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from slmsearch.config import NightlyConfig
from slmsearch.evaluate.nightly import FRESH, FRESH_WINDOW, Floats, Scores
from slmsearch.evaluate.nights import ADAPTER, Night, PlayedSet, Promotion, judge_night
from slmsearch.extensions.bench.result import Result
from slmsearch.report.tables import Table

KINDS = (("one_hop", 0.40, 0.12), ("two_hop", 0.38, -0.12), ("count", 0.10, 0.05), ("unanswerable", 0.12, -0.04))
"""Kind, share of the questions, how far above the mean."""
PAGE = 4
"""Number of questions of a page, whose results are correlated."""
PAGE_SD = 0.10
SHAPES = ("spread", "dimmed", "one kind")
"""Shape of a fall: questions that turn wrong for good, all chances a little lower, or one kind alone."""
FALL, NIGHTS_BEFORE = 0.05, 12
"""Planted fall of the share that is right, and the quiet nights before it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A simulated policy and its worlds."""

    accuracy: float
    coins: float
    """Share of questions with a random result: a replay flips a third of it."""
    world_sd: float = 0.008
    """Standard deviation of worlds."""
    n: int = 1000


QUIET = (Policy(0.6, 0.0), Policy(0.6, 0.15), Policy(0.6, 0.6), Policy(0.94, 0.15))


class NightSeries:
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
        """Play the next night, with chances lower by the falls, and judge it."""
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
            metric="answer/typed_match",
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
        groups, pages = tuple((f"kind={kind}",) for kind in kinds), tuple(f"page{i // PAGE}" for i in range(n))
        return Scores(tuple(f"q{i:05d}" for i in range(n)), values, groups, pages)


def fell(chances: Floats, kinds: Sequence[str], fall: float, shape: str, rng: np.random.Generator) -> Floats:
    """Lower chances so that their mean falls by a given amount."""
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


def run_nightly(config: NightlyConfig, series: int, nights: int, regressions: int) -> Result:
    """Measure false alarms in quiet series of each policy, and detection of planted falls of 5 points of each shape and policy."""
    quiet, quiet_rows, planted, planted_rows = [], [], [], []
    for policy in QUIET:
        name = (f"{policy.accuracy:.0%}", f"{policy.coins / 3:.0%}")
        alarms = [_alarms(policy, seed, config, nights) for seed in range(series)]
        most, more_than_two = max(alarms), sum(count > 2 for count in alarms)
        quiet.append({"policy": asdict(policy), "alarms": alarms, "most": most, "more_than_two": more_than_two})
        quiet_rows.append((*name, str(sum(alarms)), str(most), str(more_than_two)))
        for shape in SHAPES:
            found = [_planted(policy, 1000 + seed, config, shape) for seed in range(regressions)]
            counts = {way: sum(ways[way] for ways in found) for way in found[0]}
            planted.append({"policy": asdict(policy), "shape": shape, "of": regressions, **counts})
            planted_rows.append((*name, shape, *(f"{count} of {regressions}" for count in counts.values())))
    columns = ("right", "flipped by a replay")
    tables = (
        Table(
            (*columns, f"alarms in {series} series of {nights} quiet nights", "most in one", "series with more than 2"), tuple(quiet_rows)
        ),
        Table(
            (*columns, "fall of 5 points", "found the first night", "within three", "in fresh worlds alone", "within three"),
            tuple(planted_rows),
        ),
    )
    values = {"nights": nights, "series": series, "alpha": config.alpha, "min_fall": config.min_fall, "quiet": quiet, "planted": planted}
    return Result(values, tables)


def _alarms(policy: Policy, seed: int, config: NightlyConfig, nights: int) -> int:
    series = NightSeries(policy, seed, config)
    return sum(series.play().state == "regressed" for _ in range(nights))


def _planted(policy: Policy, seed: int, config: NightlyConfig, shape: str) -> dict[str, bool]:
    """Plant a fall on both sets, and in a second series in fresh worlds alone; return the night of its discovery."""
    found: dict[str, bool] = {}
    for name, fixed_fall in (("", FALL), ("fresh_", 0.0)):
        series = NightSeries(policy, seed, config)
        for _ in range(NIGHTS_BEFORE):
            series.play(judged=False)
        nights = [series.play(fixed_fall, FALL, shape) for _ in range(3)]
        hits = [any(not name or test.against in (FRESH, FRESH_WINDOW) for test in night.falls) for night in nights]
        found |= {f"{name}first_night": hits[0], f"{name}three_nights": any(hits)}
    return found
