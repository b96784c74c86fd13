"""What can be trained and evaluated, behind one interface.

Trainer, evaluation, flows and tracking know an environment only by `Environment`: what it is played on, the messages that open an
episode, how episodes are played with a sampler, and a graded row for each. Most methods have a default; the page "Add an environment"
shows the few that a new one needs.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from slmsearch.config import CorpusConfig, RunConfig, SftConfig
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import Source
from slmsearch.corpus.store import store_corpus
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.grade import grade_episodes
from slmsearch.episodes.one_turn import play_one_turn
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import EpisodeRow, Measures
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.judge import Judge, Verdict, make_judge

NO_TOKEN_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an episode may get; what memory and trainer must hold."""

    max_turn_tokens: int
    max_episode_tokens: int
    """Tokens after the prompt, tool results included."""
    tool_role: str = "tool"
    settings: tuple[str, ...] = ()
    """Names of the settings that say so, that of the whole episode first."""
    max_result_chars: int = 0
    """Characters of the longest tool result; 0 where there is none."""
    max_example_tokens: int | None = None
    """Tokens of an example of supervised training, prompt included; None: what the policy may write is what it is shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check before training."""

    name: str
    passed: bool
    found: str
    """What was measured, in one line."""
    remedy: str = ""
    """What to do where it has not passed."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A question and alternating messages and tool results; ends with a message."""

    question: str
    turns: tuple[tuple[str, str], ...]
    """Message and the tool result that answers it; the last result is empty."""
    prompt: tuple[Message, ...] = ()
    """The messages that open it; empty: those of the environment."""
    new: bool = False
    """The model never got its question right: a correction, or a question that it plays wrongly."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What a tiny model that is made from nothing has of its environment (`slmsearch bootstrap`)."""

    pieces: tuple[str, ...]
    """Strings that are single tokens."""
    vocabulary: int
    """Tokens."""
    does: str
    """What the model does, for its card: "searches ..."."""
    learnt_from: str
    """What it was trained on, for its card."""
    lacks: Mapping[str, str]
    """What a model of each recipe cannot do, for its card."""
    text_recipe: str | None = None
    """Recipe of the text that trains the tokenizer; None: that of the model."""
    even: bool = False
    """Weigh every token alike, see `train_sft`."""
    sft: Mapping[str, float] = field(default_factory=dict)
    """Settings of `sft` that take the place of those left at their defaults."""


