"""Episodes with programs: what is played, counted, masked, stored, and that nothing changes where they are off."""

import json
from collections.abc import Sequence

import pytest

from slmsearch.config import ProgramLimits, RewardConfig, RunConfig, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.evidence import gather_evidence
from slmsearch.environments.searcher.failure_modes import FailureMode, find_failure_mode
from slmsearch.environments.searcher.prompt import PROGRAM_PROMPT, SYSTEM_PROMPT, describe_searcher, make_prompt
from slmsearch.environments.searcher.reward import score_episode
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import READ, SEARCH, Toolbox
from slmsearch.episodes.episode import CallMade, Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import SandboxError, SlmSearchError
from slmsearch.evaluate.store import episode_from_dict, episode_to_dict
from slmsearch.keys import content_key

from .test_rollout import LIBRARY, BrokenIndex, DictIndex  # type: ignore[import-not-found]

QUESTION = Question("q1", "When was Mira Talvoren born?", "1823", page_ids=("4821",), section_ids=("4821:life",))
ON = SearcherConfig(programs=True)
PROGRAM = "<code>\nprint(search_pages('Mira'))\n</code>"
MADE = (
    CallMade(ToolCall(SEARCH, "Mira"), ToolResult("", True, ("4821",))),
    CallMade(ToolCall(READ, "4821:life"), ToolResult("", True, ("4821",), ("4821:life",))),
    CallMade(ToolCall(READ, "9"), ToolResult("", False)),
)


class Runner:
    """Answers every program in the same way, and remembers them."""

    def __init__(self, answer: ToolResult | SlmSearchError) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    def run(self, programs: Sequence[str]) -> list[ToolResult | SlmSearchError]:
        self.batches.append(list(programs))
        return [self.answer] * len(programs)


def play(
    *scripts: Sequence[str], runner: Runner | None = None, config: SearcherConfig = ON, index: DictIndex | None = None
) -> list[Episode]:
    """Play one question per script; a script holds the messages in order."""
    questions = [Question(f"q{i}", f"{i}", "1823") for i in range(len(scripts))]
    sampler = ScriptedSampler(lambda question, results: scripts[int(question)][len(results)])
    toolbox = Toolbox(LIBRARY, index or DictIndex(), 3, 200, runner)
    return play_episodes(questions, sampler, toolbox, config, Sampling())


def test_a_program_is_run_and_its_output_comes_back() -> None:
    runner = Runner(ToolResult("found it", True, made=MADE))
    (episode,) = play((PROGRAM, "<answer>1823</answer>"), runner=runner)
    assert runner.batches == [["print(search_pages('Mira'))"]]
    assert episode.stop_reason is StopReason.ANSWERED
    assert episode.turns[0].program == "print(search_pages('Mira'))"
    assert episode.turns[0].call is None
    assert [call.name for call in episode.calls] == [SEARCH, READ, READ]
    assert episode.num_unserved == 1


def test_output_is_not_trained_on() -> None:
    (episode,) = play((PROGRAM, "<answer>1823</answer>"), runner=Runner(ToolResult("found it", True)))
    shown = bytes(i for i, m in zip(episode.completion_ids, episode.sampled_mask, strict=True) if not m).decode()
    assert shown == "found it"
    written = bytes(i for i, m in zip(episode.completion_ids, episode.sampled_mask, strict=True) if m).decode()
    assert written == f"{PROGRAM}<answer>1823</answer>"


def test_programs_of_a_turn_go_together_beside_the_calls() -> None:
    runner = Runner(ToolResult("out", True))
    call = '<tool>search_pages("Mira")</tool>'
    episodes = play(
        ("<code>a</code>", "<answer>x</answer>"), (call, "<answer>x</answer>"), ("<code>b</code>", "<answer>x</answer>"), runner=runner
    )
    assert runner.batches == [["a", "b"]]
    assert [episode.turns[0].result.text for episode in episodes if episode.turns[0].result] == ["out", "4821: Mira Talvoren", "out"]


