"""Measures of trust beside accuracy, from evaluations on twins and of repeated episodes; each share has an interval clustered by page.

both right      question and twin are both answered rightly: the stated answer is found, and a missing one is reported as unknown
grounded        of the questions answered rightly: without the texts that state the answer it changes, and follows them if they are
                replaced (the withdrawal test)
pass@k          any of k sampled episodes of a question is right
majority@k      the most frequent answer is right; of equally frequent ones the first
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slmsearch.config import DecisionConfig
from slmsearch.environments.searcher.twins import UNKNOWABLE, base_id
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.metrics import slice_names
from slmsearch.evaluate.statistics import paired_bootstrap
from slmsearch.intervals import wilson_interval
from slmsearch.judge.exact import typed_match

SAMPLED = "sampled"
"""Name of the evaluation of repeated episodes among those of `measure_trust`."""
Rows = Sequence[EpisodeRow]
ById = Mapping[str, EpisodeRow]


@dataclass(frozen=True, slots=True)
class Share:
    """A share of questions, with its interval."""

    value: float
    low: float
    high: float
    n: int


def measure_trust(whole: Rows, others: Mapping[str, Rows], config: DecisionConfig) -> dict[str, dict[str, Share]]:
    """Compute the measures that the given evaluations allow; failed episodes do not count.

    Args:
        whole: rows on the unchanged corpus.
        others: rows of the same policy by view, and of repeated episodes under `SAMPLED`.
        config: level and resamples of intervals.

    Returns:
        Measure -> slice (`all` first) -> share. Measures are `twins/both_right` and `twins/unknown_right`, over all twins and for each
        kind of them (`twins/both_right/renamed`), `answer/grounded_frac`, `answer/pass_at_k` and `answer/majority_at_k`.
    """
    played = {row.question_id: row for row in whole if not row.failed}
    of_twins = {
        twin: {base_id(row.question_id): row for row in rows if not row.failed and base_id(row.question_id) in played}
        for twin, rows in others.items()
        if twin != SAMPLED
    }
    asked = {twin: [(played[name], row) for name, row in of_twins[twin].items()] for twin in UNKNOWABLE if twin in of_twins}
    pairs = {"": [pair for some in asked.values() for pair in some], **{f"/{twin}": some for twin, some in asked.items()}}
    values: dict[str, list[tuple[EpisodeRow, float]]] = {}
    for name, some in pairs.items() if asked else ():
        values[f"twins/both_right{name}"] = [(row, row.correct * twin.correct) for row, twin in some]
        values[f"twins/unknown_right{name}"] = [(row, twin.correct) for row, twin in some]
    if {"withdrawn", "replaced"} <= set(of_twins):
        values["answer/grounded_frac"] = list(_grounded(played, of_twins["withdrawn"], of_twins["replaced"]))
    if SAMPLED in others:
        groups: dict[str, list[EpisodeRow]] = {}
        for row in others[SAMPLED]:
            groups.setdefault(row.question_id, []).append(row)
        sampled = [group for group in groups.values() if not any(row.failed for row in group)]
        values["answer/pass_at_k"] = [(group[0], float(any(row.correct for row in group))) for group in sampled]
        values["answer/majority_at_k"] = [(group[0], _majority(group)) for group in sampled]
    return {name: _slices(found, config) for name, found in values.items() if found}


def _grounded(whole: ById, withdrawn: ById, replaced: ById) -> Iterable[tuple[EpisodeRow, float]]:
    for name, row in whole.items():
        if row.correct and row.answer and name in withdrawn and name in replaced:
            yield row, float(not typed_match(withdrawn[name].answer, (row.answer,)) and bool(replaced[name].correct))


def _majority(group: Rows) -> float:
    same: dict[str | None, list[EpisodeRow]] = {}  # by the first of equal answers
    for row in group:
        given = next((first for first in same if first == row.answer or (first and typed_match(row.answer, (first,)))), row.answer)
        same.setdefault(given, []).append(row)
    return max(same.values(), key=len)[0].correct  # `max` takes the first of equally long lists


def _slices(values: Sequence[tuple[EpisodeRow, float]], config: DecisionConfig) -> dict[str, Share]:
    slices: dict[str, list[tuple[EpisodeRow, float]]] = {"all": list(values)}
    for row, value in values:
        for name in slice_names(row):
            slices.setdefault(name, []).append((row, value))
    return {name: _share(some, config) for name, some in slices.items()}


def _share(values: Sequence[tuple[EpisodeRow, float]], config: DecisionConfig) -> Share:
    numbers, clusters = [value for _, value in values], [row.cluster for row, _ in values]
    found = paired_bootstrap(numbers, clusters, config.resamples, config.alpha, config.seed)
    low, high = wilson_interval(round(sum(numbers)), len(numbers), config.alpha)
    if 0 < found.mean < 1:  # where all values are equal resampling shows no spread
        low, high = found.low, found.high
    return Share(found.mean, low, high, len(numbers))
