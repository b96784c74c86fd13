"""The question writer: it asks about a text what given words of it answer, as people asked about theirs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question, holds_answer
from slmsearch.corpus.store import build_corpus, load_questions, read_pages
from slmsearch.environments.environment import Environment
from slmsearch.environments.searcher.demonstrations import NO_GOLD, SEVERAL
from slmsearch.environments.searcher.evidence import shown_pages
from slmsearch.environments.searcher.parsing import render_answer
from slmsearch.environments.searcher.searcher_environment import SearcherData, SearcherEnvironment
from slmsearch.environments.searcher.tools import SEARCH, Toolbox
from slmsearch.environments.writer.writing import (
    WRITER_PROMPT_VERSION,
    answer_drafts,
    find_places,
    make_reading_prompt,
    make_task,
    make_writing_prompt,
    read_question,
    write_questions,
)
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, Turn
from slmsearch.episodes.playable import Limits
from slmsearch.episodes.rows import Measures
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.episodes.teaching import Teaching, select_questions
from slmsearch.judge import Judge
from slmsearch.made_questions.cloze import Draft, Excerpt
from slmsearch.made_questions.make import WRITTEN

SEVERAL_HOPS, MALFORMED, TOLD = "more than one hop", "not a question", "the question holds its answer"
NOWHERE = Excerpt("", "", "", "", "")
"""Place of a question whose answer no gold section states."""


class WriterData(SearcherData):
    """The searcher's corpus and questions."""

    unused = ("planner.", "reward.")


class WriterTeaching(Teaching["WriterEnvironment"]):
    """Demonstrations of questions that people asked about a section: one of asking, and one of answering by the section."""

    advice = "raise searcher.max_turn_tokens, or give questions whose page states the answer once (corpus.sections: paragraphs)"

    def examples(self, source: str, wrong: Mapping[str, Episode] | None = None) -> tuple[list[Demonstration], Counter[str]]:
        """See `Teaching.examples`: `gold` demonstrates the training questions of one hop whose answer one gold section states."""
        if source != "gold":
            return super().examples(source, wrong)
        config, left_out, found = self.config, Counter[str](), list[Demonstration]()
        digest = self.digest or build_corpus(config.corpus, config.paths.corpora)
        library = Library(read_pages(config.paths.corpora / digest))
        chosen = select_questions(load_questions(config.paths.corpora, digest)[config.train.split], config.train.limit)
        for question in chosen[slice(*self.part)]:
            places = find_places(question, library)
            if reason := _why_not(question, len(places)):
                left_out[reason] += 1
            elif wrong is None or question.question in wrong:
                found += self._demonstrate(question, places[0])
        return found, left_out

    def _demonstrate(self, question: Question, place: Excerpt) -> list[Demonstration]:
        searcher = self.config.searcher
        asking = make_writing_prompt(make_task(place, question.answer), searcher)
        reading = make_reading_prompt(question.question, place, searcher)
        turns = ((asking, question.question), (reading, render_answer(question.answer)))
        return [Demonstration(question.question, ((text, ""),), tuple(prompt)) for prompt, text in turns]

    def start_sources(self) -> tuple[str, ...]:
        return ("gold",)


def _why_not(question: Question, places: int) -> str:
    """Return why a question is not demonstrated; empty if it is."""
    if question.hops > 1:
        return SEVERAL_HOPS
    if places != 1:
        return SEVERAL if places else NO_GOLD
    if read_question(question.question) is None:
        return MALFORMED
    return TOLD if holds_answer(question.question, question.answer) else ""


class WriterEnvironment(Environment):
    """The writer environment: the policy writes a question about a section; it is right if the question passes the round trip.

    The question must not hold the answer, its search must show the page, and the policy, asked it with the section before it, must answer
    as intended.
    """

    does = "writes questions about a text"
    name = "writer"
    tool_names = (SEARCH,)
    data = WriterData
    teaching = WriterTeaching
    toolbox: Toolbox

    def make_limits(self) -> Limits:
        searcher = self.config.searcher
        return Limits(searcher.max_turn_tokens, searcher.max_turn_tokens, searcher.tool_role, ("searcher.max_turn_tokens",))

    def opening(self, question: str) -> list[Message]:
        """See `Environment.opening`; the question of an episode is the text with the answer, as `make_task` returns it."""
        return make_writing_prompt(question, self.config.searcher)

    def key_parts(self, index_key: str) -> Mapping[str, object]:
        reads = self.config.changed({"searcher.reads": "shown"})
        return {**SearcherEnvironment(reads).key_parts(index_key), "writer": [WRITER_PROMPT_VERSION, *map(dict, self.opening("?"))]}

    def open(self, judge: Judge, digest: str | None = None, index_key: str | None = None) -> Self:
        opened = copy(self)
        opened.judge, opened.toolbox = judge, SearcherEnvironment(self.config).open(judge, digest, index_key).toolbox
        return opened

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """Let the policy ask for the answers of questions about their first gold section, and search with and answer what it asked."""
        places = [next(iter(find_places(question, self.toolbox.library)), NOWHERE) for question in questions]
        episodes = write_questions(questions, places, sampler, sampling, self.config.searcher)
        drafts = {
            number: Draft(read_question(episode.turns[0].text) or "", questions[number].answer, WRITTEN, places[number])
            for number, episode in enumerate(episodes)
            if episode.stop_reason is StopReason.ANSWERED
        }
        calls = [ToolCall(SEARCH, draft.question) for draft in drafts.values()]
        searched = dict(zip(drafts, self.toolbox.serve(calls), strict=True))
        asked = {
            number: draft
            for number, draft in drafts.items()
            if draft.place.page_id in searched[number].page_ids and not holds_answer(draft.question, draft.answer)
        }
        answers = dict(zip(asked, answer_drafts(list(asked.values()), sampler, self.config.searcher), strict=True))
        for number, call in zip(drafts, calls, strict=True):
            ends = (Turn("", call, result=searched[number]), Turn("", answer=answers.get(number) or ""))
            episodes[number] = replace(episodes[number], turns=(*episodes[number].turns, *ends))
        return episodes

    def measure(self, question: Question, episode: Episode) -> Measures:
        shown = {page_id for turn in episode.turns for page_id in shown_pages(turn)}
        return Measures(any_hit=not shown.isdisjoint(question.page_ids))
