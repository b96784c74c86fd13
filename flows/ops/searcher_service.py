"""Start of the searcher's service, over HTTP or MCP, from settings and champion. `slmsearch.serving.api` does the work."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec

from flows.runtime.fetching import require_model
from flows.runtime.servers import Say
from flows.runtime.settings import API_TOKEN, read_environment
from flows.stages.policy_choice import choose_searcher_policy
from slmsearch.config import RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError, IndexUnusableError, ServiceError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.processes.signals import stopping_by_signal
from slmsearch.retrieval.versions import is_complete
from slmsearch.serving.api.access import check_token, require_private_host
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.feedback import FeedbackLog
from slmsearch.serving.api.http_server import Place, serve
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.api.searcher_service import SearcherService
from tasks.promotion import champion_policy, find_champion
from tasks.served import ServedTraces
from tasks.tracking import CHAMPION


def serve_searcher(config: RunConfig, say: Say, policy: str | None, host: str, port: int, on_ready: Callable[[Place, str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        config: settings of the service.
        say: receives lines about the start.
        policy: a name as `choose_searcher_policy` takes it.
        host: address to listen on.
        port: port to listen on.
        on_ready: receives the address and the version when the policy is loaded.

    Raises:
        ConfigError: the environment is no searcher, or other machines would be answered without a token.
        SlmSearchError: the policy or its index version is missing.
    """
    place = _find_place(host, port)
    make = partial(make_app, feedback=FeedbackLog(config.paths.feedback))
    with _open_service(config, say, policy) as (service, stop):
        serve(service, place, stop, lambda: on_ready(place, service.version), make)


def serve_mcp_http(config: RunConfig, say: Say, policy: str | None, host: str, port: int, on_ready: Callable[[Place, str], None]) -> None:
    """Serve MCP over streamable HTTP, as `serve_searcher` serves OpenAI's protocol.

    Raises:
        ServiceError: the SDK is not installed.
        SlmSearchError: the policy or its index version is missing.
    """
    _require_sdk()
    from slmsearch.serving.api.mcp_server import make_mcp_app

    place = _find_place(host, port)
    with _open_service(config, say, policy) as (service, stop):
        serve(service, place, stop, lambda: on_ready(place, service.version), make_mcp_app, "--http")


def serve_mcp_stdio(config: RunConfig, say: Say, policy: str | None) -> None:
    """Serve MCP to the client that started this process, until it closes stdin, Ctrl-C or SIGTERM; stdout carries MCP only.

    Raises:
        ServiceError: the SDK is not installed.
        SlmSearchError: the policy or its index version is missing.
    """
    _require_sdk()
    from slmsearch.serving.api.mcp_server import keep_standard_streams, serve_stdio

    with keep_standard_streams() as streams, _open_service(config, say, policy, spares=False) as (service, stop):
        serve_stdio(service, stop, streams)


def _require_sdk() -> None:
    if find_spec("mcp") is None:
        raise ServiceError("the MCP SDK is not installed: pip install '.[mcp]' in slmsearch's folder")


def _find_place(host: str, port: int) -> Place:
    token = read_environment().get(API_TOKEN) or None
    require_private_host(host, token, API_TOKEN)
    return Place(host, port, check_token(token) if token else None)


@contextmanager
def _open_service(
    config: RunConfig, say: Say, policy: str | None, spares: bool = True
) -> Iterator[tuple[SearcherService, threading.Event]]:
    """Make the service, not started, and the event that Ctrl-C or SIGTERM sets; see `Player` for `spares`."""
    stop = threading.Event()
    if not issubclass(environment_of(config), SearcherEnvironment):
        raise ConfigError(f"environment {config.environment} is no searcher; give the configuration of one")
    with ExitStack() as ends:
        ends.enter_context(stopping_by_signal(stop))
        served = find_served(config, say, policy)
        say(f"loading {served.version}")
        traces = ServedTraces(config) if config.service.traced_frac else None
        if traces is not None:
            ends.callback(traces.close)
        follows = policy == CHAMPION or (policy is None and not config.policy.adapter)
        service = SearcherService(
            served,
            config.service,
            (lambda version: find_new_champion(config, version)) if follows else None,
            traces.offer if traces is not None else None,
            spares,
        )
        yield service, stop


def find_served(config: RunConfig, say: Say, policy: str | None) -> ServedPolicy:
    """Return policy and index to serve: the champion on the index version of its evaluation, or another policy on the configured corpus.

    Raises:
        ConfigError: the name is no policy.
        ModelError: the policy does not exist.
        IndexUnusableError: the champion's index version is missing.
    """
    if policy == CHAMPION or (policy is None and not config.policy.adapter):
        champion = find_champion(config)
        if champion is not None:
            return _serve_champion(config, champion)
    spec = choose_searcher_policy(config, policy, say)
    if spec.policy is not None and not spec.policy.base_url:
        require_model(spec.policy.model, "policy.model", config)
    return ServedPolicy(spec.name, spec, config)


def find_new_champion(config: RunConfig, version: str) -> ServedPolicy | None:
    """Return the champion if it is not the version that plays.

    Raises:
        SlmSearchError: the store does not answer, or the champion cannot be played here.
    """
    champion = find_champion(config)
    return _serve_champion(config, champion) if champion is not None and _label(config, champion) != version else None


def _serve_champion(config: RunConfig, champion: Mapping[str, str]) -> ServedPolicy:
    label = _label(config, champion)
    digest, key = champion.get("slmsearch.data_digest", ""), champion.get("slmsearch.index_key", "")
    if not (key and is_complete(config.paths.index / key) and (config.paths.corpora / digest).is_dir()):
        raise IndexUnusableError(
            f"champion {label} was evaluated on index version {key or '(none recorded)'} of corpus {digest or '(none recorded)'}, which is "
            f"not in {config.paths.data_dir}: run `slmsearch index build` with its settings, or name a policy with --policy"
        )
    return ServedPolicy(label, PolicySpec(CHAMPION, champion_policy(config, champion)), config, digest, key)


def _label(config: RunConfig, champion: Mapping[str, str]) -> str:
    return f"{config.tracking.registered_model}/{champion['version']}"
