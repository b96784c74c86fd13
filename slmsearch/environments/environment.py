"""An environment: what a policy plays, with its data, its supervised training and its controls, each with a default.

Training, evaluation, flows and tracking know an environment by this class. docs/environments.md shows a whole one.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from slmsearch.environments.question_set import QuestionSet
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.controls import Controls
from slmsearch.episodes.data_source import DataSource
from slmsearch.episodes.playable import Playable
from slmsearch.episodes.sampler import Message
from slmsearch.episodes.teaching import Teaching
from slmsearch.errors import SlmSearchError


class NotOpenError(SlmSearchError, AttributeError, boundary="environment"):
    """Error of an environment that is used before it is open: it lacks a resource."""


class Environment(Playable):
    """An environment that a policy can be trained and evaluated in, with the settings of a run."""

    data: ClassVar[type[DataSource]] = QuestionSet
    teaching: ClassVar[type[Teaching[Any]]] = Teaching
    controls: ClassVar[type[Controls[Any]]] = Controls

    if not TYPE_CHECKING:  # else mypy takes any attribute for one that exists

        def __getattr__(self, name: str) -> Any:
            if "judge" in vars(self) or hasattr(type(self), name):  # open, or a property: its own error says what is wrong
                return object.__getattribute__(self, name)
            raise NotOpenError(f"{type(self).__name__} has no `{name}` before it is open: use the environment that `open` returns")


def through(renderer: ChatRenderer, message: Message) -> str:
    """Send a message of the policy through a model's tokenizer and back."""
    return renderer.decode([*renderer.message_ids(message), renderer.end_id])
