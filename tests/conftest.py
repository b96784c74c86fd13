"""Isolation for every test: temporary stores, no telemetry, no network, and the options that decide what runs.

Variables that libraries read on import are set here at import time, before pytest collects anything.
"""

import atexit
import gc
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY = Path("/dev/shm")
if "-m" not in sys.argv and "PYTEST_XDIST_WORKER" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    # Databases that wait for the disk at every commit were a fifth of the time. Processes of xdist find the folder in their environment.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="t", dir=MEMORY)
    os.chmod(os.environ["TMPDIR"], 0o711)  # the sandbox's programs run as another user
    tempfile.tempdir = None
    atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)  # the first registered is the last called

HOME = Path(tempfile.mkdtemp(prefix="slmsearch-tests-"))
"""What libraries would otherwise keep in the user's home; removed when the session ends."""

FORKED = Path(__file__).parent / "forked"
fork_server: list["subprocess.Popen[bytes]"] = []
"""Of the process that leads the session; see `forked/server.py`."""

FOREIGN = ("SLMSEARCH_", "PREFECT_", "MLFLOW_", "HF_", "OLLAMA_", "OPENAI_", "WANDB_")
FOREIGN_NAMES = ("DATA_DIR", "DEV", "JUDGE_MODEL", "JUDGE_BASE_URL")

for name in [name for name in os.environ if name.startswith(FOREIGN) or name in FOREIGN_NAMES]:
    del os.environ[name]
