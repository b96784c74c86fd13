"""Worked examples: which episodes are shown, where they stand in a prompt, and what refuses them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import set_seed

from slmsearch.config import EvaluateConfig, PolicyConfig, RunConfig, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner.plan import parse_plan
from slmsearch.environments.planner.planner_environment import PlannerEnvironment
from slmsearch.environments.searcher.parsing import parse_turn, render_answer
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.sampler import Message, Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.teaching import Teaching
from slmsearch.errors import ConfigError, ContextError
from slmsearch.evaluate import run, shards
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key, evaluate_policy, make_policy_sampler
from slmsearch.evaluate.store import load_evaluation
from slmsearch.evaluate.worked_examples import FewShotSampler, add_examples, choose_examples
from slmsearch.judge import ExactJudge
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.bootstrap import build_tokenizer, make_model
from tests.slmsearch.evaluate.corpus import QUESTIONS, make_toolbox

ONE_HOP, TWO_HOPS = QUESTIONS[:3], QUESTIONS[3]


def open_searcher(shots: int, **searcher: object) -> SearcherEnvironment:
    config = RunConfig(evaluate=EvaluateConfig(shots=shots), searcher=SearcherConfig.model_validate(searcher))
    return SearcherEnvironment(config).with_tools(make_toolbox(), ExactJudge())


def roles(messages: Sequence[Message]) -> list[str]:
    return [message["role"] for message in messages]


def asked_in(messages: Sequence[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


def test_examples_are_whole_episodes_and_the_first_has_two_hops() -> None:
    environment = open_searcher(2)
    shown = choose_examples(environment, QUESTIONS, ONE_HOP[:1])
    first, second = asked_in(shown)
    assert first == TWO_HOPS.question
    assert second in [question.question for question in ONE_HOP[1:]], "what is evaluated is not shown"
    turns = [parse_turn(message["content"]) for message in shown if message["role"] == "assistant"]
    assert not any(turn.malformed for turn in turns)
    known = {question.question: question.answer for question in QUESTIONS}
    assert [turn.answer for turn in turns if turn.answer] == [known[first], known[second]]
    results = [message["content"] for message in shown if message["role"] == "tool"]
    assert len(results) == sum(turn.call is not None for turn in turns)
    assert any("4100 inhabitants" in result for result in results), "through the real tools"
    assert shown == choose_examples(environment, QUESTIONS, ONE_HOP[:1])


@given(asked=st.sets(st.integers(0, len(QUESTIONS) - 1)), shots=st.integers(0, 5))
def test_no_evaluated_question_is_shown_whatever_is_asked(asked: set[int], shots: int) -> None:
    questions = [QUESTIONS[i] for i in asked]
    free = {question.question for i, question in enumerate(QUESTIONS) if i not in asked and question.is_answerable}
    environment = open_searcher(shots)
    if shots > len(free):
        with pytest.raises(ConfigError, match=f"evaluate.shots is {shots}, and {len(free)} training questions"):
            choose_examples(environment, QUESTIONS, questions)
        return
    shown = asked_in(choose_examples(environment, QUESTIONS, questions))
    assert len(set(shown)) == len(shown) == shots
    assert set(shown) <= free
    assert shots == 0 or 3 in asked or shown[0] == TWO_HOPS.question


def test_too_few_examples_are_one_line_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"evaluate.shots is 2, and 0 training questions.*lower it, or name gold sections") as refused:
        choose_examples(open_searcher(2), QUESTIONS, QUESTIONS)
    assert "\n" not in str(refused.value)


def test_an_example_fits_into_the_turns_of_an_episode() -> None:
    shown = choose_examples(open_searcher(1, max_turns=4), QUESTIONS, [])
    assert asked_in(shown) != [TWO_HOPS.question]
    assert roles(shown).count("assistant") == 4


@pytest.mark.parametrize("role", ["tool", "user"])
def test_a_searcher_sees_the_examples_in_front_of_its_question(role: str) -> None:
    environment = open_searcher(1, tool_role=role)
    environment.examples = choose_examples(environment, QUESTIONS, ONE_HOP)
    heard: list[list[Message]] = []

    class Listening(ScriptedSampler):
        def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
            heard.extend(map(list, prompts))
            return super().open(prompts, sampling)

    sampler = FewShotSampler(Listening(lambda question, results: render_answer("1823")), environment)
    found = evaluate_policy(ONE_HOP[:1], environment, PolicySpec("few-shot", PolicyConfig()), sampler=sampler)
    assert found.rows[0].correct and found.episodes[0].stop_reason is StopReason.ANSWERED
    (prompt,) = heard
    opening = environment.opening(ONE_HOP[0].question)
    assert prompt == [opening[0], *environment.examples, opening[1]]
    assert set(roles(environment.examples)) == {"user", "assistant", role}


def test_from_memory_an_example_is_a_question_and_its_answer() -> None:
    shown = choose_examples(open_searcher(2, reads="nothing"), QUESTIONS, ONE_HOP[1:])
    assert [message["content"] for message in shown] == [
        TWO_HOPS.question,
        render_answer(TWO_HOPS.answer),
        ONE_HOP[0].question,
        render_answer(ONE_HOP[0].answer),
    ]
    assert roles(shown) == ["user", "assistant"] * 2


def test_a_planner_is_shown_plans() -> None:
    config = RunConfig(environment="planner", evaluate=EvaluateConfig(shots=2))
    environment = PlannerEnvironment(config).open(ExactJudge())
    shown = choose_examples(environment, [], [])
    assert roles(shown) == ["user", "assistant", "user", "assistant"]
    plans = [parse_plan(message["content"]).plan for message in shown if message["role"] == "assistant"]
    assert {plan.should_decompose for plan in plans if plan} == {True, False}, "one that splits its problem, and one that does not"
    other = choose_examples(environment, [], [Question("p", asked_in(shown)[0], "1")])
    assert asked_in(shown)[0] not in asked_in(other)


class Stubborn(Teaching[SearcherEnvironment]):
    """Demonstrates one question for ever."""

    def worked_examples(self, environment: SearcherEnvironment, questions: Sequence[Question]) -> Iterator[Demonstration]:
        while True:
            yield Demonstration("Who?", (("Mira", ""),))


def test_an_environment_that_cannot_demonstrate_says_so_and_one_that_repeats_itself_ends() -> None:
    environment = open_searcher(2)
    environment.teaching = Teaching  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"has no demonstrations; .*evaluate.shots 0"):
        choose_examples(environment, QUESTIONS, [])
    environment.teaching = Stubborn  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"and 1 training questions .* have a demonstration: lower it$"):
        choose_examples(environment, QUESTIONS, [])


_MESSAGES = st.lists(st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), st.text()))


@given(system=st.booleans(), prompt=_MESSAGES, examples=_MESSAGES)
def test_examples_stand_behind_the_system_message_and_before_all_others(
    system: bool, prompt: list[dict[str, str]], examples: list[dict[str, str]]
) -> None:
    head = [{"role": "system", "content": "s"}] if system else []
    assert add_examples([*head, *prompt], examples) == [*head, *examples, *prompt]


def test_a_prompt_with_its_examples_and_an_episode_has_to_fit_into_the_context() -> None:
    tokenizer = build_tokenizer(["When was Mira founded? In 1823, Dunmar said."] * 9)
    set_seed(0)
    model = make_model(tokenizer).eval()
    environment = open_searcher(1, max_episode_tokens=64)
    environment.examples = choose_examples(environment, QUESTIONS, ONE_HOP)
    prompt = environment.opening(ONE_HOP[0].question)
    sampler = FewShotSampler(TorchSampler(model, tokenizer), environment)
    model.config.max_position_embeddings = 10_000
    (ids,) = sampler.open([prompt], Sampling())
    (alone,) = TorchSampler(model, tokenizer).open([prompt], Sampling())
    assert len(ids) > len(alone) + 64
    model.config.max_position_embeddings = len(ids) + 64
    assert sampler.open([prompt], Sampling()) == [ids]
    model.config.max_position_embeddings = len(ids) + 63
    with pytest.raises(ContextError, match=r"whole episode has .* tokens.*lower evaluate.shots or searcher.max_episode_tokens"):
        sampler.open([prompt], Sampling())


def test_only_a_model_gets_examples_and_keys_know_of_them() -> None:
    environment = open_searcher(1)
    environment.examples = choose_examples(environment, QUESTIONS, ONE_HOP)
    assert isinstance(make_policy_sampler(PolicySpec("random", None), environment, []), ScriptedSampler)
    served = PolicySpec("served", PolicyConfig(model="m", base_url="http://localhost:1/v1"))
    assert isinstance(make_policy_sampler(served, environment, []), FewShotSampler)

    def key(spec: PolicySpec, digest: str, settings: dict[str, object]) -> str:
        return eval_key(QUESTIONS, "index", spec, RunConfig().changed(settings), digest)

    plain, random = PolicySpec("served", served.policy), PolicySpec("random", None)
    assert key(plain, "a", {}) == key(plain, "b", {"train.split": "validation"})
    assert key(random, "a", {}) == key(random, "b", {"evaluate.shots": 2})
    shown = [("a", {"evaluate.shots": 1}), ("a", {"evaluate.shots": 2}), ("b", {"evaluate.shots": 2})]
    shown += [("a", {"evaluate.shots": 2, "train.split": "validation"}), ("a", {})]
    assert len({key(plain, digest, settings) for digest, settings in shown}) == len(shown)


def test_an_evaluation_and_each_of_its_shards_show_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = {"train": [TWO_HOPS, *ONE_HOP[1:]], "test": [ONE_HOP[0], QUESTIONS[4]]}
    config = RunConfig().changed({"evaluate.shots": 2, "evaluate.batch_size": 1, "paths.data_dir": str(tmp_path)})
    seen: list[tuple[Message, ...]] = []

    def make(spec: PolicySpec, environment: SearcherEnvironment, questions: Sequence[Question]) -> ScriptedSampler:
        seen.append(environment.examples)
        return ScriptedSampler(lambda question, results: render_answer("1823"))

    monkeypatch.setattr(run, "make_policy_sampler", make)
    monkeypatch.setattr(shards, "load_questions", lambda *_: splits)
    monkeypatch.setattr(shards, "open_environment", lambda config, *_: SearcherEnvironment(config).with_tools(make_toolbox(), ExactJudge()))
    monkeypatch.setattr(run, "describe_policy", lambda *_: {})
    spec = PolicySpec("few-shot", PolicyConfig())
    shards.play_evaluation(shards.EvaluationTarget("key"), spec, "digest", "index", config)
    for part in shards.split_shards(2, 1, 2):
        shards.play_evaluation(shards.EvaluationTarget("other", part), spec, "digest", "index", config)
    assert len(load_evaluation(config.paths.evals, "key").rows) == 2
    assert len(seen) == 3 and len(set(map(str, seen))) == 1 and asked_in(seen[0])[0] == TWO_HOPS.question
    shards.play_evaluation(shards.EvaluationTarget("random"), PolicySpec("random", None), "digest", "index", config)
    assert seen[-1] == (), "a policy without a model"
