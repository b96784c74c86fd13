"""Share of wrong ones among the surest answers: risk over coverage (El-Yaniv, Wiener, 2010), from stored rows, without a calibration."""

from collections.abc import Sequence

from slmsearch.environments.searcher.failure_modes import SURENESS
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.confidence import KeptAnswers
from slmsearch.intervals import wilson_interval

PARTS = 20
"""Number of parts of the questions; the answers are counted after each."""


def rank_answers(rows: Sequence[EpisodeRow], alpha: float) -> list[KeptAnswers]:
    """Return the surest answers for each part of the questions and, last, all answers; answers that are as sure count together.

    Args:
        rows: rows of one policy; failed ones are left out, and ones without an answer count as asked.
        alpha: level of the intervals.

    Returns:
        The surest twentieth of the questions first, with Wilson intervals; empty if nothing ranks the answers. The threshold is of the
        metric that ranks them.
    """
    graded = [row for row in rows if not row.failed]
    given = [row for row in graded if row.answer is not None and not row.abstained]
    by = next((name for name in SURENESS if given and all(name in row.measured for row in given)), None)
    if by is None:
        return []
    ranked = sorted(((row.measured[by], row.correct < 0.5) for row in given), reverse=True)
    ends = [n for n in range(1, len(ranked) + 1) if n == len(ranked) or ranked[n - 1][0] != ranked[n][0]]
    wanted = [part * len(graded) / PARTS for part in range(1, PARTS + 1)]
    found = []
    for n in dict.fromkeys(next((n for n in ends if n >= least), ends[-1]) for least in wanted):
        wrong = sum(bad for _, bad in ranked[:n])
        found.append(KeptAnswers(ranked[n - 1][0], n / len(graded), wrong / n, *wilson_interval(wrong, n, alpha), n))
    return found
