"""A small language model that searches a corpus in several turns: its corpus, its episodes, its training.

The names below are the library for other programs; each is loaded when it is first asked for. Everything else may change without notice.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slmsearch.config import RunConfig
    from slmsearch.corpus.pages import Page
    from slmsearch.corpus.questions import Question
    from slmsearch.environments.environment import Environment
    from slmsearch.environments.question_set import QuestionSet
    from slmsearch.environments.registry import open_environment
    from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus, open_indexed_corpus
    from slmsearch.environments.searcher.rollout import play_episodes
    from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
    from slmsearch.episodes.controls import Controls
    from slmsearch.episodes.data_source import DataSource
    from slmsearch.episodes.episode import Episode
    from slmsearch.episodes.sampler import Sampling
    from slmsearch.episodes.teaching import Teaching
    from slmsearch.errors import SlmSearchError
    from slmsearch.evaluate.compare import compare
    from slmsearch.evaluate.policies import PolicySpec
    from slmsearch.evaluate.run import evaluate_policy
    from slmsearch.sampling.load_sampler import make_sampler

_MODULES = {
    "Controls": "slmsearch.episodes.controls",
    "DataSource": "slmsearch.episodes.data_source",
    "Environment": "slmsearch.environments.environment",
    "Episode": "slmsearch.episodes.episode",
    "IndexedCorpus": "slmsearch.environments.searcher.indexed_corpus",
    "Page": "slmsearch.corpus.pages",
    "PolicySpec": "slmsearch.evaluate.policies",
    "Question": "slmsearch.corpus.questions",
    "QuestionSet": "slmsearch.environments.question_set",
    "RunConfig": "slmsearch.config",
    "Sampling": "slmsearch.episodes.sampler",
    "SearcherEnvironment": "slmsearch.environments.searcher.searcher_environment",
    "SlmSearchError": "slmsearch.errors",
    "Teaching": "slmsearch.episodes.teaching",
    "compare": "slmsearch.evaluate.compare",
    "evaluate_policy": "slmsearch.evaluate.run",
    "make_sampler": "slmsearch.sampling.load_sampler",
    "open_environment": "slmsearch.environments.registry",
    "open_indexed_corpus": "slmsearch.environments.searcher.indexed_corpus",
    "play_episodes": "slmsearch.environments.searcher.rollout",
}
_VERIFIERS = dict.fromkeys(("SearcherEnv", "SearcherHarness", "SearcherTaskset"), "slmsearch.extensions.verifiers.harness")
"""Classes that verifiers finds by the package's name, where it is installed."""

__all__ = [
    "Controls",
    "DataSource",
    "Environment",
    "Episode",
    "IndexedCorpus",
    "Page",
    "PolicySpec",
    "Question",
    "QuestionSet",
    "RunConfig",
    "Sampling",
    "SearcherEnvironment",
    "SlmSearchError",
    "Teaching",
    "compare",
    "evaluate_policy",
    "make_sampler",
    "open_environment",
    "open_indexed_corpus",
    "play_episodes",
]
if find_spec("verifiers") is not None:
    __all__ += list(_VERIFIERS)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name) or _VERIFIERS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
