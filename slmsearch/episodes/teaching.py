"""Supervised training of an environment: demonstrations, and the start of a training."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from slmsearch.config import RunConfig, SftConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode
from slmsearch.errors import ConfigError, TrainingError

BESIDE = "beside"
"""Name of the source of examples from another corpus, which take turns with all others of a finite source."""
Opened = TypeVar("Opened")
"""Type of the opened environment."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Settings of an environment's tiny model, which `slmsearch bootstrap` makes from scratch."""

    pieces: tuple[str, ...]
    """Strings that are single tokens."""
    vocabulary: int
    """Number of tokens."""
    does: str
    """Skill of the model, for its card: "searches ..."."""
    learnt_from: str
    """Training data of the model, for its card."""
    lacks: Mapping[str, str]
    """Recipe -> what a model of it cannot do, for its card."""
    text_recipe: str | None = None
    """Recipe of the text that trains the tokenizer; None: that of the model."""
    even: bool = False
    """True: every token weighs the same, see `train_sft`."""
    sft: Mapping[str, float] = field(default_factory=dict)
    """Settings of `sft` that replace those left at their defaults."""


@dataclass(frozen=True)
class Teaching(Generic[Opened]):
    """Supervised training of a run's environment; by default there are no demonstrations."""

    config: RunConfig
    digest: str | None = None
    """Corpus of the run; None: the configured one, built or looked up."""
    index_key: str | None = None
    """Index version of the run, where the environment has one; None: the configured one, built or looked up."""
    part: tuple[int, int | None] = (0, None)
    """First of the selected training questions that are demonstrated, and the one after the last; others are demonstrated elsewhere."""
    tiny: ClassVar[TinyModel | None] = None
    """Tiny model of the environment; None: there is none."""
    seed_offset: ClassVar[int] = 0
    """Number added to `sft.seed` for the demonstrations that teach a given model, if they must differ from those of the tiny model."""
    advice: ClassVar[str] = ""
    """Advice if no example is left; empty: to raise the first of `Limits.settings`."""

    def demonstrations(self, settings: SftConfig) -> Iterator[Demonstration]:
        """Demonstrate generated questions without end; `settings` have recipe, seed and sizes.

        Raises:
            ConfigError: the environment has no demonstrations.
        """
        raise ConfigError(f"environment {self.config.environment} has no demonstrations; choose another --from, or evaluate.shots 0")

    def examples(self, source: str, wrong: Mapping[str, Episode] | None = None) -> tuple[list[Demonstration], Counter[str]]:
        """Collect the demonstrations of a finite source; return them, and the number left out by reason.

        Args:
            source: name of the source.
            wrong: question text -> the model's own episode; only these questions are shown. None: all are.

        Raises:
            ConfigError: the source does not exist.
        """
        raise ConfigError(f"environment {self.config.environment} has no examples from {source!r}; take demonstrations or own")

    def worked_examples(self, environment: Opened, questions: Sequence[Question]) -> Iterable[Demonstration]:
        """Demonstrate episodes for the prompts of an evaluation, best first, the same ones every time; by default generated questions.

        Args:
            environment: plays the questions.
            questions: training questions that are not evaluated.

        Raises:
            ConfigError: the environment has no demonstrations.
        """
        return self.demonstrations(SftConfig(recipe="expert"))

    def settings(self, examples: int) -> SftConfig:
        """Return the settings of supervised training on a set of that many examples."""
        return self.config.sft

    def start_sources(self) -> tuple[str, ...]:
        """Return the names of the sources of examples that a training begins with."""
        return ("demonstrations",)

    def start_parts(self, digest: str) -> Mapping[str, object] | None:
        """Collect the environment's parts of the key of the start; None if a training begins without one."""
        return None

    def train_parts(self) -> Mapping[str, object]:
        """Collect everything beside the corpus that decides which questions are trained on; part of a training's key."""
        return {}

    def training_questions(self, environment: Opened, questions: Sequence[Question]) -> list[Question]:
        """Return the questions to train on: `questions`, or some of them replaced."""
        return select_questions(questions, self.config.train.limit)


def select_questions(questions: Sequence[Question], limit: int) -> list[Question]:
    """Select the questions to train on: the first `limit` questions (0: all), without repeated texts.

    Raises:
        TrainingError: no question is left.
    """
    unique: dict[str, Question] = {}
    for question in questions:
        unique.setdefault(question.question, question)
    if not unique:
        raise TrainingError("there is no question to train on: check corpus.questions")
    return list(unique.values())[: limit or None]
