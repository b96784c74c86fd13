"""Asking a served model one question at a time, in the same loop that trains and evaluates it."""

from collections.abc import Sequence

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.registry import environment_of
from slmsearch.errors import GenerationError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import make_policy_sampler
from slmsearch.generate.sampler import Sampling
from slmsearch.http_client import list_models
from slmsearch.searcher.episode import Episode


def find_model(base_url: str, api_key: str = "none") -> str:
    """Ask a server which model it serves; of several the first.

    Raises:
        GenerationError: it does not answer, or serves none.
    """
    names = list_models(base_url, api_key, 10.0, elsewhere=True)
    if names is None:
        raise GenerationError(f"no server answers at {base_url}; start it, or give --base-url")
    if not names:
        raise GenerationError(f"{base_url} lists no model; give --model")
    return names[0]


def ask(questions: Sequence[str], config: RunConfig, temperature: float = 0.0) -> list[Episode]:
    """Ask the configured policy, which a server has, and return the episodes; temperature 0 is greedy.

    Raises:
        GenerationError: the server did not answer.
    """
    environment = environment_of(config).open(config)
    asked = [Question(f"q{i}", text, "") for i, text in enumerate(questions)]
    sampler = make_policy_sampler(PolicySpec(config.policy.model, config.policy), environment, asked)
    sampling = Sampling(temperature, config.evaluate.seed, environment.limits.max_turn_tokens)
    episodes = environment.complete(asked, environment.play(asked, sampler, sampling))
    broken = next((episode.failure for episode in episodes if episode.failure), "")
    if broken:
        raise GenerationError(f"{broken}; check --base-url and --model")
    return episodes


def transcribe(episode: Episode) -> str:
    """Write an episode as lines: what the model wrote, what tools or the worker answered."""
    lines = []
    for turn in episode.turns:
        if turn.text:
            lines.append(f"> {turn.text}")
        elif turn.call is not None:
            lines.append(f"  {turn.call.argument}")
        if turn.result is not None:
            lines += [f"  {line}" for line in turn.result.text.splitlines() or ["(no answer)"]]
    return "\n".join(lines)