# Some hundred child processes import the product: without bytecode each compiles it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.update(
    {
        "SLMSEARCH_PATHS__DATA_DIR": str(HOME / "data"),
        "SLMSEARCH_PATHS__MLRUNS_DIR": str(HOME / "mlruns"),
        "PREFECT_HOME": str(HOME / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLI_COLORS": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HOME": str(
            Path(os.environ.get("TESTS_FORK_SERVER", HOME / "forks")).with_name("huggingface")
        ),  # read on import: one for all forks
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "ANONYMIZED_TELEMETRY": "false",
        "MPLBACKEND": "Agg",
        # Threads of a small model wait for each other at every layer: two of them on a busy machine took minutes for what one
        # does in a second.
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
)


LONG = {
    "bundle": "five minutes",
    "clients": "three minutes",
    "docker": "ten minutes",
    "kill": "half an hour",
    "production": "a minute",
    "real": "forty minutes",
    "week": "an hour",
}
"""Markers of tests that run only when asked for by name."""


class NetworkForbidden(RuntimeError):
    """A test reached for another machine; no OSError, so that no client takes it for an outage and retries."""


def is_local(address: Any) -> bool:
    """Say whether a socket address stays on this machine."""
    if not isinstance(address, tuple):  # the path of a Unix socket
        return True
    host = str(address[0])
    if host in {"", "localhost"}:
        return True
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return ip.is_loopback or ip.is_unspecified


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="also run tests that talk to services outside this machine")
    parser.addoption("--docker-data", help="directory in which the tests marked `docker` keep images")
    parser.addoption("--kill-table", help="file that the tests marked `kill` write their table to")
    parser.addoption("--kill-home", help="directory in which the tests marked `kill` keep what they compare with")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "zoo" not in item.path.parts)  # its one long file first: a process would be left alone with it at the end
    for item in items:
        if item.get_closest_marker("live") and not config.getoption("--live"):
            item.add_marker(pytest.mark.skip(reason="talks to a service outside this machine; --live runs it"))
        for name, takes in LONG.items():
            if item.get_closest_marker(name) and name not in (config.getoption("-m") or ""):
                item.add_marker(pytest.mark.skip(reason=f"takes {takes}; -m {name} runs it"))
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_collection_finish() -> None:
    """Leave what the tests and their libraries have loaded out of the search for dead cycles: it was a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_configure(config: pytest.Config) -> None:
    """Start what children are forked from, where processes of tests share the work: one test alone is faster without."""
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ and sys.platform == "linux":
        address = str(HOME / "forks")
        loaded = {"DISABLE_MLFLOW_INTEGRATION": "TRUE", "TRL_EXPERIMENTAL_SILENCE": "1"}
        fork_server.append(
            subprocess.Popen([sys.executable, str(FORKED / "server.py"), address], stdin=subprocess.PIPE, env={**os.environ, **loaded})
        )
        os.environ["TESTS_FORK_SERVER"] = address
        os.environ["PYTHONPATH"] = os.pathsep.join([str(FORKED), *filter(None, [os.environ.get("PYTHONPATH")])])


def pytest_unconfigure() -> None:
    for process in fork_server:
        process.communicate()
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse connections to other machines, unless the session runs with --live."""
    if request.config.getoption("--live"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for method in ("connect", "connect_ex"):
            patch.setattr(socket.socket, method, local_only(getattr(socket.socket, method)))
        yield


def local_only(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if not is_local(address):
            raise NetworkForbidden(f"a test tried to reach {address}")
        return connect(self, address)

    return guarded


@pytest.fixture(scope="session", autouse=True)
def no_stray_store() -> Iterator[None]:
    """Fail when MLflow fell back to its store in the current directory: some call named neither run nor store."""
    stray = Path.cwd() / "mlflow.db"
    existed = stray.exists()
    yield
    assert existed or not stray.exists(), f"something wrote to {stray}"


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give each test its own data and MLflow directories, as settings and child processes see them; returns their parent."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("SLMSEARCH_PATHS__DATA_DIR", str(home / "data"))
    monkeypatch.setenv("SLMSEARCH_PATHS__MLRUNS_DIR", str(home / "mlruns"))
    # Code under test may set these for the process. Setting them here makes monkeypatch take them back after each test.
    # MLflow leaves the last store there: a fixture of a whole module may have opened one before.
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    for name in ("PREFECT_HOME", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI"):
        before = os.environ.get(name)
        monkeypatch.setenv(name, before or "")
        if before is None:
            monkeypatch.delenv(name)
    return home


@pytest.fixture
def unforked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have children load their libraries as everywhere else: for tests that look at process ids, sessions and parents."""
    monkeypatch.delenv("TESTS_FORK_SERVER", raising=False)


@pytest.fixture(autouse=True)
def same_chance() -> None:
    """What torch draws depends on the test alone: a bound that few draws break would otherwise fail by the order of the tests."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def empty_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an empty store of Prefect and of MLflow."""
    from tests.stores import make_empty_stores

    base = tmp_path_factory.getbasetemp()
    return make_empty_stores((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "stores")


@pytest.fixture
def ready_home(isolated_environment: Path, empty_stores: Path) -> Path:
    """The home of a test with both stores in it."""
    from tests.stores import put_empty_stores

    put_empty_stores(empty_stores, isolated_environment)
    return isolated_environment


class Borrowed:
    """A child process that outlives who uses it; see `slmsearch.processes.call.Child`."""

    def __init__(self, child: Any) -> None:
        self.call = child.call

    def __enter__(self) -> "Borrowed":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture(scope="session")
def shared_child() -> Iterator[None]:
    """One child computes for all flows that run in the process of the tests: each of its own would load torch for seconds."""
    from slmsearch.processes.call import Child

    with Child() as child, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.child.Child", lambda: Borrowed(child))
        yield


@pytest.fixture(scope="session")
def prefect_harness(shared_child: None) -> Iterator[None]:
    """Start one temporary Prefect server; for tests that run flows or tasks as such, about ten seconds once."""
    from prefect.events.worker import EventsWorker
    from prefect.testing.utilities import prefect_test_harness

    EventsWorker.drain_all()  # one that a test started for its own server would send this server's events there
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="session")
def real_tokenizers() -> dict[str, Any]:
    """Tokenizers with real vocabularies and chat templates by name, tiny-searcher's among them; skips where they cannot be had."""
    from tests.zoo.tokenizers import load_real_tokenizers

    return load_real_tokenizers()


@pytest.fixture
def slmsearch(
    capfd: pytest.CaptureFixture[str], prefect_harness: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command in this process; return exit code, stdout and stderr. Flows use one Prefect server, training has its own processes."""
    from prefect.settings import get_current_settings

    from flows.cli.main import cli

    monkeypatch.setenv("PREFECT_API_URL", str(get_current_settings().api.url))

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli([str(argument) for argument in arguments], prog_name="slmsearch")
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    before = dict(os.environ)
    yield run
    for name in set(os.environ) - set(before):
        del os.environ[name]
