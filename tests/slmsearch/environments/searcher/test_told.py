"""Malformed turns that are told what is wrong with them, turns that were cut off, and results that are too long."""

import pytest

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.parsing import CUT_OFF, EMPTY, NO_TAGS, NOTHING
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import VIEW, Toolbox
from slmsearch.episodes.episode import Episode, StopReason, ToolCall
from slmsearch.episodes.sampler import SampledTurn, Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.extensions.sandbox.execution import as_value
from tests.slmsearch.environments.searcher.test_rollout import LIBRARY, DictIndex

PROSE, CALL, ANSWER = "I think it was 1823.", '<tool>search_pages("Mira")</tool>', "<answer>1823</answer>"
QUESTION = Question("q1", "When was Mira Talvoren born?", "1823")
LONG = SearcherConfig(max_episode_tokens=2000)


class CutWriter(ScriptedSampler):
    """Cuts every turn off at so many characters."""

    def __init__(self, limit: int, *messages: str) -> None:
        super().__init__(lambda question, results: messages[len(results)])
        self._limit = limit

    def sample(self, rows, results, room):
        turns = super().sample(rows, results, room)
        return [
            SampledTurn(
                turn.text[: self._limit], False, turn.context_ids, turn.sampled_ids[: self._limit], turn.sampled_logprobs[: self._limit]
            )
            for turn in turns
        ]


def play(*messages: str, config: SearcherConfig = LONG, sampler: ScriptedSampler | None = None) -> Episode:
    sampler = sampler or ScriptedSampler(lambda question, results: messages[len(results)])
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)
    return play_episodes([QUESTION], sampler, toolbox, config, Sampling())[0]


@pytest.mark.parametrize(
    ("messages", "reason", "told"),
    [
        ((PROSE, CALL, ANSWER), StopReason.ANSWERED, 1),
        ((PROSE, ANSWER), StopReason.ANSWERED, 1),
        ((PROSE, PROSE), StopReason.MALFORMED, 1),
        ((PROSE, CALL, PROSE, ANSWER), StopReason.ANSWERED, 2),
        ((PROSE, CALL, PROSE, PROSE), StopReason.MALFORMED, 2),
    ],
)
def test_a_malformed_turn_is_told_once_and_the_second_in_a_row_ends_the_episode(messages, reason, told):
    episode = play(*messages)
    assert episode.stop_reason is reason
    assert len(episode.turns) == len(messages)
    assert episode.num_told == told
    assert episode.num_unserved == 0, "it was no call"
    assert episode.turns[0].result.text == f"error: {NOTHING}"
    assert episode.sampled_mask[-1] == 1
    assert [turn.text for turn in episode.turns] == list(messages)


def test_the_last_turn_is_not_told():
    episode = play(CALL, PROSE, config=SearcherConfig(max_turns=2))
    assert (episode.stop_reason, episode.turns[-1].result) == (StopReason.MALFORMED, None)


def test_a_turn_that_was_cut_off_and_holds_a_complete_call_is_that_call():
    episode = play(sampler=CutWriter(45, CALL + " I hope that this brings up a page.", ANSWER))
    assert episode.turns[0].call == ToolCall("search_pages", "Mira")
    assert episode.turns[0].result.text == "4821: Mira Talvoren"
    assert (episode.stop_reason, episode.answer) == (StopReason.ANSWERED, "1823")


def test_a_turn_that_was_cut_off_without_one_is_told_and_then_ends_the_episode():
    episode = play(sampler=CutWriter(30, "Well, " * 20, "Well, " * 20))
    assert episode.turns[0].result.text == f"error: {CUT_OFF}"
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.MAX_TOKENS, 2)


def test_where_the_template_has_the_form_of_calls_nothing_is_said_of_tags():
    native = SearcherConfig(max_episode_tokens=2000, format="native")
    cut = play(config=native, sampler=CutWriter(30, "Well, " * 20, "Well, " * 20)).turns[0].result
    empty = play("", ANSWER, config=native).turns[0].result
    assert [cut.text, empty.text] == [f"error: {text.replace(NOTHING, NO_TAGS)}" for text in (CUT_OFF, EMPTY)]
    assert NO_TAGS in cut.text and "<" not in cut.text + empty.text


def test_an_invented_tool_is_a_call_that_is_not_served():
    episode = play('<tool>google("Mira")</tool>', ANSWER)
    assert (episode.num_told, episode.num_unserved) == (0, 1)
    assert "use search_pages" in episode.turns[0].result.text


@pytest.mark.parametrize(
    ("call", "sections"),
    [
        ('<tool>view_sections("4821: Mira Talvoren")</tool>', ("4821:mira_talvoren", "4821:life")),
        ('<tool>read_section("4821:life: Life")</tool>', ("4821:life",)),
        ('<tool>read_section("1177:size#2: Size")</tool>', ("1177:size",)),
    ],
)
def test_a_whole_line_serves_as_the_id_it_begins_with(call, sections):
    result = play(call, ANSWER).turns[0].result
    assert result.served
    assert result.section_ids == sections


def test_long_lists_of_sections_are_shown_in_pages():
    library = Library([Page("7", "Long", "# Long\n\nx\n\n" + "".join(f"## Part {i}\n\nText.\n\n" for i in range(40)))])
    toolbox = Toolbox(library, DictIndex(), top_k=3, max_section_chars=200)
    shown, argument = [], "7"
    for number in range(1, 20):
        (result,) = toolbox.serve([ToolCall(VIEW, argument)])
        assert result.page_ids == ("7",)
        assert as_value(VIEW, result) == [(s.id, s.heading) for s in library.sections("7") if s.id in result.section_ids]
        shown += result.section_ids
        assert len(result.text) <= 200 + len("\n(page 10 of 10; go on with 7#10)")
        if "go on with" not in result.text:
            break
        argument = f"7#{number + 1}"
    assert shown == [section.id for section in library.sections("7")]
    assert not toolbox.serve([ToolCall(VIEW, "7#99")])[0].served
