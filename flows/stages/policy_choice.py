"""Choose the policy of a flow, a command or the service: the named one, the champion, or the configured one."""

from flows.runtime.servers import Say
from slmsearch.config import RunConfig
from slmsearch.environments.registry import all_baselines, environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError, ModelError
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec, parse_policy
from slmsearch.models.known import path_of
from tasks.promotion import Champion, find_champion
from tasks.tracking import CHAMPION


def choose_policy(config: RunConfig, policy: str | None) -> tuple[PolicySpec, Champion | None]:
    """Return the policy of a name, by default the champion's, and the champion if it is that.

    Raises:
        ConfigError: the name means nothing.
        ModelError: the champion is asked for and there is none.
    """
    if policy == CHAMPION or (policy is None and not config.policy.adapter):
        champion = find_champion(config.paths, config.tracking)
        if champion is not None:
            return PolicySpec(CHAMPION, champion.policy(config.policy)), champion
        if policy == CHAMPION:
            raise ModelError(f"{config.tracking.registered_model} has no champion yet; promote one with `slmsearch run train-and-eval`")
    if policy is None:
        return PolicySpec(TRAINED if config.policy.adapter else UNTRAINED, config.policy), None
    return parse_policy(policy, config.policy, environment_of(config).controls.baselines), None


def choose_searcher_policy(config: RunConfig, policy: str | None, say: Say) -> tuple[PolicySpec, Champion | None]:
    """Choose the policy to ask, as `choose_policy`, with a message if it is the untrained one.

    Raises:
        ConfigError: the name means nothing.
        ModelError: the champion is asked for by name and there is none.
    """
    if policy is None or policy == CHAMPION:
        spec, champion = choose_policy(config, policy)
        if spec.name == UNTRAINED:
            model = config.policy.model
            say(f"nothing was promoted yet, so the untrained {model} answers; `slmsearch run train-and-eval` trains a champion")
        return spec, champion
    own = SearcherEnvironment.controls.baselines
    if policy in all_baselines() and policy not in own:
        raise ConfigError(f"policy {policy!r} cannot search; give champion, untrained, a path, or openai:MODEL@URL")
    return parse_policy(path_of(policy, config.paths.data_dir), config.policy, own), None
