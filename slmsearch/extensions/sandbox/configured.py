"""The sandbox server of a configuration: in this process until it is stopped, or for as long as something needs one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.client import sandbox_address, with_token
from slmsearch.extensions.sandbox.server import HOST, SHUTDOWN_SECONDS, Service, live_server, make_app, make_engine
from slmsearch.extensions.sandbox.sessions import SessionCorpus, Tools
from slmsearch.http_client import answers
from slmsearch.processes.ports import require_free_port


def serve_here(config: RunConfig, state_dir: Path) -> None:
    """Serve in this process until SIGTERM or Ctrl-C.

    Raises:
        SandboxError: this machine can run no program.
        ServiceError: the port is in use.
    """
    import uvicorn

    port = config.sandbox.port
    require_free_port(port, "--sandbox.port")
    app = make_app(make_service(config, state_dir))
    uvicorn.run(app, host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS)


def make_service(config: RunConfig, state_dir: Path) -> Service:
    """Make the service of the configured engine; a token keeps other users of this machine out.

    Raises:
        SandboxError: this machine can run no program.
    """

    def open_tools(indexed: SessionCorpus) -> Tools:
        tools = {name: getattr(indexed, name) for name in ("shows", "missing_names", "max_section_chars")}
        shown = config.changed(
            {"retrieval.top_k": indexed.top_k, "retrieval.ranking": indexed.ranking, "searcher.programs": False}  # the tools run none
            | {f"searcher.{name}": value for name, value in tools.items()}
        )
        opened = open_indexed_corpus(shown, indexed.corpus, indexed.index)
        opened.toolbox.index.search(["setup"], 1)  # loads the embedder, which is not the first program's time
        return opened.toolbox

    settings = with_token(config.sandbox, config.paths)
    assert settings.token is not None
    return Service(settings, make_engine(config.sandbox, state_dir), open_tools)


@contextmanager
def some_sandbox(config: RunConfig, state_dir: Path) -> Iterator[str]:
    """Yield the address of the configured server, or of one that lives as long as the context.

    Raises:
        SandboxError: no server can be started.
    """
    address = sandbox_address(config.sandbox)
    if answers(f"{address}/health", elsewhere=True):
        yield address
        return
    if config.sandbox.base_url is not None:
        raise SandboxError(f"no sandbox answers at {address}; start it there, or unset sandbox.base_url")
    with live_server(make_service(config, state_dir)) as address:
        yield address
