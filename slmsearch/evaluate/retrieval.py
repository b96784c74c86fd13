"""How well a search finds: ranks of gold pages and sections for the questions' own words, by each way of ranking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from slmsearch.corpus.questions import Question
from slmsearch.evaluate.statistics import paired_bootstrap, wilson_interval
from slmsearch.retrieval.search import SearchIndex

DEPTH = 10
"""Hits that are looked at; a gold page further down counts as not found."""
RETRIEVERS = ("lexical", "dense", "hybrid")
METRICS = ("page_at_1", "page_at_5", "section_at_1", "section_at_5")
BATCH = 256
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where one question's gold was found, from 1; 0 if not among the first `DEPTH`."""

    question_id: str
    kind: str
    page_id: str
    """Its first gold page: questions about one page are no independent witnesses."""
    page: int
    """Rank of the best gold page."""
    section: int | None
    """Rank of the best gold section; None where no section is known."""

    def value(self, metric: str) -> float | None:
        """Return a metric of this question: 0 or 1, or the reciprocal rank of the page for `mrr`."""
        if metric == "mrr":
            return 1 / self.page if self.page else 0.0
        part, _, depth = metric.partition("_at_")
        rank = self.page if part == "page" else self.section
        return None if rank is None else float(0 < rank <= int(depth))


def choose_questions(questions: Sequence[Question], limit: int, seed: int) -> list[Question]:
    """Return the questions that have a gold page, or a random sample of `limit` of them in their order; 0 takes all."""
    found = [question for question in questions if question.page_ids]
    if limit and limit < len(found):
        chosen = sorted(Random(seed).sample(range(len(found)), limit))
        return [found[i] for i in chosen]
    return found


def measure_ranks(
    index: SearchIndex, questions: Sequence[Question], ranking: str, progress: Callable[[int], None] | None = None
) -> list[Ranks]:
    """Search for every question, each with a gold page, and note where its gold came; `progress` is told the number done."""
    ranks = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        texts = [question.question for question in batch]
        found = zip(batch, index.search(texts, DEPTH, ranking), index.search_sections(texts, DEPTH, ranking), strict=True)
        for question, pages, sections in found:
            page = _rank([hit.page_id for hit in pages], question.page_ids)
            section = _rank([hit.section_id for hit in sections], question.section_ids) if question.section_ids else None
            ranks.append(Ranks(question.id, question.kind, question.page_ids[0], page, section))
        if progress:
            progress(start + len(batch))
    return ranks


def summarise_ranks(by_retriever: dict[str, list[Ranks]], alpha: float, seed: int) -> dict[str, Any]:
    """Sum ranks of the same questions in the same order up: metrics with intervals, all in all and by kind, and what fusing gains.

    Returns:
        `n`, `alpha`, `depth`, `retrievers` (metric -> value, with `intervals` and `kinds`), and `gains`: metric -> the part that the
        fused ranking is compared with, mean, low, high, p.
    """
    retrievers = {}
    for name, ranks in by_retriever.items():
        kinds = sorted({rank.kind for rank in ranks})
        of_kinds = {kind: _metrics([rank for rank in ranks if rank.kind == kind]) for kind in kinds}
        retrievers[name] = {**_metrics(ranks), "intervals": _intervals(ranks, alpha), "kinds": of_kinds}
    gains = {metric: _gain(by_retriever, metric, alpha, seed) for metric in (*METRICS, "mrr")} if len(by_retriever) == 3 else {}
    return {"n": len(next(iter(by_retriever.values()))), "alpha": alpha, "depth": DEPTH, "retrievers": retrievers, "gains": gains}


def _rank(found: Sequence[str], gold: Sequence[str]) -> int:
    return next((place for place, name in enumerate(found, start=1) if name in gold), 0)


def _values(ranks: Sequence[Ranks], metric: str) -> list[float]:
    return [value for rank in ranks if (value := rank.value(metric)) is not None]


def _metrics(ranks: Sequence[Ranks]) -> dict[str, float | None]:
    means = {}
    for metric in (*METRICS, "mrr"):
        values = _values(ranks, metric)
        means[metric] = sum(values) / len(values) if values else None
    return {"n": len(ranks), **means}


def _intervals(ranks: Sequence[Ranks], alpha: float) -> dict[str, tuple[float, float]]:
    return {metric: wilson_interval(round(sum(values)), len(values), alpha) for metric in METRICS if (values := _values(ranks, metric))}


def _gain(by_retriever: dict[str, list[Ranks]], metric: str, alpha: float, seed: int) -> dict[str, str | float] | None:
    alone = {name: _values(by_retriever[name], metric) for name in ("lexical", "dense")}
    if not alone["lexical"]:
        return None
    better = max(alone, key=lambda name: sum(alone[name]))
    known = [rank for rank in by_retriever["hybrid"] if rank.value(metric) is not None]
    differences = [new - old for new, old in zip(_values(known, metric), alone[better], strict=True)]
    found = paired_bootstrap(differences, [rank.page_id for rank in known], RESAMPLES, alpha, seed)
    return {"over": better, "mean": found.mean, "low": found.low, "high": found.high, "p": found.p}
