"""Comparison of two evaluations of the same questions, and the decision whether the second is promoted.

The rule, first match wins. The interval is that of the mean paired difference (after - before) of `DecisionConfig.metric`:

1. `inconclusive`: fewer than `min_questions` pairs.
2. `inconclusive`: more than `max_failed_frac` of the pairs were lost because an episode failed on either side.
3. `hold`: the interval excludes 0, but of right and wrong answers McNemar's exact test does not, at `alpha`: too few of them changed.
   `reject`: the whole interval lies below 0.
4. `hold`: a slice vetoes. A slice, by kind, hops or source, of at least `min_slice` pairs vetoes if its mean loss exceeds
   `worst_slice_loss` and the loss is significant at `alpha` after Holm's correction over all slices of that size.
5. `promote`: the interval's lower end lies above `min_gain`.
6. `hold`: anything else; the interval includes 0, or the gain is too small.

Fails closed: evaluations of different questions are an error; their common questions are not compared. The decision is a pure function of
stored rows and config, so that `replay` repeats it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from pathlib import Path
from typing import Literal

from slmsearch.config import DecisionConfig
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.metrics import metric_values, slice_names
from slmsearch.evaluate.statistics import (
    Difference,
    McNemar,
    holm_adjust,
    mcnemar_exact,
    paired_bootstrap,
    smallest_detectable_effect,
)
from slmsearch.evaluate.store import load_rows
from slmsearch.intervals import show_interval

FEWEST_CLUSTERS = 10
"""Smallest number of clusters that are resampled for an interval."""
Decision = Literal["promote", "hold", "reject", "inconclusive"]
BINARY_METRICS = ("answer/typed_match", "answer/exact_match", "answer/correct")
"""Metrics that are 0 or 1 for each question."""
_MAX_LISTED = 3
"""Number of question ids named in an error message."""


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """The same comparison within one slice."""

    name: str
    n: int
    before: float
    after: float
    exact_before: float
    """SQuAD's exact match, which does not affect the decision."""
    exact_after: float
    rouge_l_before: float | None
    """ROUGE-L over the long gold answers, which does not affect the decision; None where all are short."""
    rouge_l_after: float | None
    difference: Difference
    p_holm: float | None
    """p-value corrected over all slices that may veto; None for a slice too small for a veto."""
    vetoes: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations compared question by question, with the decision."""

    metric: str
    n: int
    """Number of pairs in which both episodes were played and graded."""
    failed: int
    """Number of pairs left out because an episode failed on either side."""
    before: float
    after: float
    exact_before: float
    """SQuAD's exact match, which does not affect the decision."""
    exact_after: float
    rouge_l_before: float | None
    """ROUGE-L over the long gold answers, which does not affect the decision; None where all are short."""
    rouge_l_after: float | None
    difference: Difference
    mcnemar: McNemar | None
    """McNemar's test; None for metrics that are not right or wrong."""
    mde: float
    """Smallest difference that this number of pairs would have shown with power 0.8."""
    slices: tuple[SliceComparison, ...]
    decision: Decision
    reason: str
    """Reason for the decision, in one sentence."""

    def to_dict(self) -> dict[str, object]:
        """Convert the comparison to JSON-serialisable values."""
        return {**asdict(self), "slices": [asdict(part) for part in self.slices]}


