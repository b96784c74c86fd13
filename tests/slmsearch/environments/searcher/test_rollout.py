"""The rollout loop with scripted policies over a small corpus."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from slmsearch.config import SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher import rollout
from slmsearch.environments.searcher.random_turns import random_turn
from slmsearch.environments.searcher.rollout import Watch, play_episodes
from slmsearch.environments.searcher.tools import ABSENT, Toolbox
from slmsearch.episodes.episode import StopReason, Turn
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval.hits import Hit

LIBRARY = Library(
    [
        Page("4821", "Mira Talvoren", "# Mira Talvoren\n\nA baker.\n\n## Life\n\nMira was born in 1823 in Norwick.\n"),
        Page("1177", "Norwick", "# Norwick\n\nA town.\n\n## Size\n\nNorwick has 4100 people. " + "It rains. " * 30),
    ]
)
QUESTION = Question("q1", "When was Mira Talvoren born?", "1823")


class DictIndex:
    """Finds pages whose title shares a word with the query."""

    key = "dict"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [
            [Hit(p.id, p.title, 1.0, p.id) for p in LIBRARY.pages() if set(p.title.split()) & set(query.split())][:top_k]
            for query in queries
        ]


class BrokenIndex(DictIndex):
    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise IndexUnusableError("the index is gone; build it again")


def play(*messages, index=None, config=None, questions=(QUESTION,)):
    """Play questions with a policy that writes the given messages, one a turn."""
    sampler = ScriptedSampler(lambda question, results: messages[min(len(results), len(messages) - 1)])
    toolbox = Toolbox(LIBRARY, index or DictIndex(), top_k=3, max_section_chars=200)
    return play_episodes(questions, sampler, toolbox, config or SearcherConfig(), Sampling())


FULL = (
    '<tool>search_pages("Mira")</tool>',
    '<tool>view_sections("4821")</tool>',
    '<tool>read_section("4821:life")</tool>',
    "<answer>1823</answer>",
)


def test_a_whole_episode():
    (episode,) = play(*FULL)
    assert episode.stop_reason is StopReason.ANSWERED
    assert episode.answer == "1823"
    assert [turn.result.text for turn in episode.turns if turn.result] == [
        "4821: Mira Talvoren",
        "4821:mira_talvoren: Mira Talvoren\n4821:life: Life",
        "## Life\n\nMira was born in 1823 in Norwick.",
    ]


def test_where_a_search_shows_text_the_policy_is_told_the_question_below_every_result_and_below_no_error():
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200, shows="text")
    calls = ('<tool>search_pages("Mira")</tool>', '<tool>read_section("4821:life")</tool>', '<tool>read_section("none")</tool>')
    told = []

    def write(question, results):
        told[:] = results
        return [*calls, "<answer>1823</answer>"][len(results)]

    (episode,) = play_episodes([QUESTION], ScriptedSampler(write), toolbox, SearcherConfig(shows="text"), Sampling())
    shown = [turn.result.text for turn in episode.turns if turn.result]
    assert shown[1:] == ["## Life\n\nMira was born in 1823 in Norwick.", ABSENT], "people are not"
    assert told == [f"{shown[0]}\n\n{QUESTION.question}", f"{shown[1]}\n\n{QUESTION.question}", ABSENT]


def test_mask_layout():
    # prompt | search call | result | answer       bytes stand for tokens
    # (none) | 1 ...... 1  | 0 .. 0 | 1 .. 1
    (episode,) = play('<tool>search_pages("Mira")</tool>', "<answer>1823</answer>")
    written = [m for turn in episode.turns for m in [0] * len(turn.context_ids) + [1] * len(turn.sampled_ids)]
    assert episode.sampled_mask == written
    assert len(episode.completion_ids) == len(episode.sampled_mask) == len(episode.sampled_logprobs)
    by_policy = bytes(i for i, m in zip(episode.completion_ids, episode.sampled_mask, strict=True) if m).decode()
    by_tools = bytes(i for i, m in zip(episode.completion_ids, episode.sampled_mask, strict=True) if not m).decode()
    assert by_policy == '<tool>search_pages("Mira")</tool><answer>1823</answer>'
    assert by_tools == "4821: Mira Talvoren"
    assert bytes(episode.prompt_ids).decode() == QUESTION.question
    assert episode.sampled_mask[-1] == 1


@pytest.mark.parametrize(
    ("messages", "config", "reason"),
    [
        (("I think it was 1823.",), SearcherConfig(), StopReason.MALFORMED),
        (('<tool>search_pages("Mira")</tool>',), SearcherConfig(max_turns=3), StopReason.MAX_TURNS),
        (('<tool>read_section("1177:size")</tool>',), SearcherConfig(max_episode_tokens=300), StopReason.MAX_TOKENS),
        (("<answer>" + "x" * 500 + "</answer>",), SearcherConfig(), StopReason.MAX_TOKENS),
    ],
)
def test_stop_reasons(messages, config, reason):
    (episode,) = play(*messages, config=config)
    assert episode.stop_reason is reason
    assert episode.answer is None
    assert len(episode.completion_ids) <= config.max_episode_tokens


def test_calls_that_cannot_be_served_are_answered_and_counted():
    calls = [
        '<tool>search_pages("")</tool>',
        '<tool>view_sections("9")</tool>',
        '<tool>read_section("4821:no")</tool>',
        '<tool>fly("up")</tool>',
    ]
    (episode,) = play(*calls, "<answer>?</answer>")
    assert [turn.result.served for turn in episode.turns[:-1]] == [False] * 4
    assert all(turn.result.text for turn in episode.turns[:-1])
    assert episode.stop_reason is StopReason.ANSWERED


def test_an_outage_fails_the_episode_and_grades_nothing():
    episodes = play(*FULL, index=BrokenIndex(), questions=(QUESTION, QUESTION))
    assert [episode.stop_reason for episode in episodes] == [StopReason.FAILED] * 2
    assert episodes[0].failure == "index: the index is gone; build it again"


def test_long_sections_are_read_in_pages():
    (episode,) = play(
        '<tool>read_section("1177:size")</tool>',
        '<tool>read_section("1177:size#2")</tool>',
        '<tool>read_section("1177:size#9")</tool>',
        "<answer>x</answer>",
        config=SearcherConfig(max_episode_tokens=3000),
    )
    first, second, third = (turn.result for turn in episode.turns[:3])
    assert first.text.endswith("(page 1 of 2; go on with 1177:size#2)")
    assert (second.served, third.served) == (True, False)
    assert second.section_ids == ("1177:size",)


def test_random_policy_is_valid_and_repeatable():
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)
    questions = [Question(f"q{i}", f"When was Mira Talvoren number {i} born?", "1823") for i in range(30)]
    together = play_episodes(questions, ScriptedSampler(partial(random_turn, seed=1)), toolbox, SearcherConfig(), Sampling())
    alone = [play_episodes([q], ScriptedSampler(partial(random_turn, seed=1)), toolbox, SearcherConfig(), Sampling())[0] for q in questions]
    assert [e.turns for e in together] == [e.turns for e in alone]
    assert {e.stop_reason for e in together} <= {StopReason.ANSWERED, StopReason.MAX_TURNS, StopReason.MAX_TOKENS}
    assert any(e.calls for e in together)


def test_each_episode_is_told_of_as_soon_as_it_has_ended():
    """Question i answers in its turn i; the sampler notes what had been told before each turn was written."""
    questions = [Question(f"q{i}", f"Question {i}", "x") for i in range(3)]
    told, told_before_turn = [], []

    class Watched(ScriptedSampler):
        def sample(self, rows, results, room):
            told_before_turn.append([episode.question_id for _, episode in told])
            return super().sample(rows, results, room)

    sampler = Watched(lambda question, results: "<answer>x</answer>" if len(results) == int(question[-1]) else FULL[0])
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)
    played = play_episodes(questions, sampler, toolbox, SearcherConfig(), Sampling(), Watch(lambda *ended: told.append(ended)))
    assert told_before_turn == [[], ["q0"], ["q0", "q1"]]
    assert [question for question, _ in told] == questions
    assert [episode for _, episode in told] == played


@pytest.mark.parametrize(("index", "reason"), [(BrokenIndex(), StopReason.FAILED), (DictIndex(), StopReason.MAX_TURNS)])
def test_episodes_that_end_without_an_answer_are_told_of_too(index, reason):
    told = []
    sampler = ScriptedSampler(lambda question, results: FULL[0])
    toolbox = Toolbox(LIBRARY, index, top_k=3, max_section_chars=200)
    play_episodes([QUESTION], sampler, toolbox, SearcherConfig(max_turns=2), Sampling(), Watch(lambda *ended: told.append(ended)))
    assert [episode.stop_reason for _, episode in told] == [reason]


def test_each_turn_is_told_once_when_its_result_is_there():
    told: list[tuple[str, str | None]] = []
    sampler = ScriptedSampler(lambda question, results: FULL[min(len(results), len(FULL) - 1)])
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)

    def note(question: Question, turn: Turn) -> None:
        told.append((turn.text, turn.result.text if turn.result else None))

    (episode,) = play_episodes([QUESTION], sampler, toolbox, SearcherConfig(), Sampling(), Watch(on_turn=note))
    assert told == [(turn.text, turn.result.text if turn.result else None) for turn in episode.turns]
    assert len(told) == 4


class Halved(ScriptedSampler):
    """Samples halves in turn, as on a card, and notes which rows it is asked for in which thread."""

    samples_beside = True

    def open(self, prompts, sampling):
        self.size, self.asked, self.both_sampled = sampling.part_rows, [], threading.Event()
        return super().open(prompts, sampling)

    def sample(self, rows, results, room):
        self.asked.append((list(rows), threading.current_thread()))
        if len(self.asked) == 2:
            self.both_sampled.set()
        return super().sample(rows, results, room)


class WaitingIndex(DictIndex):
    """Serves the first half's search only once the second half has been sampled."""

    def __init__(self, sampler):
        self.sampler, self.threads = sampler, []

    def search(self, queries, top_k):
        assert self.sampler.both_sampled.wait(60), "the second half is sampled meanwhile"
        self.threads.append(threading.current_thread())
        return super().search(queries, top_k)


