"""The interface of what a policy plays: it opens an episode, lets the policy play it, and grades it.

It is the first part of an environment; the others (data, supervised training, controls) are in `environments/environment.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeVar

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.grade import grade_episodes
from slmsearch.episodes.one_turn import play_one_turn
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import EpisodeRow, Measures
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.judge import Judge, Verdict

NO_TOKEN_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an episode's length, for memory and trainer."""

    max_turn_tokens: int
    max_episode_tokens: int
    """Tokens after the prompt, tool results included."""
    tool_role: str = "tool"
    settings: tuple[str, ...] = ()
    """Names of the settings with these limits, that of the whole episode first."""
    max_result_chars: int = 0
    """Characters of the longest tool result; 0 if there are no tool results."""
    max_example_tokens: int | None = None
    """Tokens of an example of supervised training, prompt included; None: the limits of the policy's own episodes hold."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check before training."""

    name: str
    passed: bool
    found: str
    """Finding of the check, in one line."""
    remedy: str = ""
    """Remedy if it has not passed."""


class BaseUser(Protocol):
    """A component that samples from the policy's base, with the adapter disabled."""

    def sample_with(self, open_base: Callable[[], AbstractContextManager[Sampler]]) -> None:
        """Bind the function that opens a sampler over the frozen base."""
        ...


class Playable(ABC):
    """Something that a policy can play and learn from, with the settings of a run."""

    name: ClassVar[str]
    """Name of the environment, and part of the names of the registered model, of files and of tags."""
    does: ClassVar[str] = "was trained on questions of its own"
    """Description of a trained model's skill, for its card."""
    tool_names: ClassVar[tuple[str, ...]] = ()
    """Names of the calls that an episode may hold."""
    reward_kind: ClassVar[str] = ""
    """Setting that selects a control's reward; its value `task` is the real reward. Empty: there is no such control."""
    judge: Judge
    """Judge of the answers; missing until the environment is open, as are the resources of its own."""
    base_user: BaseUser | None = None
    """Component that samples from the policy's base while episodes are completed; None: there is none."""
    examples: tuple[Message, ...] = ()
    """Worked examples in every prompt of an evaluation, as messages (`evaluate/worked_examples.py`)."""

    def __init__(self, config: RunConfig) -> None:
        """Bind the settings of the run; no resource is opened."""
        self.config = config
        self.limits = self.make_limits()

    @abstractmethod
    def make_limits(self) -> Limits:
        """Return the configured limits."""

    @abstractmethod
    def opening(self, question: str) -> list[Message]:
        """Return the messages that open an episode, the question's text last."""

    def message(self, text: str) -> Message:
        """Return a message of the policy, as demonstrations write it, for its chat template."""
        return {"role": "assistant", "content": text}

    @abstractmethod
    def key_parts(self, index_key: str) -> Mapping[str, object]:
        """Collect everything that decides how it is played and graded; part of every evaluation and training key."""

    def open(self, judge: Judge, digest: str | None = None, index_key: str | None = None) -> Self:
        """Return a copy with this judge whose resources are open, by default none; None builds or looks up the corpus or index."""
        opened = copy(self)
        opened.judge = judge
        return opened

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """Let the policy play every question once, as far as it can alone; by default it answers in one message."""
        prompts = [self.opening(question.question) for question in questions]
        room = self.limits.max_episode_tokens
        return play_one_turn(questions, prompts, sampler, sampling, room, lambda text: (text.strip(), bool(text.strip())))

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """Complete the episodes after the policy's weights are released."""
        return list(episodes)

    def score(self, question: Question, episode: Episode, correct: bool, draw: float) -> Reward:
        """Return the reward of an episode that did not fail; `draw` is uniform in [0, 1), for rewards that are random."""
        return Reward(float(correct), {"correct": float(correct)})

    def measure(self, question: Question, episode: Episode) -> Measures:
        """Measure further numbers of an episode, for tables."""
        return Measures()

    def grade(
        self,
        questions: Sequence[Question],
        episodes: Sequence[Episode],
        verdicts: Sequence[Verdict] | None = None,
        draws: Sequence[float] = (),
    ) -> list[EpisodeRow]:
        """Score complete episodes, one row each; see `grade_episodes`."""
        return grade_episodes(questions, episodes, self.judge, self.score, self.measure, verdicts, draws)

    def checks(self, renderer: ChatRenderer) -> Iterable[Check]:
        """Run the environment's own checks before training, before any episode."""
        return ()

    def check_rows(self, rows: Sequence[EpisodeRow]) -> Iterable[Check]:
        """Run the environment's own checks of the preflight's rows."""
        return ()

    def changed(self, settings: Mapping[str, object]) -> Self:
        """Return a copy with other settings, by their dotted names."""
        same = copy(self)
        same.config = self.config.changed(settings)
        same.limits = same.make_limits()
        return same


Played = TypeVar("Played", bound=Playable)


def without_token_limits(environment: Played) -> Played:
    """Return an environment without limits in tokens, for policies that write bytes."""
    sections = RunConfig.model_fields
    settings = [name for name in environment.limits.settings if name.partition(".")[0] in sections]
    same = environment.changed(dict.fromkeys(settings, NO_TOKEN_LIMIT))
    same.limits = replace(same.limits, max_turn_tokens=NO_TOKEN_LIMIT, max_episode_tokens=NO_TOKEN_LIMIT)
    return same


def with_task_reward(environment: Played) -> Played:
    """Return an environment with the real reward, where the configured reward is a control."""
    setting = environment.reward_kind
    return environment.changed({setting: "task"}) if setting else environment
