"""A corpus of four pages, its questions, and an index that finds pages by the words they share with a query."""

import re
from collections.abc import Sequence

from slmsearch.config import RunConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.errors import IndexUnusableError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import Progress, evaluate_policy
from slmsearch.evaluate.store import Evaluation
from slmsearch.judge.llm import make_judge
from slmsearch.retrieval.hits import Hit

PAGES = [
    Page("mira", "Mira Talvoren", "# Mira Talvoren\n\nA baker.\n\n## Life\n\nMira Talvoren was born in 1823. She lived in Norwick.\n"),
    Page("norwick", "Norwick", "# Norwick\n\nA town.\n\n## People\n\nNorwick has 4100 inhabitants. Its mayor was Dora Pell."),
    Page("dora", "Dora Pell", "# Dora Pell\n\nA clerk.\n\n## Career\n\nDora Pell was born in 1799. Her company was Stone Works."),
    Page("stone", "Stone Works", "# Stone Works\n\nA company.\n\n## Goods\n\nStone Works makes candles and sells them in tall jars."),
]
QUESTIONS = [
    Question("q1", "When was Mira Talvoren born?", "1823", (), ("mira",), ("mira:life",), 1, "one_hop"),
    Question("q2", "How many inhabitants has Norwick?", "4100", (), ("norwick",), ("norwick:people",), 1, "one_hop"),
    Question("q3", "Who was the mayor of Norwick?", "Dora Pell", (), ("norwick",), ("norwick:people",), 1, "one_hop"),
    Question("q4", "When was the mayor of Norwick born?", "1799", (), ("norwick", "dora"), ("norwick:people", "dora:career"), 2, "two_hop"),
    Question("q5", "Which prize did Stone Works win?", UNKNOWN_ANSWER, (), ("stone",), (), 1, "unanswerable"),
]
LIBRARY = Library(PAGES)


class WordIndex:
    """Ranks pages by the words they share with the query, titles counting more."""

    key = "words"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [self._search(query)[:top_k] for query in queries]

    def _search(self, query: str) -> list[Hit]:
        scores = {page.id: _shared(query, page.content) + 2 * _shared(query, page.title) for page in PAGES}
        ranked = sorted((page for page in PAGES if scores[page.id]), key=lambda page: (-scores[page.id], page.id))
        return [Hit(page.id, page.title, scores[page.id] / 10, f"{page.id}:x") for page in ranked]


def _shared(one: str, other: str) -> int:
    return len(set(re.findall(r"\w+", one.lower())) & set(re.findall(r"\w+", other.lower())))


class FlakyIndex(WordIndex):
    """Breaks on queries that hold a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        if any(self.word in query for query in queries):
            raise IndexUnusableError("the index is gone; build it again")
        return super().search(queries, top_k)


def make_toolbox(index: WordIndex | None = None, max_section_chars: int = 1500) -> Toolbox:
    return Toolbox(LIBRARY, index or WordIndex(), top_k=3, max_section_chars=max_section_chars)


def evaluate_searcher(
    questions: Sequence[Question],
    toolbox: Toolbox,
    spec: PolicySpec,
    config: RunConfig,
    progress: Progress | None = None,
    total: int | None = None,
) -> Evaluation:
    """Evaluate a policy that searches with these tools."""
    environment = SearcherEnvironment(config).with_tools(toolbox, make_judge(config.judge, config.paths.data_dir))
    return evaluate_policy(questions, environment, spec, progress, total)
