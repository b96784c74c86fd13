"""Share of wrong ones among the surest answers: risk over coverage (El-Yaniv, Wiener, 2010), from stored rows, without a calibration."""

from collections.abc import Sequence
from dataclasses import dataclass

from slmsearch.environments.searcher.failure_modes import SURENESS
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.intervals import wilson_interval

PARTS = 20
"""Number of parts of the questions; the answers are counted after each."""


@dataclass(frozen=True, slots=True)
class Surest:
    """The surest answers of a policy."""

    answered_frac: float
    """Share of all questions that they answer."""
    wrong_frac: float
    low: float
    high: float
    """Wilson interval of the share of wrong ones."""
    n: int
    """Number of answers."""


def rank_answers(rows: Sequence[EpisodeRow], alpha: float) -> list[Surest]:
    """Return the surest answers for each part of the questions and, last, all answers; answers that are as sure count together.

    Args:
        rows: rows of one policy; failed ones are left out, and ones without an answer count as asked.
        alpha: level of the intervals.

    Returns:
        The surest twentieth of the questions first; empty if nothing ranks the answers.
    """
    graded = [row for row in rows if not row.failed]
    given = [row for row in graded if row.answer is not None and not row.abstained]
    by = next((name for name in SURENESS if given and all(name in row.measured for row in given)), None)
    if by is None:
        return []
    ranked = sorted(((row.measured[by], row.correct < 0.5) for row in given), reverse=True)
    ends = [n for n in range(1, len(ranked) + 1) if n == len(ranked) or ranked[n - 1][0] != ranked[n][0]]
    wanted = [part * len(graded) / PARTS for part in range(1, PARTS + 1)]
    found = dict.fromkeys([*(next((n for n in ends if n >= least), ends[-1]) for least in wanted)])
    return [_count(ranked[:n], len(graded), alpha) for n in found]


def _count(answers: Sequence[tuple[float, bool]], asked: int, alpha: float) -> Surest:
    wrong, n = sum(bad for _, bad in answers), len(answers)
    return Surest(n / asked, wrong / n, *wilson_interval(wrong, n, alpha), n)
