"""Start of the searcher's service, over HTTP or MCP, from settings and champion. `slmsearch.serving.api` does the work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec

from flows.ops.live_documents import LOOK_S, LiveDocuments
from flows.runtime.settings import API_TOKEN, read_environment
from flows.stages.policy_choice import SearcherChoice
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError, ServiceError
from slmsearch.processes.signals import stopping_by_signal
from slmsearch.serving.api.access import check_token, require_private_host
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.feedback import FeedbackLog
from slmsearch.serving.api.http_server import Place, serve
from slmsearch.serving.api.searcher_service import SearcherService
from tasks.served import ServedTraces
from tasks.tracking import open_tracker

OpenService = AbstractContextManager[tuple[SearcherService, threading.Event]]
"""Result of `open_service`; entering it loads the policy."""


def serve_searcher(opened: OpenService, feedback: FeedbackLog, host: str, port: int, on_ready: Callable[[Place, str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Args:
        opened: the service.
        feedback: log of what people say of answers.
        host: address to listen on.
        port: port to listen on.
        on_ready: receives the address and the version when the policy is loaded.

    Raises:
        ConfigError: the environment is no searcher, or other machines would be answered without a token.
        SlmSearchError: the policy or its index version is missing.
    """
    place = _find_place(host, port)
    make = partial(make_app, feedback=feedback)
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


@contextmanager
def open_service(
    choice: SearcherChoice, spares: bool = True, live: LiveDocuments | None = None, feedback: FeedbackLog | None = None
) -> Iterator[tuple[SearcherService, threading.Event]]:
    """Make the service, not started, and the event that Ctrl-C or SIGTERM sets; see `Player` for `spares`.

    With `live` the documents of a folder are served as they change; `feedback` is written to traces.

    Raises:
        ConfigError: the environment is no searcher.
        SlmSearchError: the policy or its index version is missing.
    """
    config, stop = choice.config, threading.Event()
    if not isinstance(environment_of(config), SearcherEnvironment):
        raise ConfigError(f"environment {config.environment} is no searcher; give the configuration of one")
    with ExitStack() as ends:
        ends.enter_context(stopping_by_signal(stop))
        if live is not None:
            ends.enter_context(live.alone())
        served = live.find() if live is not None else choice.find()
        choice.say(f"loading {served.version}")
        frac = config.service.traced_frac
        traces = ServedTraces(partial(open_tracker, config.paths, config.tracking), frac, feedback) if frac else None
        if traces is not None:
            ends.callback(traces.close)
        service = SearcherService(
            served,
            config.service,
            live.find_new if live is not None else choice.find_new if choice.follows else None,
            traces.offer if traces is not None else None,
            spares,
            live,
        )
        if live is not None:
            watcher = threading.Thread(target=live.watch, args=(stop,), name="watcher", daemon=True)
            watcher.start()
            ends.callback(watcher.join, LOOK_S)
            ends.callback(stop.set)
        yield service, stop
