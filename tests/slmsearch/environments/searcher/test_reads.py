"""Where a model has its knowledge from: tools, what it is shown, or nothing."""

import pytest

from slmsearch.config import ProgramLimits, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.demonstrations import demonstrate_reader
from slmsearch.environments.searcher.prompt import AT_ONCE, describe_searcher, make_prompt
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.episode import StopReason, ToolCall
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.retrieval.hits import Hit
from tests.slmsearch.evaluate.corpus import LIBRARY, WordIndex

QUESTION = Question("q", "When was Mira Talvoren born?", "1823")


class LastSections(WordIndex):
    """Hints at the last section of each page."""

    def search(self, queries, top_k):
        found = super().search(queries, top_k)
        return [[Hit(h.page_id, h.title, h.score, LIBRARY.sections(h.page_id)[-1].id) for h in hits] for hits in found]


def make_toolbox():
    return Toolbox(LIBRARY, LastSections(), top_k=3, max_section_chars=1500)


class Listening(ScriptedSampler):
    """Notes the messages that episodes open with."""

    def open(self, prompts, sampling):
        self.prompts = [list(prompt) for prompt in prompts]
        return super().open(prompts, sampling)


def play(reads, script=lambda question, results: "<answer>1823</answer>"):
    sampler = Listening(script)
    (episode,) = play_episodes([QUESTION], sampler, make_toolbox(), SearcherConfig(reads=reads), Sampling())
    return sampler.prompts[0], episode


def test_a_reader_is_shown_the_sections_that_a_search_finds_and_answers_at_once():
    (system, user), episode = play("shown")
    assert system["content"] == AT_ONCE["shown"]
    assert user["content"].endswith(f"\n\n{QUESTION.question}")
    titles = [page.title for page in LIBRARY.pages() if page.title in user["content"].split("\n")]
    assert 1 <= len(titles) <= make_toolbox().top_k
    assert (episode.answer, len(episode.turns)) == ("1823", 1)


def test_from_memory_there_is_nothing_but_the_question():
    prompt, episode = play("nothing")
    assert [message["content"] for message in prompt] == [AT_ONCE["nothing"], QUESTION.question]
    assert episode.answer == "1823"


@pytest.mark.parametrize("reads", ["shown", "nothing"])
def test_who_answers_at_once_has_no_second_turn(reads):
    _, episode = play(reads, lambda question, results: '<tool>search_pages("Mira")</tool>')
    assert (episode.answer, len(episode.turns)) == (None, 1)


@pytest.mark.parametrize("reads", ["shown", "nothing"])
def test_who_answers_at_once_may_answer_in_plain_text(reads):
    for text in ("1823", "<think>Mira? 1799.</think>\n 1823 ", "<answer>1823</answer>"):
        _, episode = play(reads, lambda question, results, text=text: text)
        assert (episode.answer, episode.stop_reason, len(episode.turns)) == ("1823", StopReason.ANSWERED, 1)
    _, empty = play(reads, lambda question, results: "  ")
    assert (empty.answer, empty.stop_reason) == (None, StopReason.MALFORMED)
    cut = SearcherConfig(reads=reads, max_episode_tokens=16)
    (episode,) = play_episodes([QUESTION], ScriptedSampler(lambda *_: "It was in the year 1823."), make_toolbox(), cut, Sampling())
    assert (episode.answer, episode.stop_reason) == (None, StopReason.MAX_TOKENS), "a message that was cut off is none"


def test_who_can_call_a_tool_answers_with_tags_alone():
    (episode,) = play_episodes([QUESTION], ScriptedSampler(lambda *_: "1823"), make_toolbox(), SearcherConfig(), Sampling())
    assert (episode.answer, episode.stop_reason) == (None, StopReason.MALFORMED)


def test_who_reads_without_a_search_has_a_prompt_and_keys_of_its_own():
    assert make_prompt("Who?", SearcherConfig()) == make_prompt("Who?", SearcherConfig(reads="tools"))
    assert describe_searcher(SearcherConfig(), ProgramLimits())["reads"] == "tools"
    assert describe_searcher(SearcherConfig(reads="shown"), ProgramLimits())["reads"] == "shown"
    assert {reads: describe_searcher(SearcherConfig(reads=reads), ProgramLimits()).get("plain") for reads in ("tools", *AT_ONCE)} == {
        "tools": None,
        "shown": True,
        "nothing": True,
    }, "evaluations from when plain text was malformed are not found again"
    assert [message["role"] for message in make_prompt("Who?", SearcherConfig(reads="shown", system_prompt=""))] == ["user"]


def test_where_searches_show_text_a_reader_is_given_what_the_first_one_shows():
    toolbox = make_toolbox()
    toolbox.shows = "text"
    assert toolbox.show(["Mira"]) == [toolbox.serve([ToolCall("search_pages", "Mira")])[0].text]


def test_a_reader_learns_from_questions_whose_answer_it_is_shown():
    toolbox, config = make_toolbox(), SearcherConfig(reads="shown")
    text = toolbox.show(["Mira"])[0]
    assert text.startswith("Mira Talvoren\n")
    questions = [Question("1", "Mira", "1823"), Question("2", "Is it Mira or Bob?", "Bob"), Question("3", "Mira", "I don't know")]
    found, left_out = demonstrate_reader(questions, toolbox, config)
    assert [demonstration.turns for demonstration in found] == [(("<answer>1823</answer>", ""),)]
    assert text in found[0].prompt[-1]["content"]
    assert dict(left_out) == {"page not found": 1, "no gold section": 1}
