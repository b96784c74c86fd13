"""The one list of metric names, and the summary of evaluated rows under those names.

An environment of your own adds the names that its rows measure. The same names stand under `eval/` for
evaluations made during training. Statistics (intervals, tests) are in `evaluate/statistics.py`.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import fsum

from slmsearch.environments.rows import EpisodeRow
from slmsearch.searcher.episode import StopReason

METRICS: dict[str, str] = {
    "reward/mean": "mean reward",
    "reward/std": "standard deviation of the reward within a group, mean over groups; 0 means nothing to learn from",
    "reward/correct": "mean of the part paid for right answers",
    "reward/format": "mean of the part paid for well-formed answers",
    "reward/call_cost": "mean of the part taken from right answers per tool call (negative)",
    "reward/evidence_read": "mean of the part paid for gold sections read",
    "reward/random": "mean of the random control",
    "reward/malformed": "mean of the part for malformed episodes",
    "reward/abstained": "mean of the part for abstaining where there is an answer",
    "reward/tokens": "planner: mean of the part paid for few tokens",
    "reward/independence": "planner: mean of the part paid for independent subproblems",
    "reward/hacked": "planner: mean of the part for plans that a reward-hacking filter refuses (negative)",
    "plan/decomposed_frac": "share of problems that the plan splits",
    "plan/subproblems": "mean subproblems of a plan",
    "plan/single_frac": "share of plans with exactly one subproblem",
    "plan/independence": "mean dissimilarity of the subproblems of a plan that has several, 0 to 1",
    "plan/answerable_frac": "mean share of a plan's subproblems that the worker could answer",
    "plan/alone_frac": "share of problems that the worker alone gets right",
    "plan/gain": "share right minus the share that the worker alone gets right",
    "plan/worker_tokens": "mean tokens the worker read and wrote",
    "plan/tokens": "mean tokens of planner and worker together",
    "plan/tokens_per_solved": "tokens of planner and worker per problem solved",
    "plan/leaked_frac": "share of plans with a number that cannot come from the problem",
    "plan/restated_frac": "share of plans with a subproblem that is the problem itself",
    "plan/trivial_frac": "share of plans with a subproblem that leaves nothing to compute",
    "plan/duplicated_frac": "share of plans that ask the same twice",
    "plan/hacked_frac": "share of plans that some filter refuses",
    "answer/exact_match": "share of answers equal to an alias after SQuAD's normalisation",
    "answer/f1": "mean token F1 with the best alias",
    "answer/correct": "share of answers the judge calls right; equals exact_match with the exact judge",
    "answer/abstained_frac": "share of episodes that said they do not know",
    "search/first_hit_frac": "share with the first gold page among the hits of the first search",
    "search/any_hit_frac": "share with every gold page among the hits of some search",
    "search/gold_read_frac": "share that read every gold section",
    "answer/words": "mean words of the answers given",
    "episode/searches": "mean searches",
    "episode/turns": "mean assistant messages",
    "episode/tool_calls": "mean tool calls, unserved ones included",
    "episode/single_call_frac": "share with exactly one tool call",
    "episode/common_call_frac": "share that make the call that is the most common in the step; 1 means the same call for every question",
    "episode/unserved_calls": "mean calls that could not be served",
    "episode/told_turns": "mean malformed messages that were answered with what is wrong with them",
    "episode/sampled_tokens": "mean tokens the policy wrote",
    "episode/completion_tokens": "mean tokens after the prompt, tool results included",
    "stop/answered": "share of episodes that ended with an answer",
    "stop/max_turns": "share that used all turns without an answer",
    "stop/max_tokens": "share cut off by a token or time limit",
    "stop/malformed": "share that ended on text that is neither a call nor an answer",
    "stop/failed": "share lost to a broken service; left out of every other mean",
    "group/zero_advantage_frac": "share of groups whose rewards are all equal",
    "policy/kl_sampler": "mean log-probability gap between sampler and trainer, nats per token",
    "policy/kl_reference": "KL to the reference, nats per token",
    "policy/logprob_right": "mean log-probability of a token in right episodes, nats",
    "policy/logprob_wrong": "mean log-probability of a token in wrong episodes, nats",
    "policy/entropy": "mean entropy of the policy at sampled tokens, nats",
    "optim/grad_norm": "norm of the gradient before clipping",
    "optim/learning_rate": "learning rate of the step",
    "loss": "training loss",
    "time/step_s": "seconds of a training step",
    "time/rollout_s": "seconds of a step spent playing episodes",
    "time/judge_wait_s": "seconds a step waited for verdicts after its last episode had ended; missing with the exact judge",
    "time/judge_verdict_s": "median seconds of one verdict on the calibration set",
    "judge/accuracy": "share of the calibration set judged right",
    "judge/false_accept_frac": "share of wrong answers of the calibration set called right",
    "judge/false_reject_frac": "share of right answers of the calibration set called wrong",
    "judge/failed": "answers of the calibration set without a verdict",
    "judge/kappa_exact": "Cohen's kappa of the judge and exact match on the calibration set",
    "judge/kappa_known": "Cohen's kappa of the judge and the known verdicts on the calibration set",
    "time/episode_s": "mean seconds from the first prompt to the end of an episode, batch mates included",
}
"""Name -> meaning and unit, `_frac` and shares from 0 to 1."""

FAULTS = "faults/"
FAMILIES = ("errors/", FAULTS)
"""Prefixes of names that depend on what happened: `errors/<boundary>` counts episodes lost at that boundary, `faults/<fault>` is the
share of plans with that fault."""


_MEANS: dict[str, Callable[[EpisodeRow], float | None]] = {
    "answer/exact_match": lambda row: row.exact_match,
    "answer/f1": lambda row: row.f1,
    "answer/correct": lambda row: row.correct,
    "answer/abstained_frac": lambda row: row.abstained,
    "search/first_hit_frac": lambda row: row.first_hit,
    "search/any_hit_frac": lambda row: row.any_hit,
    "search/gold_read_frac": lambda row: row.gold_read,
    "episode/turns": lambda row: row.turns,
    "episode/tool_calls": lambda row: row.tool_calls,
    "episode/unserved_calls": lambda row: row.unserved_calls,
    "episode/told_turns": lambda row: row.told_turns,
    "episode/sampled_tokens": lambda row: row.sampled_tokens,
    "episode/completion_tokens": lambda row: row.completion_tokens,
    "reward/mean": lambda row: row.reward,
    "time/episode_s": lambda row: row.seconds,
}


def is_metric(name: str) -> bool:
    """Say whether a name is in the one list, under `eval/` or not."""
    bare = name.removeprefix("eval/")
    return bare in METRICS or any(bare.startswith(family) and len(bare) > len(family) for family in FAMILIES)


def row_values(rows: Iterable[EpisodeRow], metric: str) -> list[float | None]:
    """Take one metric's value of each row; None where it is not defined for that row.

    Raises:
        KeyError: the metric is not a mean over rows.
    """
    rows = list(rows)
    if metric not in _MEANS and (metric in METRICS or any(metric in row.measured for row in rows)):
        return [row.measured.get(metric) for row in rows]
    values = map(_MEANS[metric], rows)
    return [None if value is None else float(value) for value in values]


def row_metrics() -> tuple[str, ...]:
    """List the metrics that are means over rows, and can therefore be compared question by question."""
    return tuple(_MEANS)


def summarise(rows: Sequence[EpisodeRow]) -> dict[str, float]:
    """Summarise rows under the names of `METRICS`; a metric that no row defines is left out.

    Failed rows are counted (`stop/failed`, `errors/<boundary>`) and are in no mean; `stop/<reason>` are shares of all rows.
    """
    if not rows:
        return {}
    graded = [row for row in rows if not row.failed]
    summary: dict[str, float] = {}
    for name in _MEANS:
        values = [value for value in row_values(graded, name) if value is not None]
        if values:
            summary[name] = fsum(values) / len(values)
    if graded:
        parts = dict.fromkeys(part for row in graded for part in row.reward_parts)
        summary |= {f"reward/{part}": fsum(row.reward_parts.get(part, 0.0) for row in graded) / len(graded) for part in parts}
        summary |= _summarise_measured(graded)
    summary |= {f"stop/{reason}": sum(row.stop_reason == reason for row in rows) / len(rows) for reason in StopReason}
    for row in rows:
        if row.failed:
            name = f"errors/{row.failure.partition(':')[0]}"
            summary[name] = summary.get(name, 0.0) + 1
    return summary


def _summarise_measured(graded: Sequence[EpisodeRow]) -> dict[str, float]:
    """Average what only one environment has; a fault is counted over all rows, for only rows that have it name it."""
    summary: dict[str, float] = {}
    for name in dict.fromkeys(name for row in graded for name in row.measured):
        values = [row.measured[name] for row in graded if name in row.measured]
        summary[name] = fsum(values) / (len(graded) if name.startswith(FAULTS) else len(values))
    solved = fsum(row.correct for row in graded)
    if "plan/tokens" in summary and solved:
        summary["plan/tokens_per_solved"] = summary["plan/tokens"] * len(graded) / solved
    return summary


def slice_rows(rows: Iterable[EpisodeRow]) -> dict[str, list[EpisodeRow]]:
    """Sort rows into the slices `kind=<kind>` and `hops=<n>`, in alphabetical order; unknown hops make no slice."""
    slices: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for row in rows:
        for name in slice_names(row):
            slices[name].append(row)
    return dict(sorted(slices.items()))


def slice_names(row: EpisodeRow) -> tuple[str, ...]:
    """Name the slices a row belongs to."""
    return (f"kind={row.kind}", f"hops={row.hops}") if row.hops else (f"kind={row.kind}",)


def summarise_slices(rows: Iterable[EpisodeRow]) -> dict[str, dict[str, float]]:
    """Summarise each slice by itself."""
    return {name: summarise(members) for name, members in slice_rows(rows).items()}


def sample_rows(rows: Sequence[EpisodeRow], limit: int, seed: int) -> list[int]:
    """Choose at most `limit` rows worth keeping as traces, spread evenly over right and wrong, kind and stop reason.

    Every stratum gives one row before any gives a second; small strata are therefore over-represented, on purpose.
    Returns indices into `rows`, ascending.
    """
    strata: defaultdict[tuple[bool, str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        strata[(row.correct > 0.5, row.kind, row.stop_reason)].append(i)
    chance = random.Random(seed)
    queues = [chance.sample(members, len(members)) for _, members in sorted(strata.items())]
    chance.shuffle(queues)  # otherwise a limit below the number of strata would always drop the same ones
    chosen: list[int] = []
    while len(chosen) < limit and any(queues):
        for queue in queues:
            if queue and len(chosen) < limit:
                chosen.append(queue.pop())
    return sorted(chosen)
