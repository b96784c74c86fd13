"""Evaluations reduced to what nights are compared by: a value per question, and per slice a mean with its variance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import ConfigError
from slmsearch.evaluate.metrics import row_metrics, row_values
from slmsearch.keys import content_key

ALL = "all"
"""The slice of all questions."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SliceScore:
    """How a slice of questions came out on one night."""

    n: int
    mean: float
    variance: float
    """Of the mean, had other questions of the same kind been drawn, page by page."""


@dataclass(frozen=True)
class Scores:
    """One value for each question that was played and graded, in the order of their ids."""

    ids: tuple[str, ...]
    values: Floats
    kinds: tuple[str, ...]
    clusters: tuple[str, ...]
    """First gold page; empty where none is known."""

    def slices(self) -> dict[str, NDArray[np.intp]]:
        """Return the positions of the questions of each slice: all, and each kind."""
        kinds = np.array(self.kinds)
        found = {ALL: np.arange(len(self.ids))}
        return found | {f"kind={kind}": np.flatnonzero(kinds == kind) for kind in sorted(set(self.kinds))}

    def summarise(self) -> dict[str, SliceScore]:
        """Summarise each slice."""
        return {name: _summarise(self.values[rows], [self.clusters[i] for i in rows]) for name, rows in self.slices().items() if len(rows)}


def scores_of(rows: Sequence[EpisodeRow], metric: str) -> Scores:
    """Take the values of a metric; failed rows are left out.

    Raises:
        ConfigError: the metric is no mean over questions, or has no value for some.
    """
    if metric not in row_metrics():
        raise ConfigError(f"decision.metric {metric!r} is no mean over questions; use one of {', '.join(row_metrics())}")
    graded = sorted((row for row in rows if not row.failed), key=lambda row: row.question_id)
    values = row_values(graded, metric)
    if any(value is None for value in values):
        raise ConfigError(f"decision.metric {metric!r} is undefined for some questions; use answer/exact_match")
    return Scores(
        ids=tuple(row.question_id for row in graded),
        values=np.array(values, dtype=np.float64),
        kinds=tuple(row.kind for row in graded),
        clusters=tuple(row.cluster for row in graded),
    )


def questions_key(rows: Sequence[EpisodeRow]) -> str:
    """Name the questions that rows are of, with their answers: equal keys may be compared question by question."""
    return content_key(questions=sorted([row.question_id, row.question, row.gold] for row in rows))


def common(scores: Sequence[Scores]) -> tuple[list[Floats], Scores]:
    """Keep the questions that were graded in all of several evaluations of the same questions.

    Returns:
        The values of each, in the same order, and the first of them cut to those questions.
    """
    shared = sorted(set.intersection(*(set(part.ids) for part in scores)))
    columns = []
    for part in scores:
        places: Mapping[str, int] = {name: i for i, name in enumerate(part.ids)}
        columns.append(part.values[[places[name] for name in shared]])
    first = scores[0]
    places = {name: i for i, name in enumerate(first.ids)}
    kinds, clusters = (tuple(column[places[name]] for name in shared) for column in (first.kinds, first.clusters))
    return columns, Scores(tuple(shared), columns[0], kinds, clusters)


def _summarise(values: Floats, clusters: Sequence[str]) -> SliceScore:
    """Estimate a mean and its variance over clusters (Miller, arXiv 2411.00640), never below that of one more hit and one more miss."""
    n, mean = len(values), float(values.mean())
    names = [f"c{name}" if name else f"q{i}" for i, name in enumerate(clusters)]
    places: dict[str, int] = {}
    member_of = np.array([places.setdefault(name, len(places)) for name in names])
    clustered = float((np.bincount(member_of, weights=values - mean) ** 2).sum()) / n**2
    share = (float(values.sum()) + 1) / (n + 2)
    floor = share * (1 - share) / (n + 2) if np.isin(values, (0.0, 1.0)).all() else 0.0
    return SliceScore(n, mean, max(clustered, floor))
