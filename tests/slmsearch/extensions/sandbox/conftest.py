"""A live sandbox for tests; where this machine has no bubblewrap they are skipped and say so."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap
from slmsearch.extensions.sandbox.checks import SCRIPTED_CORPUS, ScriptedTools
from slmsearch.extensions.sandbox.client import SandboxClient
from slmsearch.extensions.sandbox.engine import Instance
from slmsearch.extensions.sandbox.execution import Execution, execute_program
from slmsearch.extensions.sandbox.server import Service, live_server

LIMITS = ProgramLimits(wall_s=10.0, cpu_s=10, memory_mb=128, calls=8, output_chars=500, program_chars=2000)


class Kept:
    """An engine that outlives the servers that use it."""

    def __init__(self, engine: Bubblewrap) -> None:
        self._engine = engine
        self.name, self.layers, self.notes = engine.name, engine.layers, engine.notes

    def start(self) -> Instance:
        return self._engine.start()

    def start_reaper(self) -> "subprocess.Popen[bytes]":
        return self._engine.start_reaper()

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bubblewrap]:
    """bubblewrap, found to work."""
    try:
        made = Bubblewrap(LIMITS, tmp_path_factory.mktemp("sandbox"))
        instance = made.start()
        try:
            instance.wait_until_ready(60.0)
        finally:
            instance.terminate()
    except SandboxError as error:
        pytest.skip(f"needs a working bubblewrap: {error}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def service(engine: Bubblewrap) -> Iterator[tuple[Service, str]]:
    """A live server with scripted tools, and its address."""
    made = Service(SandboxConfig(limits=LIMITS), Kept(engine), lambda indexed: ScriptedTools(), warm=2)
    with live_server(made) as address:
        yield made, address


@pytest.fixture
def client(service: tuple[Service, str]) -> Iterator[SandboxClient]:
    made = SandboxClient(SandboxConfig(base_url=service[1], limits=LIMITS), SCRIPTED_CORPUS)
    yield made
    made.close()


Run = Callable[..., Execution]


@pytest.fixture
def run(engine: Bubblewrap) -> Run:
    """Run one program in an instance of its own."""

    def run_program(program: str, limits: ProgramLimits = LIMITS, serve: Callable[[ToolCall], ToolResult] | None = None) -> Execution:
        instance = engine.start()
        try:
            instance.wait_until_ready(60.0)
            return execute_program(instance, program, serve or ScriptedTools().serve_one, limits)
        finally:
            assert instance.terminate()

    return run_program
