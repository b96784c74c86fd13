"""Controls of an environment: policies and questions that a trained policy is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.sampler import Sampler
from slmsearch.errors import ConfigError

Opened = TypeVar("Opened")
"""Type of the opened environment."""


@dataclass(frozen=True)
class Controls(Generic[Opened]):
    """Comparisons of a run's environment; by default only the untrained policy."""

    config: RunConfig
    baselines: ClassVar[tuple[str, ...]] = ()
    """Names of policies without a model."""
    reference: ClassVar[str] = ""
    """Baseline that a trained policy is also compared with."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Controls that are derived from the trained policy's episodes and played after it."""
    has_sft: ClassVar[bool] = False
    """True if a control is supervised training for as long as GRPO took (`control`)."""

    def evaluated(self) -> tuple[str, ...]:
        """Return the names of the policies that are evaluated beside the trained one."""
        return self.baselines

    def sampler(self, environment: Opened, name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        """Make the sampler of a policy without a model, one of `baselines` or `derived`, for these questions.

        Args:
            environment: plays the questions.
            name: name of the policy.
            questions: to be played.
            written: question id -> first message in the evaluation that a derived control is made from.

        Raises:
            ConfigError: the policy does not exist.
        """
        raise ConfigError(f"there is no baseline {name!r}; use one of: {', '.join(self.baselines) or 'none'}")

    def twins(self, environment: Opened, questions: Sequence[Question], view: str) -> list[Question]:
        """Make the twins of questions for a view of `evaluate.views`.

        Raises:
            ConfigError: the environment has no twins.
        """
        raise ConfigError("this environment has no twins of its questions: leave evaluate.views at whole")

    def has_reader(self) -> bool:
        """Return whether the policy is compared with its own model untrained, with worked examples, from memory, and as a reader."""
        return False
