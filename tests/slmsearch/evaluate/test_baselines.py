"""The baseline without a model: what it reads, what it answers, and that it never does better than one page allows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer, find_stems, overlap, pick_answer
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.retrieval.hits import Hit
from tests.slmsearch.evaluate.corpus import LIBRARY, QUESTIONS, WordIndex, make_toolbox

NO_TOKEN_LIMIT = {"max_episode_tokens": 10**9, "max_turn_tokens": 10**9}


def play(question: Question, toolbox: Toolbox | None = None, max_turns: int = 8) -> Episode:
    config = SearcherConfig(max_turns=max_turns, **NO_TOKEN_LIMIT)
    toolbox = toolbox or make_toolbox()
    return play_episodes([question], ScriptedSampler(RetrieveThenAnswer(toolbox, max_turns)), toolbox, config, Sampling())[0]


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (0, "1823"),
        (1, "4100"),
        (2, "Dora Pell"),
        (3, UNKNOWN_ANSWER),  # no second hop, and the town's page holds no year
        (4, UNKNOWN_ANSWER),
    ],
)
def test_answers(number: int, answer: str) -> None:
    assert play(QUESTIONS[number]).answer == answer


@pytest.mark.parametrize("shows", ["titles", "sections", "text"])
def test_it_reads_the_first_page_in_every_form_of_a_search(shows: str) -> None:
    class SectionIndex(WordIndex):
        def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
            return [
                [replace(hit, section_id=LIBRARY.sections(hit.page_id)[0].id) for hit in hits] for hits in super().search(queries, top_k)
            ]

    toolbox = Toolbox(LIBRARY, SectionIndex(), 3, 900, shows=shows)
    episode = play(QUESTIONS[0], toolbox)
    assert episode.answer == "1823"
    assert episode.calls[1].argument == "mira:life"


def test_it_searches_once_with_the_question_and_reads_the_best_page() -> None:
    episode = play(QUESTIONS[0])
    assert [call.name for call in episode.calls] == ["search_pages", "read_section", "read_section"]
    assert episode.calls[0].argument == QUESTIONS[0].question
    assert episode.calls[1].argument == "mira:life"  # where the question's words stand comes first
    assert all(turn.result is not None and turn.result.served for turn in episode.turns[:-1])


@pytest.mark.parametrize("max_turns", [1, 2, 3])
def test_it_keeps_to_the_turns_it_has(max_turns: int) -> None:
    episode = play(QUESTIONS[0], max_turns=max_turns)
    assert len(episode.turns) == max_turns
    assert episode.stop_reason is (StopReason.ANSWERED if max_turns > 1 else StopReason.MAX_TURNS)


def test_long_sections_are_read_where_the_words_stand() -> None:
    text = "Nothing of note happened. " * 40 + "The tower was built in 1650 by Ada Marsh. " + "It rained. " * 40
    library = Library([Page("tower", "Tower", f"# Tower\n\n{text}")])

    class One(WordIndex):
        def search(self, queries, top_k):
            return [[Hit("tower", "Tower", 1.0, "tower:tower")] for _ in queries]

    toolbox = Toolbox(library, One(), 3, 300)
    episode = play(Question("q", "Who built it in 1650?", "Ada Marsh"), toolbox)
    assert episode.calls[1].argument == "tower:tower#4"
    assert episode.answer == "Ada Marsh"


def test_no_hits_and_no_words() -> None:
    assert play(Question("q", "Xyzzy?", "x")).answer == UNKNOWN_ANSWER
    assert play(Question("q", "", "x")).answer == UNKNOWN_ANSWER


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_question_is_played_to_an_answer(text: str) -> None:
    assert play(Question("q", text, "x")).stop_reason is StopReason.ANSWERED


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=20))
def test_picking_never_raises(question: str, text: str, title: str) -> None:
    weights = dict.fromkeys(find_stems(question), 1.0)
    assert pick_answer(question, [text], weights, find_stems(question) | find_stems(title)) != ""
    assert overlap(weights, question) == len(weights)


def test_stems() -> None:
    assert find_stems("Who founded the Founder's house in 1823?") == {"found", "house", "1823"}


def test_the_same_corpus_gives_the_same_episode() -> None:
    assert len(LIBRARY) == 4
    first, second = play(QUESTIONS[2]), play(QUESTIONS[2])
    assert [turn.text for turn in first.turns] == [turn.text for turn in second.turns]
