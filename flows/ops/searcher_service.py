"""Start of the searcher's service, over HTTP or MCP, from settings and champion. `slmsearch.serving.api` does the work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from flows.runtime.fetching import require_policy
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
from tasks.promotion import Champion, find_champion
from tasks.served import ServedTraces
from tasks.tracking import CHAMPION, open_tracker

OpenService = AbstractContextManager[tuple[SearcherService, threading.Event]]
"""Result of `open_service`; entering it loads the policy."""


def serve_searcher(opened: OpenService, feedback: Path, host: str, port: int, on_ready: Callable[[Place, str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        opened: the service.
        feedback: file of the ratings.
        host: address to listen on.
        port: port to listen on.
        on_ready: receives the address and the version when the policy is loaded.

    Raises:
        ConfigError: the environment is no searcher, or other machines would be answered without a token.
        SlmSearchError: the policy or its index version is missing.
    """
    place = _find_place(host, port)
    make = partial(make_app, feedback=FeedbackLog(feedback))
    with opened as (service, stop):
        serve(service, place, stop, lambda: on_ready(place, service.version), make)


def serve_mcp_http(opened: OpenService, host: str, port: int, on_ready: Callable[[Place, str], None]) -> None:
    """Serve MCP over streamable HTTP, as `serve_searcher` serves OpenAI's protocol.

    Raises:
        ServiceError: the SDK is not installed.
        SlmSearchError: the policy or its index version is missing.
    """
    _require_sdk()
    from slmsearch.serving.api.mcp_server import make_mcp_app

    place = _find_place(host, port)
    with opened as (service, stop):
        serve(service, place, stop, lambda: on_ready(place, service.version), make_mcp_app, "--http")


def serve_mcp_stdio(opened: OpenService) -> None:
    """Serve MCP to the client that started this process, until it closes stdin, Ctrl-C or SIGTERM; stdout carries MCP only.

    Raises:
        ServiceError: the SDK is not installed.
        SlmSearchError: the policy or its index version is missing.
    """
    _require_sdk()
    from slmsearch.serving.api.mcp_server import keep_standard_streams, serve_stdio

    with keep_standard_streams() as streams, opened as (service, stop):
        serve_stdio(service, stop, streams)


def _require_sdk() -> None:
    if find_spec("mcp") is None:
        raise ServiceError("the MCP SDK is not installed: pip install '.[mcp]' in slmsearch's folder")


def _find_place(host: str, port: int) -> Place:
    token = read_environment().get(API_TOKEN) or None
    require_private_host(host, token, API_TOKEN)
    return Place(host, port, check_token(token) if token else None)


@dataclass(frozen=True)
class ServedChoice:
    """Settings of a service, and the name of its policy as `choose_searcher_policy` takes it."""

    config: RunConfig
    policy: str | None
    say: Say
    """Receives lines about the start."""

    def find(self) -> ServedPolicy:
        """Return policy and index to serve: the champion on the index of its evaluation, or another policy on the configured corpus.

        Raises:
            ConfigError: the name is no policy.
            ModelError: the policy does not exist.
            IndexUnusableError: the champion's index version is missing.
        """
        spec, champion = choose_searcher_policy(self.config, self.policy, self.say)
        if champion is not None:
            return self._serve(champion)
        if spec.policy is not None:
            require_policy(spec.policy, self.config.paths)
        return ServedPolicy(spec.name, spec, self.config)

    def find_new(self, version: str) -> ServedPolicy | None:
        """Return the champion if it is not the version that plays.

        Raises:
            SlmSearchError: the store does not answer, or the champion cannot be played here.
        """
        champion = find_champion(self.config.paths, self.config.tracking)
        return None if champion is None or champion.label == version else self._serve(champion)

    def _serve(self, champion: Champion) -> ServedPolicy:
        paths = self.config.paths
        digest, key = champion.tags.get("slmsearch.data_digest", ""), champion.tags.get("slmsearch.index_key", "")
        if not (key and is_complete(paths.index / key) and (paths.corpora / digest).is_dir()):
            raise IndexUnusableError(
                f"champion {champion.label} was evaluated on index version {key or '(none recorded)'} of corpus "
                f"{digest or '(none recorded)'}, which is not in {paths.data_dir}: run `slmsearch index build` with its settings, "
                "or name a policy with --policy"
            )
        return ServedPolicy(champion.label, PolicySpec(CHAMPION, champion.policy(self.config.policy)), self.config, digest, key)


@contextmanager
def open_service(choice: ServedChoice, spares: bool = True) -> Iterator[tuple[SearcherService, threading.Event]]:
    """Make the service, not started, and the event that Ctrl-C or SIGTERM sets; see `Player` for `spares`.

    Raises:
        ConfigError: the environment is no searcher.
        SlmSearchError: the policy or its index version is missing.
    """
    config, stop = choice.config, threading.Event()
    if not issubclass(environment_of(config), SearcherEnvironment):
        raise ConfigError(f"environment {config.environment} is no searcher; give the configuration of one")
    with ExitStack() as ends:
        ends.enter_context(stopping_by_signal(stop))
        served = choice.find()
        choice.say(f"loading {served.version}")
        frac = config.service.traced_frac
        traces = ServedTraces(partial(open_tracker, config.paths, config.tracking), frac) if frac else None
        if traces is not None:
            ends.callback(traces.close)
        follows = choice.policy == CHAMPION or (choice.policy is None and not config.policy.adapter)
        service = SearcherService(
            served,
            config.service,
            choice.find_new if follows else None,
            traces.offer if traces is not None else None,
            spares,
        )
        yield service, stop
