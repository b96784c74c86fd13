"""Controls of an environment: policies and questions that a trained policy is measured beside."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.sampler import Sampler
from slmsearch.errors import ConfigError

Opened = TypeVar("Opened")
"""The environment, opened."""


class Controls(Generic[Opened]):
    """What results are compared with; by default nothing but the untrained policy."""

    baselines: ClassVar[tuple[str, ...]] = ()
    """Policies without a model."""
    reference: ClassVar[str] = ""
    """The baseline that a trained policy is compared with as well."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Controls that are made of the trained policy's episodes and played after it."""
    has_sft: ClassVar[bool] = False
    """Supervised training that goes on as long as GRPO did is a control (`control`)."""
    reward_kind: ClassVar[str] = ""
    """Setting whose value `task` asks for the real reward where another one is a control; empty: there is none."""

    def evaluated(self, config: RunConfig) -> tuple[str, ...]:
        """Name the policies that are evaluated beside the trained one."""
        return self.baselines

    def sampler(self, environment: Opened, name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        """Make a policy without a model, one of `baselines` or `derived`, for these questions.

        Args:
            environment: it plays.
            name: of the policy.
            questions: to be played.
            written: the first message to each question id in the evaluation that a derived control is made of.

        Raises:
            ConfigError: there is no such policy.
        """
        raise ConfigError(f"there is no baseline {name!r}; use one of: {', '.join(self.baselines) or 'none'}")

    def twins(self, environment: Opened, questions: Sequence[Question], view: str) -> list[Question]:
        """Make the twins of questions for a view of `evaluate.views`.

        Raises:
            ConfigError: the environment has none.
        """
        raise ConfigError("this environment has no twins of its questions: leave evaluate.views at whole")

    def has_reader(self, config: RunConfig) -> bool:
        """Say whether the policy is compared with its own model without searching: from memory, and as a reader."""
        return False
