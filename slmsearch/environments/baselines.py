"""Retrieve-then-answer without a model: one search, the best page's best passages, and the span that rules pick from them.

It plays through the same tools as a policy, so its search metrics mean the same. It makes one search and no second hop. Where
the question's words stand, weighted by how rare they are, decides what is read. The random policy lies in
`generate/scripted.py`.
"""

from collections import Counter
from itertools import islice
from math import log

from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.environments.spans import find_stems, overlap, pick_answer
from slmsearch.generate.scripted import ScriptedSampler
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import render_answer, render_call
from slmsearch.searcher.tools import READ, SEARCH, Toolbox

NUM_READS = 6
"""Passages read of the best page, turns permitting."""
MAX_COUNTED_PAGES = 4000
"""Pages on which the rarity of words is counted; more change little."""


class RetrieveThenAnswer:
    """The script of the baseline: question and results so far to the next message."""

    def __init__(self, toolbox: Toolbox, max_turns: int) -> None:
        """Count how rare words are in the corpus.

        Args:
            toolbox: tools it will play with.
            max_turns: messages an episode may have, the search and the answer included.
        """
        self._library = toolbox.library
        self._passage_chars = toolbox.max_section_chars
        self._num_reads = max(0, min(NUM_READS, max_turns - 2))
        self._counts, self._num_pages = _count_words(toolbox.library)
        self._plans: dict[tuple[str, str], list[str]] = {}

    def __call__(self, question: str, results: list[str]) -> str:
        """Write the next message."""
        if not results:
            return render_call(ToolCall(SEARCH, question))
        page_id = self._best_page(results[0])
        if page_id is None:
            return render_answer(UNKNOWN_ANSWER)
        passages = results[1:]
        plan = self._plan(question, page_id)
        if len(passages) < len(plan):
            return render_call(ToolCall(READ, plan[len(passages)]))
        known = find_stems(question) | self._title_stems(page_id)
        return render_answer(pick_answer(question, passages, self._weigh(question, page_id), known) or UNKNOWN_ANSWER)

    def _best_page(self, shown: str) -> str | None:
        page_ids = (line.partition(": ")[0] for line in shown.splitlines())
        return next((page_id for page_id in page_ids if self._library.page(page_id) is not None), None)

    def _title_stems(self, page_id: str) -> set[str]:
        page = self._library.page(page_id)
        return find_stems(page.title) if page is not None else set()

    def _weigh(self, question: str, page_id: str) -> dict[str, float]:
        """Weigh the question's words by rarity; those of the page's title tell none of its sentences apart."""
        stems = find_stems(question) - self._title_stems(page_id)
        return {stem: log((self._num_pages + 1) / (self._counts[stem] + 0.5)) for stem in stems}

    def _plan(self, question: str, page_id: str) -> list[str]:
        """Choose passages of a page, most promising first, as arguments of `read_section`; asked for again every turn."""
        if (question, page_id) in self._plans:
            return self._plans[question, page_id]
        weights, size = self._weigh(question, page_id), self._passage_chars
        passages = []
        for section in self._library.sections(page_id):
            for number, start in enumerate(range(0, max(1, len(section.text)), size), start=1):
                score = overlap(weights, section.text[start : start + size])
                passages.append((score, section.id if number == 1 else f"{section.id}#{number}"))
        passages.sort(key=lambda passage: -passage[0])  # stable: the earlier passage wins a tie
        self._plans[question, page_id] = [argument for _, argument in passages[: self._num_reads]]
        return self._plans[question, page_id]


def make_retrieve_then_answer(toolbox: Toolbox, max_turns: int) -> ScriptedSampler:
    """Make the baseline as a sampler that plays in the one rollout loop."""
    return ScriptedSampler(RetrieveThenAnswer(toolbox, max_turns))


def _count_words(library: Library) -> tuple[Counter[str], int]:
    counts: Counter[str] = Counter()
    num_pages = 0
    for page in islice(library.pages(), MAX_COUNTED_PAGES):
        counts.update(find_stems(page.content))
        num_pages += 1
    return counts, num_pages
