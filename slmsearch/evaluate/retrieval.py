"""Quality of a search: ranks of gold pages and sections for the questions' own words, by each way of ranking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from slmsearch.corpus.questions import Question
from slmsearch.evaluate.statistics import paired_bootstrap
from slmsearch.intervals import wilson_interval
from slmsearch.retrieval.search import SearchIndex

DEPTH = 10
"""Number of hits that count; a gold page further down counts as not found."""
RETRIEVERS = ("lexical", "dense", "hybrid")
METRICS = ("page_at_1", "page_at_5", "all_pages_at_5", "all_pages_at_10", "section_at_1", "section_at_5")
"""Names of shares; `all_pages` is over questions with several gold pages, `section` over those whose section is known."""
BATCH = 256
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of one question's gold, from 1; 0 if not among the first `DEPTH`."""

    question: Question
    page: int
    """Rank of the best gold page."""
    all_pages: int | None
    """Rank of the last gold page, 0 if one of them is not found; None for a single gold page."""
    section: int | None
    """Rank of the best gold section; None where no section is known."""

    @property
    def cluster(self) -> str:
        """First gold page: questions about one page are not independent."""
        return self.question.page_ids[0]

    def value(self, metric: str) -> float | None:
        """Return a metric of this question: 0 or 1, or the reciprocal rank of the page for `mrr`; None where it has none."""
        if metric == "mrr":
            return 1 / self.page if self.page else 0.0
        part, _, depth = metric.partition("_at_")
        rank: int | None = getattr(self, part)
        return None if rank is None else float(0 < rank <= int(depth))


def choose_questions(questions: Sequence[Question], limit: int, seed: int) -> tuple[list[Question], dict[str, int]]:
    """Return the questions with something to find, or a random sample of `limit` of them in their order; 0 takes all.

    Returns:
        The questions, and the number left out by reason: without an answer, or without a gold page.
    """
    answerable = [question for question in questions if question.is_answerable]
    found = [question for question in answerable if question.page_ids]
    left_out = {"unanswerable": len(questions) - len(answerable), "without a gold page": len(answerable) - len(found)}
    if limit and limit < len(found):
        chosen = sorted(Random(seed).sample(range(len(found)), limit))
        found = [found[i] for i in chosen]
    return found, {reason: count for reason, count in left_out.items() if count}


def measure_ranks(
    index: SearchIndex, questions: Sequence[Question], ranking: str, progress: Callable[[int], None] | None = None
) -> list[Ranks]:
    """Search for every question, each with a gold page, and return the ranks of its gold; `progress` receives the number done."""
    ranks = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        texts = [question.question for question in batch]
        found = zip(batch, index.search(texts, DEPTH, ranking), index.search_sections(texts, DEPTH, ranking), strict=True)
        for question, pages, sections in found:
            places = [_rank([hit.page_id for hit in pages], page_id) for page_id in dict.fromkeys(question.page_ids)]
            shown = [_rank([hit.section_id for hit in sections], section_id) for section_id in question.section_ids]
            last = (max(places) if all(places) else 0) if len(places) > 1 else None
            ranks.append(Ranks(question, _best(places), last, _best(shown) if shown else None))
        if progress:
            progress(start + len(batch))
    return ranks


def summarise_ranks(by_retriever: dict[str, list[Ranks]], alpha: float, seed: int) -> dict[str, Any]:
    """Summarise ranks of the same questions in the same order: metrics with intervals, in total and by group, and the gain from fusing.

    Returns:
        `n`, `alpha`, `depth`; `counts`: metric -> number of its questions; `groups`: group -> the same; `retrievers`: metric -> value, with
        `intervals` and `groups`; `gains`: metric -> the part that the fused ranking is compared with, n, mean, low, high, p.
    """
    first = next(iter(by_retriever.values()))
    groups = _find_groups(first)
    retrievers = {}
    for name, ranks in by_retriever.items():
        of_groups = {group: _metrics([ranks[i] for i in members]) for group, members in groups.items()}
        retrievers[name] = {**_metrics(ranks), "intervals": _intervals(ranks, alpha), "groups": of_groups}
    return {
        "n": len(first),
        "alpha": alpha,
        "depth": DEPTH,
        "counts": _counts(first),
        "groups": {group: _counts([first[i] for i in members]) for group, members in groups.items()},
        "retrievers": retrievers,
        "gains": {metric: _gain(by_retriever, metric, alpha, seed) for metric in (*METRICS, "mrr")} if len(by_retriever) == 3 else {},
    }


def _find_groups(ranks: Sequence[Ranks]) -> dict[str, list[int]]:
    """Return the indices of the questions of each number of hops, source and kind; a property that all share makes no group."""
    found: dict[str, list[int]] = {}
    for name in ("hops", "source", "kind"):
        values = [getattr(rank.question, name) or "unknown" for rank in ranks]
        if len(set(values)) > 1:
            found |= {f"{name}={value}": [i for i, other in enumerate(values) if other == value] for value in sorted(set(values), key=str)}
    return found


def _rank(found: Sequence[str], gold: str) -> int:
    return found.index(gold) + 1 if gold in found else 0


def _best(places: Sequence[int]) -> int:
    return min(filter(None, places), default=0)


def _values(ranks: Sequence[Ranks], metric: str) -> list[float]:
    return [value for rank in ranks if (value := rank.value(metric)) is not None]


def _counts(ranks: Sequence[Ranks]) -> dict[str, int]:
    return {metric: len(_values(ranks, metric)) for metric in (*METRICS, "mrr")}


def _metrics(ranks: Sequence[Ranks]) -> dict[str, float | None]:
    values = {metric: _values(ranks, metric) for metric in (*METRICS, "mrr")}
    return {metric: sum(found) / len(found) if found else None for metric, found in values.items()}


def _intervals(ranks: Sequence[Ranks], alpha: float) -> dict[str, tuple[float, float]]:
    return {metric: wilson_interval(round(sum(values)), len(values), alpha) for metric in METRICS if (values := _values(ranks, metric))}


def _gain(by_retriever: dict[str, list[Ranks]], metric: str, alpha: float, seed: int) -> dict[str, str | float] | None:
    alone = {name: _values(by_retriever[name], metric) for name in ("lexical", "dense")}
    if not alone["lexical"]:
        return None
    better = max(alone, key=lambda name: sum(alone[name]))
    known = [rank for rank in by_retriever["hybrid"] if rank.value(metric) is not None]
    differences = [new - old for new, old in zip(_values(known, metric), alone[better], strict=True)]
    found = paired_bootstrap(differences, [rank.cluster for rank in known], RESAMPLES, alpha, seed)
    return {"over": better, "n": len(known), "mean": found.mean, "low": found.low, "high": found.high, "p": found.p}
