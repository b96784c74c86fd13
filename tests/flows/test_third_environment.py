"""An environment of one's own, in one file: it is made a tiny model for, trained and evaluated, and no other module knows of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flows.train import train_and_eval
from slmsearch.config import RunConfig, SftConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Environment
from slmsearch.environments.question_set import QuestionSet
from slmsearch.environments.registry import environment_of, open_environment
from slmsearch.episodes.controls import Controls
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.playable import Limits
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.teaching import Teaching, TinyModel
from slmsearch.errors import ConfigError
from slmsearch.training.bootstrap import bootstrap
from tasks.tracking import open_tracker
from tests.flows.fakes import make_config
from tests.flows.plain import without_prefect

CODES = {f"{letter}{number}": str((7 * number + ord(letter)) % 10) for letter in "ABCDEFGHIJ" for number in range(10)}


# [environment]
class LookUp(Environment):
    """Says the digit that belongs to a code; a right answer that is a digit alone pays, anything else costs."""

    name = "look-up"
    does = "knows the digit of a code"

    def make_limits(self) -> Limits:
        return Limits(max_turn_tokens=8, max_episode_tokens=8, settings=("LookUp.make_limits",))

    def opening(self, question: str) -> list[Message]:
        return [{"role": "user", "content": question}]

    def key_parts(self, index_key: str) -> dict[str, object]:
        return {"version": 1}

    def score(self, question: Question, episode: Episode, correct: bool, draw: float) -> Reward:
        parts = {"correct": float(correct), "wordy": 0.0 if len(episode.answer or "") == 1 else -0.1}
        return Reward(sum(parts.values()), parts)


# [/environment]


# [parts]
class Codes(QuestionSet):
    def load_questions(self) -> list[Question]:
        return [Question(code, f"Digit of {code}?", digit) for code, digit in CODES.items()]


class Lessons(Teaching[LookUp]):
    tiny = TinyModel(
        pieces=(),
        vocabulary=300,
        does="says the digit of a code",
        learnt_from="codes and digits",
        lacks={"noisy": "Its teacher guessed every other digit.", "expert": "Its teacher knew every digit."},
        sft={"steps": 40, "tokens_per_batch": 512},
    )

    def demonstrations(self, settings: SftConfig) -> Iterator[Demonstration]:
        chance = Random(f"look-up {settings.seed}")
        while True:
            code, digit = chance.choice(list(CODES.items()))
            guessed = settings.recipe == "noisy" and chance.random() < 0.5
            yield Demonstration(f"Digit of {code}?", ((str(chance.randrange(10)) if guessed else digit, ""),))


class Guesses(Controls[LookUp]):
    baselines = ("always-7",)

    def sampler(self, environment: LookUp, name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        return ScriptedSampler(lambda question, results: "7")


class TaughtLookUp(LookUp):
    data, teaching, controls = Codes, Lessons, Guesses


# [/parts]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("prefect_harness")
def test_an_environment_of_ones_own_is_trained_and_evaluated(isolated_environment: Path, empty_store: Path) -> None:
    train = {"steps": 2, "group_size": 4, "questions_per_step": 2, "preflight": "record", "monitor": {"held_out": 0}}
    evaluate = {"split": "test", "baselines": []}
    config = make_config(isolated_environment, {}, empty_store, train=train, evaluate=evaluate)
    config = config.model_copy(update={"environment": f"{__name__}:TaughtLookUp"})
    model = isolated_environment / "tiny-look-up"
    facts = bootstrap(config, model)
    assert facts["steps"] == 40 and "tiny-look-up (noisy demonstrations)" in (model / "README.md").read_text()

    config = config.model_copy(update={"policy": config.policy.model_copy(update={"model": str(model), "device": "cpu"})})
    summary = train_and_eval(config)
    assert json.loads((isolated_environment / "mlruns" / "latest-look-up.json").read_text())["n"] == summary["n"] == 10
    assert summary["training"]["steps"] == 2 and summary["environment"] == "look-up"
    assert summary["baselines"]["always-7"]["answer/correct"] <= 0.5
    assert {"reward/correct", "reward/wordy", "stop/answered"} <= set(summary["after"])
    assert summary["decision"] == "inconclusive", "ten questions decide nothing"
    tracker = open_tracker(config.paths, config.tracking)
    assert tracker.client.get_registered_model("slmsearch-look-up") is not None


def test_the_flow_around_it(isolated_environment: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for models, training, statistics and Prefect: the trained policy knows every digit."""
    without_prefect(monkeypatch)
    answers = {f"Digit of {code}?": digit for code, digit in CODES.items()}

    def make_sampler(policy: Any, tool_role: str) -> Sampler:
        return ScriptedSampler(lambda question, results: answers[question] if policy.adapter else "no idea")

    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", make_sampler)
    config = make_config(isolated_environment, {}, empty_store, searcher={"max_turns": 2})
    config = config.model_copy(update={"environment": f"{__name__}:TaughtLookUp"})
    summary = train_and_eval.fn(config)
    assert summary["after"]["answer/correct"] == summary["after"]["reward/correct"] == 1.0
    assert summary["before"]["answer/correct"] == 0.0 and summary["before"]["reward/wordy"] == -0.1
    assert 0 < summary["baselines"]["always-7"]["answer/correct"] < 0.5
    assert (summary["n"], summary["decision"], summary["environment"]) == (100, "promote", "look-up")
    latest = json.loads((isolated_environment / "mlruns" / "latest-look-up.json").read_text())
    assert latest["evaluations"] == summary["evaluations"] and "controls" not in latest
    assert open_tracker(config.paths, config.tracking).champion("slmsearch-look-up") is not None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("look-up", "not known"),
        ("no.such.module:LookUp", "cannot be imported"),
        (f"{__name__}:CODES", "is not a subclass of .*Environment"),
    ],
)
def test_an_unknown_environment_is_one_line(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{says}.*searcher, planner, writer, or MODULE:CLASS"):
        environment_of(RunConfig(environment=name))


def test_the_first_part_alone_plays_and_grades_questions_of_a_file(tmp_path: Path) -> None:
    rows = [{"question": f"Digit of {code}?", "answer": digit} for code, digit in CODES.items()]
    (tmp_path / "codes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = RunConfig(environment=f"{__name__}:LookUp").changed({"corpus.questions": str(tmp_path / "codes.jsonl")})
    questions = LookUp.data(config).load_questions()
    assert len(questions) == len(CODES) == len({question.id for question in questions})
    environment = open_environment(config)
    episodes = environment.play(questions[:2], ScriptedSampler(lambda question, results: questions[0].answer), Sampling())
    rewards = [row.reward for row in environment.grade(questions[:2], environment.complete(questions[:2], episodes))]
    assert rewards == [1.0, float(questions[0].answer == questions[1].answer)]


def test_the_first_part_is_as_long_as_the_page_says() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert len(text.partition("# [environment]")[2].partition("# [/environment]")[0].split("\n")) <= 60


def test_an_environment_without_questions_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"needs questions: set corpus\.questions"):
        LookUp.data(RunConfig(environment="look-up")).load_questions()
