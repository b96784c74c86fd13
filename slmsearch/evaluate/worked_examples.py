"""Few-shot evaluation: worked examples in every prompt, between the system message and the question.

An example is a whole demonstrated episode as chat messages: question, call, tool result, ..., answer. An untrained model that never saw the
format of an episode is then judged by what it can do, not by what it was not told.
"""

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Environment
from slmsearch.episodes.chat_renderer import ChatRenderer, require_context
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.sampler import Message, SampledTurn, Sampler, Sampling
from slmsearch.errors import ConfigError

EXAMPLES_VERSION = 1
"""Part of the key of everything played with examples; raise it when the same data give other examples."""
TRIED = 1000
"""Number of demonstrations tried until enough of them show other questions than those evaluated."""


class FewShotSampler:
    """A sampler whose prompts hold the worked examples of an environment."""

    def __init__(self, sampler: Sampler, environment: Environment) -> None:
        """Wrap the sampler of a policy with a model."""
        self._sampler, self._examples, self._limits = sampler, environment.examples, environment.limits
        self.samples_beside = getattr(sampler, "samples_beside", False)

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`; the ids include those of the examples.

        Raises:
            ContextError: a prompt with a whole episode is longer than the context of a model that is loaded here.
        """
        whole = [add_examples(prompt, self._examples) for prompt in prompts]
        renderer = getattr(self._sampler, "renderer", None)
        if renderer is not None:
            tokens = longest_prompt(whole, renderer) + self._limits.max_episode_tokens
            remedy = f"lower evaluate.shots or {self._limits.settings[0]}"
            require_context(getattr(self._sampler, "model", None), tokens, "the longest prompt with a whole episode", remedy)
        return self._sampler.open(whole, sampling)

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        return self._sampler.sample(rows, results, room)

    def close(self) -> None:
        """See `Sampler.close`."""
        self._sampler.close()


def add_examples(prompt: Sequence[Message], examples: Sequence[Message]) -> list[Message]:
    """Insert examples behind the system messages of a prompt."""
    system = list(takewhile(lambda message: message["role"] == "system", prompt))
    return [*system, *examples, *prompt[len(system) :]]


def choose_examples(environment: Environment, questions: Sequence[Question], asked: Sequence[Question]) -> tuple[Message, ...]:
    """Choose `evaluate.shots` demonstrations as messages; the same data and settings give the same ones.

    Args:
        environment: opened.
        questions: training questions.
        asked: evaluated questions, which no example shows.

    Raises:
        ConfigError: the environment has no demonstrations, or too few.
    """
    config, texts = environment.config, {question.question for question in asked}
    if not config.evaluate.shots:
        return ()
    teaching = environment.teaching(config)
    shown = teaching.worked_examples(environment, [question for question in questions if question.question not in texts])
    chosen: dict[str, Demonstration] = {}
    for demonstration in islice(shown, TRIED):
        if demonstration.question not in texts:
            chosen.setdefault(demonstration.question, demonstration)
        if len(chosen) == config.evaluate.shots:
            break
    else:
        remedy = f"lower it, or {teaching.advice}" if teaching.advice else "lower it"
        raise ConfigError(
            f"evaluate.shots is {config.evaluate.shots}, and {len(chosen)} training questions that are not evaluated have a "
            f"demonstration: {remedy}"
        )
    return tuple(message for demonstration in chosen.values() for message in _as_messages(demonstration, environment))


def _as_messages(demonstration: Demonstration, environment: Environment) -> list[Message]:
    opening = demonstration.prompt or environment.opening(demonstration.question)
    messages = [message for message in opening if message["role"] != "system"]
    for text, result in demonstration.turns:
        messages.append(environment.message(text))
        if result:
            messages.append({"role": environment.config.searcher.tool_role, "content": result})
    return messages


def longest_prompt(prompts: Iterable[Sequence[Message]], renderer: ChatRenderer) -> int:
    """Count the tokens of the longest opening; 0 where there is none."""
    return max((len(renderer.encode_prompt(prompt)) for prompt in prompts), default=0)
