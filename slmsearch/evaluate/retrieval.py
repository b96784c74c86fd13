"""Quality of a search for the questions' own words: ranks of gold pages and sections, and what each form of the tool's result shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, get_args

from slmsearch.config import SearcherConfig
from slmsearch.corpus.questions import Question, holds_answer
from slmsearch.environments.searcher.tools import SEARCH, Toolbox
from slmsearch.episodes.episode import ToolCall
from slmsearch.evaluate.statistics import paired_bootstrap
from slmsearch.intervals import wilson_interval
from slmsearch.retrieval.search import SearchIndex

DEPTH = 10
"""Number of hits that count; a gold page further down counts as not found."""
RETRIEVERS = ("lexical", "dense", "hybrid")
METRICS = ("page_at_1", "page_at_5", "all_pages_at_5", "all_pages_at_10", "section_at_1", "section_at_5")
"""Names of shares; `all_pages` is over questions with several gold pages, `section` over those whose section is known."""
FORMS: tuple[str, ...] = get_args(SearcherConfig.model_fields["shows"].annotation)
"""Forms of a search's result."""
SHOWN = ("all_pages_shown", "all_text_shown", "answer_shown")
"""Names of shares of what a search shows."""
BATCH = 256
RESAMPLES = 2000


class Measured(Protocol):
    """Measurement of one question."""

    @property
    def question(self) -> Question:
        """The question."""

    def value(self, metric: str) -> float | None:
        """Return a metric of this question; None where it has none."""


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


@dataclass(frozen=True, slots=True)
class FirstSearch:
    """Result of a search for the question's own words."""

    question: Question
    all_pages_shown: bool
    """True if all gold pages are among the pages found."""
    all_text_shown: bool | None
    """True if all gold sections are shown with their text, a long one with its first part; None where no section is known, and for forms
    that show no text."""
    answer_shown: bool | None
    """True if the text shown holds an answer as whole words; None for yes and no, which no text states."""

    def value(self, metric: str) -> float | None:
        """Return a metric of `SHOWN`: 0 or 1; None where it has none."""
        found: bool | None = getattr(self, metric)
        return None if found is None else float(found)


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


def measure_shown(toolbox: Toolbox, questions: Sequence[Question], progress: Callable[[int], None] | None = None) -> list[FirstSearch]:
    """Search for every question with the tools of an episode, and compare the result with its gold; `progress` receives the number done."""
    found = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        for question, result in zip(batch, toolbox.serve([ToolCall(SEARCH, question.question) for question in batch]), strict=True):
            pages = set(question.page_ids) <= set(result.page_ids)
            has_text = toolbox.shows == "text" and question.section_ids
            text = set(question.section_ids) <= set(result.section_ids) if has_text else None
            answer = None if question.is_closed else any(holds_answer(result.text, answer) for answer in question.answers)
            found.append(FirstSearch(question, pages, text, answer))
        if progress:
            progress(start + len(batch))
    return found


def summarise_shown(by_form: Mapping[str, Sequence[FirstSearch]], alpha: float) -> dict[str, object]:
    """Summarise what each form of a search shows of the same questions in the same order, with intervals, in total and by group.

    Returns:
        `counts` and `groups` as `summarise_ranks` gives them; `forms`: form -> metric -> share, with `intervals` and `groups`.
    """
    counts, groups, forms = _summarise(by_form, SHOWN, alpha)
    return {"counts": counts, "groups": groups, "forms": forms}


