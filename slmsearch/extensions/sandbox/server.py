"""The sandbox server: `/health`, `/tools`, `/execute`.

It holds the tools and the warm instances. A client opens a tool session (POST /tools), and its token goes with every program; a program
speaks to the server through its own two pipes and reaches the tools of that session, and nothing else.
"""

import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict

from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.errors import SandboxError, SlmSearchError
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap
from slmsearch.extensions.sandbox.docker import Docker
from slmsearch.extensions.sandbox.engine import SandboxEngine
from slmsearch.extensions.sandbox.execution import Execution, complete_limits, execute_program
from slmsearch.extensions.sandbox.pool import START_SECONDS, Pool
from slmsearch.extensions.sandbox.sessions import OpenedSession, OpenTools, SessionCorpus, Sessions, ToolSession
from slmsearch.package_data import package_data

COMPOSE_FILE = "deployments/sandbox.yaml"
HOST = "127.0.0.1"
SESSION_TOKEN = HTTPBearer(description="Token of a tool session")
OWN_TOKEN = HTTPBearer(description="Token of the sandbox", scheme_name="own", auto_error=False)
SHUTDOWN_SECONDS = 5
WARM = 6
"""Number of warm interpreters: those that run at the same time, and two that come after them."""


class ProgramRequest(BaseModel):
    """A program; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    program: str
    limits: ProgramLimits | None = None
    """Limits lower than the server's; a higher one changes nothing."""


def make_engine(config: SandboxConfig, state_dir: Path) -> SandboxEngine:
    """Make the configured engine; `state_dir` keeps the instances' file system for `bubblewrap`.

    Raises:
        SandboxError: this machine lacks what it needs; the message has the line that installs it.
    """
    return Docker(config, package_data(COMPOSE_FILE)) if config.engine == "docker" else Bubblewrap(config.limits, state_dir)


class Service:
    """Common state of the endpoints."""

    def __init__(self, config: SandboxConfig, engine: SandboxEngine, open_tools: OpenTools, warm: int = WARM) -> None:
        """Start the warm instances and check that one of them comes up.

        Raises:
            SandboxError: none does.
        """
        self.config = config
        self.sessions = Sessions(open_tools)
        self.pool = Pool(engine, warm)
        self.limits = complete_limits(config.limits)
        self._running = threading.Semaphore(config.concurrency)
        try:
            self.pool.discard(self.pool.take(START_SECONDS))
        except SandboxError:
            self.pool.close()
            raise

    def execute(self, session: ToolSession, request: ProgramRequest) -> Execution:
        """Run a program of a session.

        Raises:
            SlmSearchError: a tool broke, or there is no sandbox to be had.
        """
        limits = lower_limits(self.limits, request.limits)
        if len(request.program) > limits.program_chars:
            return Execution(error=f"too long: {len(request.program)} characters, {limits.program_chars} are allowed")
        if not self._running.acquire(timeout=self.config.timeout_s):
            raise SandboxError(f"no program ended within {self.config.timeout_s:.0f} s; those that run are slow, see sandbox.limits")
        try:
            instance = self.pool.take(self.config.timeout_s)
            try:
                return execute_program(instance, request.program, session.serve, limits, longest_s=self.config.timeout_s)
            finally:
                self.pool.discard(instance)
        finally:
            self._running.release()

    def health(self) -> dict[str, object]:
        """Return the state of the sandbox and its layers."""
        engine = self.pool.engine
        return {
            "status": "ok" if not self.pool.lost else "degraded",
            "engine": engine.name,
            "walls": sorted(engine.layers),
            "notes": list(engine.notes),
            "warm": self.pool.waiting,
            "lost": self.pool.lost,
            "sessions": len(self.sessions),
            "limits": self.limits.model_dump(),
        }


def lower_limits(own: ProgramLimits, asked: ProgramLimits | None) -> ProgramLimits:
    """Return the lower of two limits, each by itself."""
    if asked is None:
        return own
    return ProgramLimits(**{name: min(value, getattr(asked, name)) for name, value in own.model_dump().items()})


def make_app(service: Service) -> FastAPI:
    """Make the application; it closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.pool.close()

    def session_of(given: Annotated[HTTPAuthorizationCredentials, Depends(SESSION_TOKEN)]) -> ToolSession:
        session = service.sessions.find(given.credentials)
        if session is None:
            raise HTTPException(401, "no such tool session")
        return session

    app = FastAPI(title="slmsearch sandbox", lifespan=lifespan)
    # A page in a browser on this machine may send requests here under a name of its own; it finds no host of that name.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app.add_exception_handler(SlmSearchError, _answer_broken)
    session_dependency = Depends(session_of)

    @app.get("/health")
    async def health() -> dict[str, object]:
        """Report whether the sandbox works, and its layers; wait for no program."""
        return service.health()

    @app.post("/tools")
    def open_tools(indexed: SessionCorpus, given: Annotated[HTTPAuthorizationCredentials | None, Depends(OWN_TOKEN)]) -> OpenedSession:
        """Open a tool session over a corpus and an index; only this reply holds the session's token."""
        token = service.config.token
        if token is not None and not (given and secrets.compare_digest(given.credentials.encode(), token.get_secret_value().encode())):
            raise HTTPException(401, "the sandbox's token is asked for")
        return OpenedSession(service.sessions.open(indexed).token)

    @app.delete("/tools")
    def close_tools(session: ToolSession = session_dependency) -> dict[str, bool]:
        """Close a session."""
        service.sessions.close(session.token)
        return {"closed": True}

    @app.post("/execute")
    def execute(request: ProgramRequest, session: ToolSession = session_dependency) -> Execution:
        """Run a program with the tools of a session."""
        return service.execute(session, request)

    return app


async def _answer_broken(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SlmSearchError)
    return JSONResponse({"boundary": error.boundary, "message": str(error)}, 503)


@contextmanager
def live_server(service: Service) -> Iterator[str]:
    """Serve on a free port, from a thread, as long as the context lasts; yield the address."""
    import uvicorn

    with socket.create_server((HOST, 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="sandbox-server")
        thread.start()
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