def many(count):
    return [replace(QUESTION, id=f"q{n}", question=f"{n}: when was Mira born?") for n in range(count)]


def write(question, results):
    """Answer after as many messages as the question's number says."""
    return FULL[-1] if len(results) > int(question.partition(":")[0]) % 4 else FULL[min(len(results), 2)]


@pytest.mark.parametrize("count", [rollout.HALVED_FROM, rollout.HALVED_FROM + 3])
def test_while_a_half_is_sampled_the_calls_of_the_other_are_served_and_nothing_else_changes(count):
    questions, ended, config = many(count), [], SearcherConfig()
    sampler = Halved(write)
    index = WaitingIndex(sampler)
    toolboxes = [Toolbox(LIBRARY, index, 3, 200) for index in (index, DictIndex())]
    halved = play_episodes(questions, sampler, toolboxes[0], config, Sampling(), Watch(lambda question, _: ended.append(question.id)))
    whole = play_episodes(questions, ScriptedSampler(write), toolboxes[1], config, Sampling())
    assert [replace(episode, seconds=0) for episode in halved] == [replace(episode, seconds=0) for episode in whole]
    assert sorted(ended) == sorted(question.id for question in questions)
    middle = -(-count // 2)
    assert sampler.size == middle and [rows for rows, _ in sampler.asked[:2]] == [list(range(middle)), list(range(middle, count))]
    assert {thread for _, thread in sampler.asked} == {threading.current_thread()}
    assert threading.current_thread() not in index.threads


def test_few_episodes_and_a_sampler_on_the_cpu_are_played_together():
    few, on_cpu = Halved(write), Halved(write)
    on_cpu.samples_beside = False
    for sampler, count in ((few, rollout.HALVED_FROM - 1), (on_cpu, rollout.HALVED_FROM)):
        play_episodes(many(count), sampler, Toolbox(LIBRARY, DictIndex(), 3, 200), SearcherConfig(), Sampling())
        assert sampler.size == 0 and sampler.asked[0][0] == list(range(count))


def test_what_breaks_beside_sampling_ends_the_rollout():
    class Bug(DictIndex):
        def search(self, queries, top_k):
            raise ZeroDivisionError

    sampler, closed = Halved(write), []
    sampler.close = lambda: closed.append(True)
    with pytest.raises(ZeroDivisionError):
        play_episodes(many(rollout.HALVED_FROM), sampler, Toolbox(LIBRARY, Bug(), 3, 200), SearcherConfig(), Sampling())
    assert closed == [True]