def summarise_ranks(by_retriever: dict[str, list[Ranks]], alpha: float, seed: int) -> dict[str, object]:
    """Summarise ranks of the same questions in the same order: metrics with intervals, in total and by group, and the gain from fusing.

    Returns:
        `n`, `alpha`, `depth`; `counts`: metric -> number of its questions; `groups`: group -> the same; `retrievers`: metric -> value, with
        `intervals` and `groups`; `gains`: metric -> the part that the fused ranking is compared with, n, mean, low, high, p.
    """
    counts, groups, retrievers = _summarise(by_retriever, (*METRICS, "mrr"), alpha)
    return {
        "n": len(next(iter(by_retriever.values()))),
        "alpha": alpha,
        "depth": DEPTH,
        "counts": counts,
        "groups": groups,
        "retrievers": retrievers,
        "gains": {metric: _gain(by_retriever, metric, alpha, seed) for metric in (*METRICS, "mrr")} if len(by_retriever) == 3 else {},
    }


Counts = dict[str, int]


def _summarise(
    columns: Mapping[str, Sequence[Measured]], metrics: Sequence[str], alpha: float
) -> tuple[Counts, dict[str, Counts], dict[str, dict[str, object]]]:
    """Summarise columns of measurements of the same questions.

    Returns:
        Metric -> largest number of questions of a column that have it; group -> the same; column -> metric -> mean, with `intervals` and
        `groups`.
    """
    questions = [measured.question for measured in next(iter(columns.values()))]
    places = _find_groups(questions)

    def count(members: Sequence[int]) -> Counts:
        chosen = [[measured[i] for i in members] for measured in columns.values()]
        return {metric: max(len(_values(some, metric)) for some in chosen) for metric in metrics}

    found: dict[str, dict[str, object]] = {}
    for name, measured in columns.items():
        of_groups = {group: _means([measured[i] for i in members], metrics) for group, members in places.items()}
        found[name] = {**_means(measured, metrics), "intervals": _intervals(measured, metrics, alpha), "groups": of_groups}
    return count(range(len(questions))), {group: count(members) for group, members in places.items()}, found


def _find_groups(questions: Sequence[Question]) -> dict[str, list[int]]:
    """Return the indices of the questions of each number of hops, source and kind; a property that all share makes no group."""
    found: dict[str, list[int]] = {}
    for name in ("hops", "source", "kind"):
        values = [getattr(question, name) or "unknown" for question in questions]
        if len(set(values)) > 1:
            found |= {f"{name}={value}": [i for i, other in enumerate(values) if other == value] for value in sorted(set(values), key=str)}
    return found


def _rank(found: Sequence[str], gold: str) -> int:
    return found.index(gold) + 1 if gold in found else 0


def _best(places: Sequence[int]) -> int:
    return min(filter(None, places), default=0)


def _values(measured: Sequence[Measured], metric: str) -> list[float]:
    return [value for one in measured if (value := one.value(metric)) is not None]


def _means(measured: Sequence[Measured], metrics: Sequence[str]) -> dict[str, float | None]:
    values = {metric: _values(measured, metric) for metric in metrics}
    return {metric: sum(found) / len(found) if found else None for metric, found in values.items()}


def _intervals(measured: Sequence[Measured], metrics: Sequence[str], alpha: float) -> dict[str, tuple[float, float]]:
    """Return the intervals of shares; `mrr` is none."""
    values = {metric: _values(measured, metric) for metric in metrics if metric != "mrr"}
    return {metric: wilson_interval(round(sum(found)), len(found), alpha) for metric, found in values.items() if found}


def _gain(by_retriever: dict[str, list[Ranks]], metric: str, alpha: float, seed: int) -> dict[str, str | float] | None:
    alone = {name: _values(by_retriever[name], metric) for name in ("lexical", "dense")}
    if not alone["lexical"]:
        return None
    better = max(alone, key=lambda name: sum(alone[name]))
    known = [rank for rank in by_retriever["hybrid"] if rank.value(metric) is not None]
    differences = [new - old for new, old in zip(_values(known, metric), alone[better], strict=True)]
    found = paired_bootstrap(differences, [rank.cluster for rank in known], RESAMPLES, alpha, seed)
    return {"over": better, "n": len(known), "mean": found.mean, "low": found.low, "high": found.high, "p": found.p}
