"""`python -m flows.ops.prefect_server PORT`: Prefect's server on loopback, closed to other users and to pages of other origins.

A client of Prefect's API can make its worker run a shell, so a request needs three things, checked in this order:

1. A Host header that names loopback. A web page whose name was made to resolve to 127.0.0.1 sends its own name.
2. If a browser sends an origin, that of the address it calls; and no page may show this one in a frame.
3. The password, for everything under `/api` but its health, and for web sockets. Prefect asks for it: PREFECT_SERVER_API_AUTH_STRING.

Prefect's own CSRF tokens would add nothing: a browser sends no password by itself, and they cost a request and a row for each client.

Prefect's pages take the password from the browser's local storage, which belongs to one port; a cookie would be sent to every port of
127.0.0.1, those of other users included. `/enter` stores it there: it comes after the `#` of the address, which no browser sends to a
server, and the link to it is in a file that only its user can read (`flows/runtime/api.py`).
"""

import asyncio
import base64
import hashlib
import os
import sys

from filelock import FileLock
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from slmsearch.processes.ports import bind_reserved

HOSTS = ("127.0.0.1", "localhost")
"""Names of this machine that a request may give; a forwarded one (`ssh -L`) may come to another port."""
FRAMES = ("frame", "iframe", "embed", "object")
ENTER = "/enter"
SCRIPT = """
const password = btoa(location.hash.slice(1));
fetch("/api/admin/version", {headers: {Authorization: "Basic " + password}}).then(answer => {
  if (!answer.ok) throw new Error(answer.status);
  localStorage.setItem("prefect-password", password);
  location.replace("/");
}).catch(() => { document.body.textContent = "This link is of an earlier start of the server: open the page that it names now."; });
"""
PAGE = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Prefect</title><body>Opening Prefect ...<script>{SCRIPT}</script>'
POLICY = (
    f"default-src 'none'; connect-src 'self'; script-src 'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)


class OwnPagesOnly:
    """Middleware that refuses requests from pages of other origins, and lets the user's browser in."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        answer = _answer(scope) if scope["type"] in ("http", "websocket") else None
        await (answer or self._app)(scope, receive, send)


def _answer(scope: Scope) -> ASGIApp | None:
    headers = Headers(scope=scope)
    if headers.get("origin") not in (None, f"http://{headers.get('host')}"):
        return PlainTextResponse("Foreign origin", status_code=403)
    if headers.get("sec-fetch-dest") in FRAMES:
        return PlainTextResponse("Not in a frame", status_code=403)
    if scope["type"] == "http" and scope["path"] == ENTER:
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})
    return None


def close(app: ASGIApp) -> ASGIApp:
    """Close an application to requests that do not come from this machine's user."""
    return TrustedHostMiddleware(OwnPagesOnly(app), HOSTS, www_redirect=False)


async def fill_database() -> None:
    """Create the tables and register the block types, as Prefect's server would do at its start."""
    from prefect.server.database import provide_database_interface
    from prefect.server.models.block_registration import run_block_auto_registration

    database = provide_database_interface()
    await database.create_db()
    async with await database.session() as session:
        await run_block_auto_registration(session)


def main(port: int) -> None:
    """Serve until terminated, as `prefect server start` does."""
    os.environ |= {"PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false", "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"}
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    server = settings.server
    if not server.api.auth_string:
        raise SystemExit("PREFECT_SERVER_API_AUTH_STRING is not set: the server would take orders from everybody")
    with FileLock(settings.home / "prefect.db.lock"):  # of two servers that fill a database at a time one fails
        asyncio.run(fill_database())
    bound = bind_reserved(port)
    config = uvicorn.Config(
        close(create_app(final=True)),  # around it: Prefect calls its own application by another name
        timeout_keep_alive=server.api.keepalive_timeout,
        ws_ping_interval=server.api.websocket_ping_interval,
        ws_ping_timeout=server.api.websocket_ping_timeout,
        log_level=server.logging_level.lower(),
    )
    served = uvicorn.Server(config)
    served.run(sockets=[bound])
    if not served.started:
        raise SystemExit("the server could not start; see above")


if __name__ == "__main__":
    main(int(sys.argv[1]))
