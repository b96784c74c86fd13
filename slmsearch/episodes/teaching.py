"""Supervised training of an environment: demonstrations, and what a training begins with."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from slmsearch.config import RunConfig, SftConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.data_source import select_questions
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.sampler import Message
from slmsearch.errors import ConfigError

Opened = TypeVar("Opened")
"""The environment, opened."""


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


class Teaching(Generic[Opened]):
    """What supervised training shows a model; by default there is nothing to show."""

    tiny: ClassVar[TinyModel | None] = None
    """How a tiny model of the environment is made; None: there is none."""
    seed_offset: ClassVar[int] = 0
    """Added to `sft.seed` for the demonstrations that a given model is taught, where they are not to be those of the tiny model."""
    advice: ClassVar[str] = ""
    """What to do where no example is left; empty: to raise the first of `Limits.settings`."""

    def demonstrations(self, config: RunConfig, settings: SftConfig) -> Iterator[Demonstration]:
        """Demonstrate generated questions without end; `settings` say recipe, seed and sizes.

        Raises:
            ConfigError: the environment has no demonstrations.
        """
        raise ConfigError(f"environment {config.environment} has no demonstrations; choose another --from")

    def examples(
        self, config: RunConfig, source: str, wrong: Mapping[str, Episode] | None = None
    ) -> tuple[list[Demonstration], Counter[str]]:
        """Collect the demonstrations of a source that ends; return them, and how many were left out for which reason.

        Args:
            config: run.
            source: where they come from.
            wrong: the model's own episodes of the only questions to be shown, by their text; None: all questions are.

        Raises:
            ConfigError: there is no such source.
        """
        raise ConfigError(f"environment {config.environment} has no examples from {source!r}; take demonstrations or own")

    def settings(self, config: RunConfig, examples: int) -> SftConfig:
        """Return the settings of supervised training on a set of that many examples."""
        return config.sft

    def start_sources(self, config: RunConfig) -> tuple[str, ...]:
        """Name where the examples come from that a training begins with."""
        return ("demonstrations",)

    def start_parts(self, config: RunConfig, digest: str) -> Mapping[str, object] | None:
        """Collect the environment's parts of the key of the start; None where a training begins without one."""
        return None

    def train_parts(self, config: RunConfig) -> Mapping[str, object]:
        """Collect what decides which questions are trained on, beside the corpus; part of a training's key."""
        return {}

    def training_questions(self, environment: Opened, config: RunConfig, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that are trained on: these, or some of them replaced."""
        return select_questions(questions, config.train.limit)
