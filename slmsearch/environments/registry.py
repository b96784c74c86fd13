"""The registry of environments: name -> class."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from slmsearch.config import CorpusConfig, RunConfig
from slmsearch.environments.environment import Environment
from slmsearch.errors import ConfigError

BUILT_IN = {
    "searcher": "slmsearch.environments.searcher.searcher_environment:SearcherEnvironment",
    "planner": "slmsearch.environments.planner.planner_environment:PlannerEnvironment",
    "writer": "slmsearch.environments.writer.writer_environment:WriterEnvironment",
}
"""The registry: name -> module and class. Any other environment is named by its module and class."""


def environment_of(config: RunConfig) -> Environment:
    """Make the configured environment, whose resources are not open yet.

    Raises:
        ConfigError: no environment has that name.
    """
    return find_environment(config.environment)(config)


def open_environment(config: RunConfig, digest: str | None = None, index_key: str | None = None) -> Environment:
    """Open the configured environment with the configured judge; None builds or looks up the corpus or index.

    Raises:
        ConfigError: no environment has that name.
        CorpusError, IndexUnusableError: the corpus or the index is missing or damaged.
    """
    from slmsearch.judge.llm import make_judge

    return environment_of(config).open(make_judge(config.judge, config.paths.data_dir), digest, index_key)


@cache
def find_environment(name: str) -> type[Environment]:
    """Find an environment: a name of the registry, or `module:Class`.

    Raises:
        ConfigError: there is none, or the object is not an `Environment`.
    """
    module, _, attribute = BUILT_IN.get(name, name).partition(":")
    known = f"{', '.join(BUILT_IN)}, or MODULE:CLASS of your own"
    if not attribute:
        raise ConfigError(f"environment {name!r} is not known; give {known}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"environment {name!r} cannot be imported ({error}); give {known}") from error
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise ConfigError(f"{name!r} is not a subclass of slmsearch.environments.environment.Environment; give {known}")
    return found


def all_baselines() -> set[str]:
    """Return the names of the baselines of all built-in environments."""
    return {baseline for name in BUILT_IN for baseline in find_environment(name).controls.baselines}


def collect_source(config: CorpusConfig, recorded: Mapping[str, Any]) -> Mapping[str, object] | None:
    """Collect again the parts that a corpus was hashed from, as the environment that made it did; None if they cannot be known now.

    Args:
        config: recorded settings of the corpus.
        recorded: parts that were collected when the corpus was made.
    """
    found = (find_environment(name).data.collect_again(config, recorded) for name in BUILT_IN)
    return next((parts for parts in found if parts is not None), None)
