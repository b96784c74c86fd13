"""The life of the HTTP service: listen, load, answer, and end in order."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from slmsearch.errors import ServiceError
from slmsearch.processes.ports import require_free_port
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.searcher_service import SearcherService

CLOSE_SECONDS = 5
"""Time limit for connections to end after the last answer."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """Address of the service, and its access rules."""

    host: str
    port: int
    token: str | None
    """Token that clients must send; None answers every client on this machine."""

    @property
    def origin(self) -> str:
        """Return the address, without a path."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """Return the `base_url` for clients."""
        return f"{self.origin}/v1"


MakeApp = Callable[[SearcherService, str | None], ASGIApp]
"""Function of service and token that makes the application."""


def serve(
    service: SearcherService,
    place: Place,
    stop: threading.Event,
    on_ready: Callable[[], None],
    make: MakeApp = make_app,
    port_flag: str = "--port",
) -> None:
    """Listen and answer until `stop` is set; then answer the waiting requests, and return.

    Args:
        service: not started yet.
        place: address to listen on.
        stop: event that ends the service.
        on_ready: called when the policy is loaded.
        make: makes the application; default: OpenAI's endpoints.
        port_flag: option that sets the port, for the message if it is in use.

    Raises:
        ServiceError: the port is in use.
        SlmSearchError: the policy cannot be loaded.
    """
    require_free_port(place.port, port_flag, place.host)
    config = uvicorn.Config(
        make(service, place.token),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    server = uvicorn.Server(config)
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.create_server((place.host, place.port), family=family, backlog=config.backlog) as listener:
        # In a thread, where uvicorn handles no signals: it would take no questions away from who may still ask, but close the port.
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="service")
        thread.start()
        try:
            service.start(stop)
            if not stop.is_set():
                on_ready()
            while not stop.wait(_LOOK_SECONDS):
                if not thread.is_alive():
                    raise ServiceError("the HTTP server of the service ended by itself; its log says why")
            service.drain()
        finally:
            server.should_exit = True
            thread.join()
            service.close()