def test_an_error_of_the_program_is_data_and_an_outage_fails_the_episode() -> None:
    (episode,) = play((PROGRAM, "<answer>x</answer>"), runner=Runner(ToolResult("error: NameError", False)))
    assert episode.stop_reason is StopReason.ANSWERED
    assert episode.num_unserved == 1
    (failed,) = play((PROGRAM, "<answer>x</answer>"), runner=Runner(SandboxError("it is down")))
    assert failed.stop_reason is StopReason.FAILED
    assert failed.failure == "sandbox: it is down"
    assert failed.turns[0].result is None


def test_an_outage_of_one_service_leaves_the_others_episodes_alone() -> None:
    call = '<tool>search_pages("Mira")</tool>'
    scripts = (("<code>a</code>", "<answer>x</answer>"), (call, "<answer>x</answer>"))
    episodes = play(*scripts, runner=Runner(ToolResult("out", True)), index=BrokenIndex())
    assert [episode.stop_reason for episode in episodes] == [StopReason.ANSWERED, StopReason.FAILED]
    episodes = play(*scripts, runner=Runner(SandboxError("down")))
    assert [episode.stop_reason for episode in episodes] == [StopReason.FAILED, StopReason.ANSWERED]


def test_off_by_default_a_program_is_malformed_and_nobody_runs_it() -> None:
    runner = Runner(ToolResult("out", True))
    (episode,) = play((PROGRAM, PROGRAM), runner=runner, config=SearcherConfig())
    assert episode.stop_reason is StopReason.MALFORMED
    assert runner.batches == []


def test_a_program_in_the_last_turn_is_not_run() -> None:
    runner = Runner(ToolResult("out", True))
    (episode,) = play((PROGRAM, PROGRAM), runner=runner, config=SearcherConfig(programs=True, max_turns=2))
    assert episode.stop_reason is StopReason.MAX_TURNS
    assert len(runner.batches) == 1


def test_without_a_sandbox_nothing_is_played() -> None:
    with pytest.raises(SandboxError, match=r"searcher\.programs is on and these tools have no sandbox, so no program is run"):
        play((PROGRAM,), runner=None)


def test_calls_of_a_program_count_as_evidence_and_cost() -> None:
    turn = Turn("code", program="...", result=ToolResult("out", True, made=MADE))
    episode = Episode("q1", (turn, Turn("a", answer="1823")), StopReason.ANSWERED)
    evidence = gather_evidence(QUESTION, episode)
    assert (evidence.first_hit, evidence.any_hit, evidence.gold_read) == (True, True, True)
    reward = score_episode(episode, QUESTION, True, RewardConfig(call_cost=0.1))
    assert reward.parts["call_cost"] == pytest.approx(-0.3)
    assert find_failure_mode(QUESTION, episode) is FailureMode.MISREAD


def test_episodes_with_programs_survive_storage_and_others_are_stored_as_before() -> None:
    turn = Turn("code", program="print(1)", result=ToolResult("out", True, made=MADE))
    episode = Episode("q1", (turn, Turn("a", answer="1823")), StopReason.ANSWERED)
    assert episode_from_dict(json.loads(json.dumps(episode_to_dict(episode)))) == episode
    plain = Episode("q1", (Turn("c", ToolCall(SEARCH, "x"), result=ToolResult("r", True)),), StopReason.MAX_TURNS)
    stored = episode_to_dict(plain)["turns"][0]
    assert set(stored) == {"text", "call", "answer", "result", "context_ids", "sampled_ids"}
    assert set(stored["result"]) == {"text", "served", "page_ids", "section_ids"}


def test_settings_of_programs_stand_in_no_key_where_there_are_none() -> None:
    assert "programs" not in describe_searcher(SearcherConfig(), RunConfig().sandbox.limits)


def test_programs_and_their_limits_are_part_of_keys_and_prompt() -> None:
    on = describe_searcher(ON, RunConfig().sandbox.limits)
    assert on["programs"]["prompt"] == PROGRAM_PROMPT
    changed = describe_searcher(ON, ProgramLimits(calls=1))
    assert len({content_key(x=value) for value in (on, changed, describe_searcher(SearcherConfig(), RunConfig().sandbox.limits))}) == 3
    assert make_prompt("?", ON)[0]["content"] == SYSTEM_PROMPT + PROGRAM_PROMPT
    assert make_prompt("?", SearcherConfig())[0]["content"] == SYSTEM_PROMPT
    assert make_prompt("?", SearcherConfig(programs=True, system_prompt="mine"))[0]["content"] == "mine"
