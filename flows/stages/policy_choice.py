"""Choose the policy of a flow, a command or the service: the named one, the champion, or the configured one."""

from flows.runtime.servers import Say
from slmsearch.config import RunConfig
from slmsearch.environments.registry import all_baselines, environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec, parse_policy
from slmsearch.models.known import path_of
from tasks.promotion import champion_policy, find_champion
from tasks.tracking import CHAMPION


def choose_policy(config: RunConfig, policy: str | None) -> PolicySpec:
    """Return the policy of a name.

    Raises:
        ConfigError: the name means nothing.
        ModelError: the champion is asked for and there is none.
    """
    if policy == CHAMPION or (policy is None and not config.policy.adapter and find_champion(config)):
        return PolicySpec(CHAMPION, champion_policy(config))
    if policy is None:
        return PolicySpec(TRAINED if config.policy.adapter else UNTRAINED, config.policy)
    return parse_policy(policy, config.policy, environment_of(config).controls.baselines)


def choose_searcher_policy(config: RunConfig, policy: str | None, say: Say) -> PolicySpec:
    """Choose the policy to ask: the named one, else the champion, else the configured one, with a message.

    Raises:
        ConfigError: the name means nothing.
        ModelError: the champion is asked for by name and there is none.
    """
    if policy is None or policy == CHAMPION:
        spec = choose_policy(config, policy)
        if spec.name == UNTRAINED:
            model = config.policy.model
            say(f"nothing was promoted yet, so the untrained {model} answers; `slmsearch run train-and-eval` trains a champion")
        return spec
    own = SearcherEnvironment.controls.baselines
    if policy in all_baselines() and policy not in own:
        raise ConfigError(f"policy {policy!r} cannot search; give champion, untrained, a path, or openai:MODEL@URL")
    return parse_policy(path_of(policy, config.paths.data_dir), config.policy, own)
