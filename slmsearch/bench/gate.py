"""`slmsearch bench gate`: would one anytime-valid test (`betting.py`) serve every gate?

Simulated evaluations without a difference say how often it promotes what is no better, others with a gain of 5 points how many questions
it needs. The evaluations that are stored say whether it ever contradicts the rule of `compare`. Falls planted in made-up nights
(`nightly.py`) say whether it finds what the nightly's own test finds.
"""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import mean

import numpy as np

from slmsearch.bench.betting import bet_on_difference
from slmsearch.bench.nightly import FALL, NIGHTS_BEFORE, QUIET, SHAPES, Policy, Series
from slmsearch.bench.result import Result
from slmsearch.config import DecisionConfig, NightlyConfig
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.compare import compare
from slmsearch.evaluate.store import load_rows
from slmsearch.report.tables import Table, percent

PAIRS, DISCORDANT, GAIN = 1000, 0.15, 0.05
"""Of a simulated evaluation: its pairs, the share of them that differ, and what is gained."""
PAGE = 4
"""Questions of a page in the simulations with pages."""
SIDES = {"promote": "better", "reject": "worse"}


def run_gate(evals: Path, decision: DecisionConfig, nightly: NightlyConfig, simulations: int, falls: int) -> Result:
    """Simulate so many evaluations with and without a gain, compare stored ones, and plant so many falls of each shape and policy."""
    rows, values = [], dict[str, object]()
    for name, page, gain in (("no gain", 1, 0.0), ("5 points", 1, GAIN), ("no gain, pages", PAGE, 0.0), ("5 points, pages", PAGE, GAIN)):
        found = [_simulate(seed, page, gain, decision) for seed in range(simulations)]
        promoted, needed = mean(verdict == "better" for verdict, _ in found), mean(questions for _, questions in found) / PAIRS
        rows.append((name, percent(promoted), percent(mean(verdict == "worse" for verdict, _ in found)), percent(needed)))
        if page == 1:
            values |= {"false_promotions_frac": promoted} if not gain else {"mean_questions_frac": needed}
    compared = list(_compare_stored(evals, decision))
    opposite = sum((rule, bet) in (("promote", "worse"), ("reject", "better")) for rule, bet, _ in compared)
    decided = [share for rule, bet, share in compared if SIDES.get(rule) == bet]
    ruled = sum(rule in SIDES for rule, _, _ in compared)
    values |= {"compared": len(compared), "opposite": opposite, "decided": len(decided), "decided_by_rule": ruled}
    nights, night_rows = [], []
    for policy in QUIET:
        for shape in SHAPES:
            own, bets, shares = zip(*(_fall(policy, seed, shape, nightly) for seed in range(falls)), strict=True)
            nights.append({"accuracy": policy.accuracy, "flipped": policy.coins / 3, "shape": shape, "own": sum(own), "bets": sum(bets)})
            flipped = f"{policy.coins / 3:.0%}"
            cells = (f"{policy.accuracy:.0%}", flipped, shape, f"{sum(own)} of {falls}", f"{sum(bets)} of {falls}", percent(mean(shares)))
            night_rows.append(cells)
    values |= {"simulations": simulations, "falls": falls, "nights": nights}
    tables = (
        Table(("1,000 pairs, 15 % of them discordant", "promoted, %", "rejected, %", "questions used, %"), tuple(rows)),
        Table(("right", "flipped by a replay", "fall of 5 points", "own test finds", "bets find", "questions used, %"), tuple(night_rows)),
    )
    after = f" after {percent(mean(decided))} % of the questions" if decided else ""
    note = (
        f"{len(compared)} comparisons of stored evaluations: the rule promotes or rejects {ruled}, the test is sure of the same in "
        f"{len(decided)}{after}, of the opposite in {opposite}"
    )
    return Result(values, tables, (note,))


def _simulate(seed: int, page: int, gain: float, config: DecisionConfig) -> tuple[str, int]:
    """Draw pairs; the questions of a page differ together more often than not."""
    rng = np.random.default_rng(seed)
    chances = [(DISCORDANT + gain) / 2, (DISCORDANT - gain) / 2, 1 - DISCORDANT]
    drawn = rng.choice([1.0, -1.0, 0.0], size=PAIRS, p=chances)
    shared = np.repeat(rng.choice([1.0, -1.0, 0.0], size=PAIRS // page, p=chances), page)
    differences = np.where(rng.random(PAIRS) < 0.5, shared, drawn) if page > 1 else drawn
    stopped = bet_on_difference(differences.tolist(), [f"page {i // page}" for i in range(PAIRS)], config.alpha, config.min_gain, seed)
    return stopped.verdict, stopped.questions


def _compare_stored(evals: Path, config: DecisionConfig) -> Iterator[tuple[str, str, float]]:
    """Compare all stored evaluations of the same questions: the rule's decision, the test's verdict, and the share of questions it used."""
    stored: list[list[EpisodeRow]] = []
    for path in sorted(evals.glob("*/manifest.json")):
        try:
            rows = load_rows(path.parent)
        except EvaluationError:  # of an earlier version
            continue
        if len({row.question_id for row in rows}) == len(rows) and not any(row.failed for row in rows):  # one whole episode of each
            stored.append(rows)
    for one, other in combinations(stored, 2):
        if [(row.question_id, row.question, row.gold) for row in one] == [(row.question_id, row.question, row.gold) for row in other]:
            for before, after in ((one, other), (other, one)):
                gains = [new.typed_match - old.typed_match for old, new in zip(before, after, strict=True)]
                stopped = bet_on_difference(gains, [row.cluster for row in before], config.alpha, config.min_gain)
                yield compare(before, after, config).decision, stopped.verdict, stopped.questions / len(gains)


def _fall(policy: Policy, seed: int, shape: str, config: NightlyConfig) -> tuple[bool, bool, float]:
    """Plant a fall on the fixed questions: does the night find it, do the bets, and after which share of the questions?"""
    series = Series(policy, 2000 + seed, config)
    for _ in range(NIGHTS_BEFORE):
        series.play(judged=False)
    green = np.mean([series.stored[night.fixed.eval_key].values for night in series.nights[: config.green_nights] if night.fixed], axis=0)
    night = series.play(FALL, 0.0, shape)
    assert night.fixed is not None
    tonight = series.stored[night.fixed.eval_key]
    slices, used = tonight.slices(), []
    for rows in slices.values():
        clusters = [tonight.clusters[i] for i in rows]
        stopped = bet_on_difference((tonight.values - green)[rows].tolist(), clusters, 2 * config.alpha / len(slices))
        if stopped.verdict == "worse":
            used.append(stopped.questions / len(rows))
    return bool(night.falls), bool(used), min(used, default=1.0)
