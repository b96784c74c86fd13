"""The searcher's side of the sandbox: it sends the programs of a turn together and turns the answers into tool results."""

import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr, TypeAdapter

from slmsearch.config import PathsConfig, ProgramLimits, RetrievalConfig, RunConfig, SandboxConfig, SearcherConfig
from slmsearch.environments.searcher.tools import render_outcome
from slmsearch.episodes.episode import CallMade, ToolCall, ToolResult
from slmsearch.errors import SandboxError, SlmSearchError, error_of
from slmsearch.extensions.sandbox.execution import Execution, complete_limits
from slmsearch.extensions.sandbox.sessions import OpenedSession, SessionCorpus

UNAUTHORIZED, BROKEN = 401, 503
CONNECT_TRIES = 2
OPEN_SECONDS = 300.0
"""Time limit for the server to open a corpus and an index and to load the embedder; it does not count as a program's time."""
START = "start it with `slmsearch sandbox up`"
TOKEN = Path("sandbox") / "token"
"""Path of the token under the data directory."""
OWN_HOSTS = ("127.0.0.1", "localhost", "::1")

Answer = TypeVar("Answer")


def sandbox_address(config: SandboxConfig) -> str:
    """Return the address of the configured server."""
    return (config.base_url or f"http://127.0.0.1:{config.port}").rstrip("/")


def make_programs(config: RunConfig, corpus_digest: str, index_key: str) -> "SandboxClient":
    """Make the client through which the programs of a run reach the tools; nothing is connected before the first program."""
    return SandboxClient(
        with_token(config.sandbox, config.paths), session_corpus(config.retrieval, config.searcher, corpus_digest, index_key)
    )


def session_corpus(retrieval: RetrievalConfig, limits: SearcherConfig, corpus_digest: str, index_key: str) -> SessionCorpus:
    """Return what a server opens for the programs of a run."""
    shows: Literal["titles", "sections"] = "sections" if limits.shows == "sections" else "titles"  # programs go with no other
    return SessionCorpus(
        corpus_digest, index_key, retrieval.top_k, retrieval.ranking, shows, limits.missing_names, limits.max_section_chars
    )


def with_token(sandbox: SandboxConfig, paths: PathsConfig) -> SandboxConfig:
    """Return the settings of the sandbox with its token: the configured one, or for this machine that of the data directory.

    Without it every user of the machine could run programs there, close the sessions of others, and read a corpus whose digest they know.

    Raises:
        SandboxError: the file cannot be made or read.
    """
    if sandbox.token is not None or (sandbox.base_url and urlsplit(sandbox.base_url).hostname not in OWN_HOSTS):
        return sandbox
    path = Path(paths.data_dir) / TOKEN
    try:
        return sandbox.model_copy(update={"token": SecretStr(_read_or_make(path))})
    except (OSError, ValueError) as error:
        raise SandboxError(f"the sandbox's token cannot be read or made at {path} ({error}); fix its permissions") from error


def _read_or_make(path: Path) -> str:
    """Read a secret from a file that only its user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        whole = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):  # another process was faster
            os.link(whole, path)
        whole.unlink()
    token = path.read_text(encoding="ascii").strip()
    if not token:
        raise ValueError("it is empty")
    return token


class SandboxClient:
    """Client that runs programs in one tool session of a server; see `searcher.tools.ProgramRunner`."""

    def __init__(self, config: SandboxConfig, indexed: SessionCorpus) -> None:
        """Set the server, the limits of programs, and the corpus and index that the server opens for them."""
        self._address = sandbox_address(config)
        self._limits = complete_limits(config.limits)
        self._indexed = indexed
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._server_token = config.token.get_secret_value() if config.token else None
        self._token: str | None = None

    def run(self, programs: Sequence[str]) -> list[ToolResult | SlmSearchError]:
        """See `ProgramRunner.run`."""
        if len(programs) < 2:
            return [self._run_or_fail(program) for program in programs]
        with ThreadPoolExecutor(min(SandboxConfig.concurrency, len(programs))) as threads:
            return list(threads.map(self._run_or_fail, programs))

    def _run_or_fail(self, program: str) -> ToolResult | SlmSearchError:
        try:
            execution = self.execute(program)
        except SlmSearchError as error:
            return error
        made = tuple(
            CallMade(ToolCall(call.name, call.argument), ToolResult("", call.served, call.page_ids, call.section_ids))
            for call in execution.calls
        )
        return ToolResult(render_outcome(execution.stdout, execution.error), served=not execution.error, made=made)

    def execute(self, program: str, limits: ProgramLimits | None = None) -> Execution:
        """Run one program, within the given or the configured limits; the server's own limits apply in every case.

        Raises:
            SlmSearchError: the sandbox, or a tool behind it, broke.
        """
        body = {"program": program.encode("utf-8", "replace").decode(), "limits": (limits or self._limits).model_dump()}
        token = self._session(None)
        response = self._request("POST", "/execute", body, token)
        if response.status_code == UNAUTHORIZED:  # the server was started anew
            response = self._request("POST", "/execute", body, self._session(token))
        return self._read(response, Execution)

    def close(self) -> None:
        """Close the session."""
        with self._lock:
            if self._http is not None:
                if self._token is not None:
                    with suppress(SandboxError):  # a server that has ended has closed it
                        self._request("DELETE", "/tools", None, self._token)
                self._http.close()
            self._http = self._token = None

    def _session(self, refused: str | None) -> str:
        """Return the token, a new one if the old one was refused."""
        with self._lock:
            if self._token is None or self._token == refused:
                response = self._request("POST", "/tools", asdict(self._indexed), self._server_token, OPEN_SECONDS)
                if response.status_code == UNAUTHORIZED:
                    raise SandboxError(f"the sandbox at {self._address} has another token; set sandbox.token to that of its data directory")
                self._token = self._read(response, OpenedSession).token
            return self._token

    def _request(
        self, method: str, path: str, body: Mapping[str, object] | None, token: str | None, timeout_s: float = SandboxConfig.timeout_s
    ) -> httpx.Response:
        if self._http is None:
            transport = httpx.HTTPTransport(retries=CONNECT_TRIES)
            self._http = httpx.Client(base_url=self._address, transport=transport, trust_env=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self._http.request(method, path, json=body, headers=headers, timeout=timeout_s)
        except httpx.ConnectError as error:
            raise SandboxError(f"no sandbox answers at {self._address}, so no program is run; {START}") from error
        except httpx.HTTPError as error:
            raise SandboxError(f"the sandbox at {self._address} broke off ({type(error).__name__}); see its log") from error

    def _read(self, response: httpx.Response, kind: type[Answer]) -> Answer:
        with suppress(ValueError, TypeError):  # it is neither what was asked for nor a failure
            if response.status_code == BROKEN:
                raise error_of(**response.json(), default=SandboxError)
            if response.status_code == httpx.codes.OK:
                return TypeAdapter(kind).validate_json(response.content)
        said = " ".join(response.text.split())[:200]
        raise SandboxError(f"the sandbox at {self._address} answered {response.status_code}: {said}; is it another program's port?")