def compare(before: Sequence[EpisodeRow], after: Sequence[EpisodeRow], config: DecisionConfig) -> Comparison:
    """Compare two evaluations of the same questions and decide by the rule of this module.

    Args:
        before: rows of the reference.
        after: rows of the candidate.
        config: metric and limits of the rule.

    Raises:
        EvaluationError: the questions differ, or no question is graded on both sides.
        ConfigError: the metric cannot be compared question by question.
    """
    all_pairs = _pair(before, after)
    pairs = [pair for pair in all_pairs if not (pair[0].failed or pair[1].failed)]
    failed = len(all_pairs) - len(pairs)
    old, new = (metric_values([pair[side] for pair in pairs], config.metric) for side in (0, 1))
    if not pairs:
        raise EvaluationError(f"all {failed} pairs hold a failed episode; fix the service named in their failures and evaluate again")
    difference = _difference(pairs, old, new, config)
    # Without a discordant pair the variance is unknown, not 0: take the upper end of the rule of three.
    mean_square = fsum((b - a) ** 2 for a, b in zip(old, new, strict=True)) / len(pairs) or min(1.0, 3 / len(pairs))
    binary = config.metric in BINARY_METRICS
    exact = _exact_test(old, new) if binary else None
    slices = _compare_slices(pairs, old, new, config)
    decision, reason = _decide(len(pairs), failed, difference, exact, slices, config)
    return Comparison(
        metric=config.metric,
        n=len(pairs),
        failed=failed,
        before=fsum(old) / len(old),
        after=fsum(new) / len(new),
        exact_before=_exact_match(pairs, 0),
        exact_after=_exact_match(pairs, 1),
        rouge_l_before=_rouge_l(pairs, 0),
        rouge_l_after=_rouge_l(pairs, 1),
        difference=difference,
        mcnemar=exact,
        mde=smallest_detectable_effect(len(pairs), mean_square, config.alpha),
        slices=slices,
        decision=decision,
        reason=reason,
    )


def replay(before_path: Path, after_path: Path, config: DecisionConfig) -> Comparison:
    """Compare two stored evaluations, named by directory or `rows.jsonl`; the same rows and config give the identical comparison."""
    return compare(load_rows(before_path), load_rows(after_path), config)


def shared_rows(before: Sequence[EpisodeRow], after: Sequence[EpisodeRow]) -> tuple[list[EpisodeRow], list[EpisodeRow]]:
    """Keep the rows of questions that both sides hold: some policies play only a part of the questions."""
    common = {row.question_id for row in before} & {row.question_id for row in after}
    kept = [[row for row in rows if row.question_id in common] for rows in (before, after)]
    return kept[0], kept[1]


Pair = tuple[EpisodeRow, EpisodeRow]


def _pair(before: Sequence[EpisodeRow], after: Sequence[EpisodeRow]) -> list[Pair]:
    old, new = _by_question(before, "before"), _by_question(after, "after")
    missing, extra = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if missing or extra:
        raise EvaluationError(
            f"{len(missing)} questions are missing after and {len(extra)} before ({', '.join((missing + extra)[:_MAX_LISTED])} ...); "
            "evaluate both policies on the same questions"
        )
    if not old:
        raise EvaluationError("both evaluations are empty; evaluate at least one question")
    changed = [key for key in old if (old[key].question, old[key].gold) != (new[key].question, new[key].gold)]
    if changed:
        raise EvaluationError(
            f"{len(changed)} questions have another text or answer on the other side ({', '.join(changed[:_MAX_LISTED])} ...); "
            "evaluate both policies on the same corpus"
        )
    return [(old[key], new[key]) for key in sorted(old)]


def _by_question(rows: Sequence[EpisodeRow], side: str) -> dict[str, EpisodeRow]:
    found = {row.question_id: row for row in rows}
    if len(found) != len(rows):
        raise EvaluationError(f"{len(rows) - len(found)} rows of {side} repeat a question; compare one episode per question")
    return found


def _difference(
    pairs: Sequence[Pair], old: Sequence[float], new: Sequence[float], config: DecisionConfig, resamples: int = 0
) -> Difference:
    differences, clusters = [b - a for a, b in zip(old, new, strict=True)], [pair[0].cluster for pair in pairs]
    found = paired_bootstrap(differences, clusters, resamples or config.resamples, config.alpha, config.seed)
    return _of_few(found, differences, clusters, config.alpha) if 1 < len(set(clusters)) < FEWEST_CLUSTERS and "" not in clusters else found


def _of_few(found: Difference, differences: Sequence[float], clusters: Sequence[str], alpha: float) -> Difference:
    """Take Student's interval of a ratio of sums over clusters: resampled, a few clusters give one that is far too short."""
    from scipy.stats import t

    apart: dict[str, float] = defaultdict(float)
    for name, difference in zip(clusters, differences, strict=True):
        apart[name] += difference - found.mean
    freedom = len(apart) - 1
    error = math.sqrt(len(apart) / freedom * fsum(part * part for part in apart.values())) / len(differences)
    half = error * float(t.ppf(1 - alpha / 2, freedom))
    p = float(2 * t.sf(abs(found.mean) / error, freedom)) if error else found.p
    return replace(found, low=found.mean - half, high=found.mean + half, p=p)


