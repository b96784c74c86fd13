"""Authentication of clients: a token if one is set, else only this machine."""

import asyncio
import base64
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slmsearch.errors import ConfigError
from slmsearch.serving.api.metrics import ServiceMetrics
from slmsearch.serving.api.protocol import ApiError
from slmsearch.serving.engines.request import is_loopback

OPEN_PATHS = ("/health", "/ready")
"""Paths that answer without a token; they reveal only the state."""
PAGE, PAGE_FILES = "/", "/page/"
"""Paths at which a browser asks its user for the token: as the password of any name (HTTP Basic)."""
CHALLENGE = 'Basic realm="slmsearch: any name, the token as password", charset="UTF-8"'
LOOK_SECONDS = 0.2
"""Time between two checks for a stop while a request is incomplete."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"}
"""Headers of every answer: no page of another origin gets one into its process, and browsers do not guess content types."""


def check_token(token: str) -> str:
    """Return a token that can stand in a header.

    Raises:
        ConfigError: the token cannot.
    """
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError("the token of the service must be of visible ASCII characters, without blanks")
    return token


def require_private_host(host: str, token: str | None, variable: str) -> None:
    """Refuse to listen for other machines without a token; `variable` is the one that sets it.

    Raises:
        ConfigError: the host is not loopback and no token is set.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(f"without a token only this machine may ask: set {variable}, or leave --host {host} out")


class Access:
    """ASGI middleware that refuses unauthorised clients, and drops connections when the service stops.

    Without a token the `Host` header must name this machine: a page in a browser may send requests here under a name of its own.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, metrics: ServiceMetrics, is_stopping: Callable[[], bool], own_pages: bool = False
    ) -> None:
        """Wrap an application; with `own_pages` a browser's page may send requests only if it comes from this service."""
        self._app, self._token, self._metrics, self._is_stopping = app, token, metrics, is_stopping
        self._own_pages = own_pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if self._is_stopping():
                    headers["Connection"] = "close"
            await send(message)

        refusal = self._refuse(scope) if scope["type"] == "http" else None
        if refusal is None:
            if scope.get("method") == "HEAD":  # the server leaves the body out
                scope = {**scope, "method": "GET"}
            await self._app(scope, self._while_serving(receive), send_last)
            return
        self._metrics.requests.labels(refusal.code).inc()
        response = refusal.response()
        if refusal.status == 401 and (scope["path"] == PAGE or scope["path"].startswith(PAGE_FILES)):
            response.headers["WWW-Authenticate"] = CHALLENGE
        await response(scope, receive, send_last)

    def _while_serving(self, receive: Receive) -> Receive:
        """Treat a client with an incomplete request as disconnected when the service stops: the request would block the end."""
        whole = False

        async def receive_while_serving() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            receiving = asyncio.ensure_future(receive())
            try:
                while not (await asyncio.wait((receiving,), timeout=LOOK_SECONDS))[0]:
                    if self._is_stopping():
                        return {"type": "http.disconnect"}
                message = receiving.result()
                whole = not message.get("more_body", False)
                return message
            finally:
                receiving.cancel()

        return receive_while_serving

    def _refuse(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        origin = headers.get("origin", "").partition("://")[2]
        if self._own_pages and "origin" in headers and origin != headers.get("host", "") and not _names_this_machine(origin):
            return ApiError(403, "origin_not_allowed", "pages of other origins may not ask")
        if self._token is None:
            if _names_this_machine(headers.get("host", "")):
                return None
            return ApiError(403, "host_not_allowed", "without a token the service answers to 127.0.0.1, [::1] and localhost alone")
        if scope["path"] in OPEN_PATHS:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip().encode() if scheme.lower() == "bearer" else b""
        if scheme.lower() == "basic" and not _comes_from_elsewhere(scope["method"], headers):
            token = _read_password(given)
        if secrets.compare_digest(token, self._token.encode()):
            return None
        told = "send it as Authorization: Bearer TOKEN, or give it to the browser as the password of any name"
        return ApiError(401, "invalid_api_key", f"the token is missing or wrong; {told}")


def _read_password(given: str) -> bytes:
    try:
        return base64.b64decode(given.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _comes_from_elsewhere(method: str, headers: Headers) -> bool:
    """Return whether a page of another origin made the browser send this: it sends the password with any request."""
    return method not in ("GET", "HEAD") and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _names_this_machine(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
