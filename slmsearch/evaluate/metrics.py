"""Metrics of evaluated rows: values for comparisons question by question, and summaries.

`docs/metrics.md` lists every name. A further environment adds the names of its rows. Intervals and tests are in `evaluate/statistics.py`.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import fsum

from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError

FAULTS = "faults/"
"""Prefix of the metrics for shares of plans with one fault."""

_MEANS: dict[str, Callable[[EpisodeRow], float | None]] = {
    "answer/typed_match": lambda row: row.typed_match,
    "answer/exact_match": lambda row: row.exact_match,
    "answer/f1": lambda row: row.f1,
    "answer/rouge_l": lambda row: row.rouge_l,
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


def metric_values(rows: Iterable[EpisodeRow], metric: str) -> list[float]:
    """Return one metric's value of each row.

    Raises:
        ConfigError: the metric is not a mean over rows, or undefined for some of them, so that it cannot be compared question by question.
    """
    if metric not in _MEANS:
        raise ConfigError(f"decision.metric {metric!r} is no mean over questions; use one of {', '.join(_MEANS)}")
    values = [_MEANS[metric](row) for row in rows]
    undefined = sum(value is None for value in values)
    if undefined:
        raise ConfigError(f"decision.metric {metric!r} is undefined for {undefined} of {len(values)} questions; use answer/typed_match")
    return [float(value) for value in values if value is not None]


def summarise(rows: Sequence[EpisodeRow]) -> dict[str, float]:
    """Summarise rows under the names of `docs/metrics.md`; a metric that no row defines is left out.

    Failed rows are counted (`stop/failed`, `errors/<boundary>`) and excluded from every mean; `stop/<reason>` are shares of all rows.
    """
    if not rows:
        return {}
    graded = [row for row in rows if not row.failed]
    summary: dict[str, float] = {}
    for name, value_of in _MEANS.items():
        values = [float(value) for row in graded if (value := value_of(row)) is not None]
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
    """Average the metrics of a single environment; faults are counted over all rows, because only rows with a fault name it."""
    summary: dict[str, float] = {}
    for name in dict.fromkeys(name for row in graded for name in row.measured):
        values = [row.measured[name] for row in graded if name in row.measured]
        summary[name] = fsum(values) / (len(graded) if name.startswith(FAULTS) else len(values))
    solved = fsum(row.correct for row in graded)
    if "plan/tokens" in summary and solved:
        summary["plan/tokens_per_solved"] = summary["plan/tokens"] * len(graded) / solved
    return summary


def slice_rows(rows: Iterable[EpisodeRow]) -> dict[str, list[EpisodeRow]]:
    """Sort rows into the slices `kind=<kind>`, `hops=<n>` and `source=<name>`, in alphabetical order; unknown values make no slice."""
    slices: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for row in rows:
        for name in slice_names(row):
            slices[name].append(row)
    return dict(sorted(slices.items()))


def slice_names(row: EpisodeRow) -> tuple[str, ...]:
    """Return the names of a row's slices."""
    known = {"kind": row.kind, "hops": row.hops, "source": row.source}
    return tuple(f"{name}={value}" for name, value in known.items() if value)


def summarise_slices(rows: Iterable[EpisodeRow]) -> dict[str, dict[str, float]]:
    """Summarise each slice by itself, with its number of rows, failed ones included, as `n`."""
    return {name: {"n": len(members), **summarise(members)} for name, members in slice_rows(rows).items()}


def sample_rows(rows: Sequence[EpisodeRow], limit: int, seed: int) -> list[int]:
    """Choose at most `limit` rows worth keeping as traces, spread evenly over right and wrong, kind and stop reason.

    Every stratum gives one row before any gives a second, so that small strata are over-represented, on purpose.

    Returns:
        Indices into `rows`, ascending.
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