class Environment(ABC):
    """What can be trained and evaluated; a method with a default says what holds without one of your own."""

    does: ClassVar[str] = "was trained on questions of its own"
    """What a model of it does, for its card."""
    name: ClassVar[str]
    """Stands in names: of the registered model, of files and of tags."""
    data_name: ClassVar[str] = "questions"
    """What it is played on, in a word."""
    data_code: ClassVar[tuple[str, ...]] = ("corpus",)
    """Packages of `slmsearch` whose code decides what `check_data` finds."""
    unused: ClassVar[tuple[str, ...]] = ("corpus.", "searcher.", "planner.", "reward.", "control.")
    """Beginnings of settings that mean nothing to it."""
    baselines: ClassVar[tuple[str, ...]] = ()
    """Policies without a model."""
    reference: ClassVar[str] = ""
    """The baseline that a trained policy is compared with as well."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Controls that are made of the trained policy's episodes and played after it."""
    has_control: ClassVar[bool] = False
    """Supervised training that goes on as long as GRPO did is a control (`control`)."""
    output: ClassVar[str] = ""
    """Folder in the data directory in which a finished run is laid out as one directory; empty: it is not."""
    tool_names: ClassVar[tuple[str, ...]] = ()
    """Calls that an episode may hold."""
    start_seed: ClassVar[int] = 0
    """Added to `sft.seed` for the demonstrations that a given model is taught, where they are not to be those of the tiny model."""
    example_advice: ClassVar[str] = ""
    """What to do where no example of supervised training is left; empty: to raise the first of `Limits.settings`."""
    tiny: ClassVar[TinyModel | None] = None
    """How a tiny model of it is made; None: there is none."""

    def __init__(self, config: RunConfig, judge: Judge) -> None:
        """Bind settings and judge."""
        self.config, self.judge, self.limits = config, judge, self.limits_of(config)

    # What the settings say

    @classmethod
    @abstractmethod
    def limits_of(cls, config: RunConfig) -> Limits:
        """Return the configured limits."""

    @classmethod
    @abstractmethod
    def opening(cls, config: RunConfig, question: str) -> list[Message]:
        """Return the messages that open an episode, the question's text last."""

    @classmethod
    @abstractmethod
    def key_parts(cls, config: RunConfig) -> Mapping[str, object]:
        """Collect what decides how it is played and graded; part of every evaluation and training key."""

    @classmethod
    def eval_parts(cls, config: RunConfig, index_key: str) -> Mapping[str, object]:
        """Collect its parts of an evaluation's key."""
        return {"environment": cls.name, **cls.key_parts(config)}

    @classmethod
    def train_parts(cls, config: RunConfig, index_key: str) -> Mapping[str, object]:
        """Collect its parts of a training run's key."""
        return {cls.name: cls.key_parts(config)}

    @classmethod
    def prompt_parts(cls, config: RunConfig) -> Mapping[str, object]:
        """Collect what decides the prompt."""
        return {"messages": [dict(message) for message in cls.opening(config, "")]}

    @classmethod
    def start_parts(cls, config: RunConfig, digest: str) -> Mapping[str, object] | None:
        """Collect its parts of the key of the supervised training that a run begins with; None where it begins with none."""
        return None

    def twins(self, questions: Sequence[Question], twin: str) -> list[Question]:
        """Make the twins of questions, see `twins.py`.

        Raises:
            ConfigError: the environment has none.
        """
        raise ConfigError(f"the {self.name} has no twins of its questions: leave evaluate.views at whole")

    def to_train_on(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that are trained on: these, or some of them otherwise."""
        return select_questions(questions, self.config.train.limit)

    @classmethod
    def searches_real_pages(cls, config: RunConfig) -> bool:
        """Say whether a run begins with gold demonstrations of its own pages, so that reading and remembering are measured beside it."""
        return False

    @classmethod
    def start_sources(cls, config: RunConfig) -> tuple[str, ...]:
        """Name where the examples of that training come from."""
        return ("demonstrations",)

    @classmethod
    def baselines_of(cls, config: RunConfig) -> tuple[str, ...]:
        """Name the policies that are evaluated beside the trained one."""
        return cls.baselines

    @classmethod
    def servers_of(cls, config: RunConfig) -> Mapping[str, bool]:
        """Return the beginnings of settings with addresses and secrets, those of policy and judge apart: does playing use such a server?"""
        return {"planner.": False, "retrieval.": False, "sandbox.": False}

    # What it is played on

    @classmethod
    def sources(cls, config: RunConfig) -> dict[str, str | None]:
        """Return the configured files and data sets by setting; None where data are generated."""
        return {}

    @classmethod
    def load_questions(cls, config: RunConfig) -> list[Question]:
        """Load or generate the configured questions.

        Raises:
            CorpusError: a source is missing or broken.
            ConfigError: the environment defines no questions.
        """
        raise ConfigError(f"environment {cls.name} has no questions; define {cls.__name__}.load_questions")

    @classmethod
    def data_parts(cls, config: RunConfig) -> Mapping[str, object] | None:
        """Collect everything that decides what the data are; None where that cannot be known without loading them."""
        return None

    @classmethod
    def build_data(
        cls, config: RunConfig, corpora_dir: Path, skipped: list[Skipped] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> str:
        """Materialise the data as a corpus and return its digest; what is there already is found.

        What was not taken is added to `skipped`, and `progress` may be told how much of the sources has been read.

        Raises:
            CorpusError: a source is missing or broken, or the corpus cannot be written.
        """
        source = CorpusConfig(questions=next(iter(cls.sources(config).values()), None))
        return store_corpus(source, corpora_dir, lambda: Source([], cls.load_questions(config)), cls.data_parts(config))

    @classmethod
    def check_data(cls, corpora_dir: Path, digest: str) -> dict[str, object]:
        """Check the data; return `ok` and `findings`, each with ids."""
        return {"ok": True, "findings": []}

    @classmethod
    def describe_data(cls, config: RunConfig) -> str:
        """Say where the data come from."""
        return next((source for source in cls.sources(config).values() if source), cls.name)

    @classmethod
    def index_key(cls, config: RunConfig, digest: str) -> str:
        """Name the index version it is played with; empty where there is none."""
        return ""

    @classmethod
    def fresh(cls, config: RunConfig, seed: int, pages: int, questions: int) -> RunConfig:
        """Return the configuration of data that nobody has seen, for a nightly run; by default they stay the same."""
        return config

    @classmethod
    def open(cls, config: RunConfig, digest: str | None = None, index_key: str | None = None) -> Self:
        """Open what it is played with, by default the judge alone; without digest and index version it builds, or looks up, them."""
        return cls(config, make_judge(config.judge, config.paths.data_dir))

    # Playing

    def prompt(self, question: Question) -> list[Message]:
        """Return the messages that open an episode, the question's text last."""
        return self.opening(self.config, question.question)

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """Let the policy play every question once, as far as it goes by itself; by default it answers in one message."""
        prompts, room = [self.prompt(question) for question in questions], self.limits.max_episode_tokens
        return play_one_turn(questions, prompts, sampler, sampling, room, lambda text: (text.strip(), bool(text.strip())))

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """Do what is left when the policy's weights are given back."""
        return list(episodes)

    def score(self, question: Question, episode: Episode, correct: bool, draw: float) -> Reward:
        """Return the reward of an episode that did not fail; `draw` is uniform in [0, 1), for rewards that are random."""
        return Reward(float(correct), {"correct": float(correct)})

    def measure(self, question: Question, episode: Episode) -> Measures:
        """Measure what tables show of an episode beside its reward."""
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

    def changed(self, settings: Mapping[str, object]) -> Self:
        """Return the same with other settings, by their dotted names."""
        same = copy(self)
        same.config = self.config.changed(settings)
        same.limits = self.limits_of(same.config)
        return same

    def without_token_limits(self) -> Self:
        """Return the same without limits in tokens, for policies that write bytes."""
        same = self.changed({})
        same.limits = replace(self.limits, max_turn_tokens=NO_TOKEN_LIMIT, max_episode_tokens=NO_TOKEN_LIMIT)
        return same

    def as_task(self) -> Self:
        """Return the same with the real reward, where the configured one is a control."""
        return self

    def baseline(self, name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        """Make a policy without a model, one of `baselines` or `derived`, for these questions.

        `written` has the first message to each question id in the evaluation that a derived control is made of.

        Raises:
            ConfigError: there is no such baseline.
        """
        known = ", ".join(self.baselines) or "none"
        raise ConfigError(f"the {self.name} has no baseline {name!r}; use one of: {known}")

    @property
    def shares_base(self) -> bool:
        """True where something beside the policy samples from the policy's base; see `sample_base_with`."""
        return False

    def sample_base_with(self, open_base: Any) -> None:
        """Take what opens a sampler over the frozen base, a context manager."""
        self.open_base = open_base

    # What is checked before training

    def checks(self, renderer: ChatRenderer) -> Iterable[Check]:
        """Check what is particular to it, before anything is played."""
        return ()

    def check_rows(self, rows: Sequence[EpisodeRow]) -> Iterable[Check]:
        """Look at the preflight's rows for what is particular to it."""
        return ()

    # Supervised training

    @classmethod
    def demonstrations(cls, config: RunConfig, settings: SftConfig) -> Iterator[Demonstration]:
        """Demonstrate generated questions without end; `settings` say recipe, seed and sizes.

        Raises:
            ConfigError: nothing can be demonstrated.
        """
        raise ConfigError(f"nobody demonstrates how the {cls.name} is played; take another source of examples")

    @classmethod
    def examples(
        cls, config: RunConfig, source: str, wrong: Mapping[str, Episode] | None = None
    ) -> tuple[list[Demonstration], Counter[str]]:
        """Collect the demonstrations of a source that ends; return them, and how many were left out for which reason.

        Args:
            config: run.
            source: where they come from.
            wrong: what the model itself plays at the questions, by their text, that are to be shown alone; None: all are.

        Raises:
            ConfigError: there is no such source.
        """
        raise ConfigError(f"the {cls.name} has no examples from {source!r}; take demonstrations or own")

    @classmethod
    def sft_settings(cls, config: RunConfig, examples: int) -> SftConfig:
        """Return the settings of supervised training on a set of so many examples."""
        return config.sft


def through(renderer: ChatRenderer, text: str) -> str:
    """Send a text through a model's tokenizer and back."""
    return renderer.decode([*renderer.content_ids(text), renderer.end_id])


def select_questions(questions: Sequence[Question], limit: int) -> list[Question]:
    """Take the questions to train on: the first `limit` questions (0: all), leaving out those whose text came before.

    Raises:
        TrainingError: there are none.
    """
    unique: dict[str, Question] = {}
    for question in questions:
        unique.setdefault(question.question, question)
    if not unique:
        raise TrainingError("there is no question to train on: check corpus.questions")
    return list(unique.values())[: limit or None]