def _exact_match(pairs: Sequence[Pair], side: int) -> float:
    return fsum(pair[side].exact_match for pair in pairs) / len(pairs)


def _rouge_l(pairs: Sequence[Pair], side: int) -> float | None:
    known = [value for pair in pairs if (value := pair[side].rouge_l) is not None]
    return fsum(known) / len(known) if known else None


def _compare_slices(
    pairs: Sequence[Pair], old: Sequence[float], new: Sequence[float], config: DecisionConfig
) -> tuple[SliceComparison, ...]:
    positions: dict[str, list[int]] = {}
    for i, (row, _) in enumerate(pairs):
        for name in slice_names(row):
            positions.setdefault(name, []).append(i)
    eligible = [name for name, indices in sorted(positions.items()) if len(indices) >= config.min_slice]
    # The smallest p-value of R resamples is 2 / (R + 1), and Holm multiplies it by the number of slices.
    finer = max(config.resamples, math.ceil(4 * len(eligible) / config.alpha))
    found = []
    for name, indices in sorted(positions.items()):
        part = ([pairs[i] for i in indices], [old[i] for i in indices], [new[i] for i in indices])
        difference = _difference(*part, config, finer if name in eligible else 0)
        if config.metric in BINARY_METRICS:  # a resampled mean of a few questions that all changed alike is surer than they are
            difference = replace(difference, p=max(difference.p, _exact_test(*part[1:]).p))
        found.append((name, part, difference))
    adjusted = dict(zip(eligible, holm_adjust([diff.p for name, _, diff in found if name in eligible]), strict=True))
    return tuple(
        SliceComparison(
            name=name,
            n=len(a),
            before=fsum(a) / len(a),
            after=fsum(b) / len(b),
            exact_before=_exact_match(members, 0),
            exact_after=_exact_match(members, 1),
            rouge_l_before=_rouge_l(members, 0),
            rouge_l_after=_rouge_l(members, 1),
            difference=difference,
            p_holm=adjusted.get(name),
            vetoes=difference.mean < -config.worst_slice_loss and adjusted.get(name, 1.0) < config.alpha,
        )
        for name, (members, a, b), difference in found
    )


def _exact_test(old: Sequence[float], new: Sequence[float]) -> McNemar:
    return mcnemar_exact([v > 0.5 for v in old], [v > 0.5 for v in new])


def _decide(
    n: int, failed: int, difference: Difference, exact: McNemar | None, slices: Sequence[SliceComparison], config: DecisionConfig
) -> tuple[Decision, str]:
    interval = f"{100 * (1 - config.alpha):g} % interval {show_interval(difference.low, difference.high)}"
    if n + failed < config.min_questions:
        return "inconclusive", f"Only {n + failed} paired questions, the rule asks for {config.min_questions}."
    if failed > config.max_failed_frac * (n + failed):
        return "inconclusive", f"{failed} of {n + failed} pairs hold a failed episode, more than {config.max_failed_frac:.0%}."
    if exact is not None and exact.p >= config.alpha and not difference.low <= 0 <= difference.high:
        changed = f"{exact.gained + exact.lost} questions changed"
        return "hold", f"{config.metric} changed by {difference.mean:+.3f}, but only {changed} (McNemar p {exact.p:.3f})."
    if difference.high < 0:
        return "reject", f"{config.metric} fell by {-difference.mean:.3f}, {interval}."
    vetoes = [part for part in slices if part.vetoes]
    if vetoes:
        worst = min(vetoes, key=lambda part: part.difference.mean)
        return "hold", f"Slice {worst.name} lost {-worst.difference.mean:.3f} on {worst.n} questions (Holm p {worst.p_holm:.3f})."
    if difference.low > config.min_gain:
        return "promote", f"{config.metric} rose by {difference.mean:.3f}, {interval} above {config.min_gain:g}."
    return "hold", f"{config.metric} changed by {difference.mean:+.3f}, {interval} not above {config.min_gain:g}."
