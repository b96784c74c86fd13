"""The sandbox's engine `docker` on a daemon: nothing gets out, what the container alone limits is limited, nothing stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.extensions.sandbox.checks import SCRIPTED_CORPUS, ScriptedTools
from slmsearch.extensions.sandbox.client import SandboxClient
from slmsearch.extensions.sandbox.docker import Docker
from slmsearch.extensions.sandbox.engine import wait_for
from slmsearch.extensions.sandbox.escape import load_escapes
from slmsearch.extensions.sandbox.execution import Execution, execute_program
from slmsearch.extensions.sandbox.server import Service, live_server
from slmsearch.extensions.sandbox.suite import LIMITS, execute_unbounded, run_suite
from tests.deployments.reading import DEPLOYMENTS
from tests.docker.daemon import Daemon

pytestmark = pytest.mark.docker
COMPOSE = DEPLOYMENTS / "sandbox.yaml"
MEMORY_MB = 96
CLEAN: dict[str, list[str]] = {"containers": [], "processes": [], "mounts": []}
GONE_SECONDS = 30.0


@pytest.fixture(scope="module")
def engine(daemon: Daemon, stand_in: Callable[[str], None]) -> Iterator[Docker]:
    """The engine; it builds its image by itself."""
    stand_in("python-3.13")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.variables.items():
            patch.setenv(name, value)
        made = Docker(SandboxConfig(engine="docker", limits=LIMITS, docker_memory_limit=f"{MEMORY_MB}m"), COMPOSE)
        yield made
        made.close()


def run(engine: Docker, program: str, wall_s: float = 10.0, rlimits: bool = True) -> Execution:
    instance = engine.start()
    try:
        instance.wait_until_ready(60.0)
        limits = ProgramLimits(wall_s=wall_s, cpu_s=10, memory_mb=64, calls=8)
        if not rlimits:
            return execute_unbounded(instance, program, limits, rlimits)
        return execute_program(instance, program, ScriptedTools().serve_one, limits)
    finally:
        assert instance.terminate()


def check_clean(daemon: Daemon) -> None:
    assert wait_for(lambda: daemon.leftovers() == CLEAN, GONE_SECONDS), daemon.leftovers()


def test_the_image_is_an_interpreter_and_nothing_else(daemon: Daemon, engine: Docker) -> None:
    config = daemon.inspect("slmsearch-sandbox")
    assert config["Config"]["User"] == "65534:65534"
    assert config["Size"] < 60 << 20
    listed = "print(sorted(__import__('os').listdir('/')))"
    assert set(eval(run(engine, listed).stdout)) == {
        *("complete", "lib64", "python", "runner.pyc", "tmp"),  # what bubblewrap shows
        *(".dockerenv", "dev", "etc", "proc", "sys"),  # what Docker adds
    }
    looked = "import os\nfor name in ('/dev', '/sys'):\n    try: os.listdir(name)\n    except PermissionError: print('closed')"
    assert run(engine, looked).stdout == "closed\nclosed\n"


def test_a_container_is_confined(daemon: Daemon, engine: Docker) -> None:
    instance = engine.start()
    instance.wait_until_ready(60.0)
    found = daemon.inspect(instance._name)
    host = found["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == ("none", True, ["ALL"], False)
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (MEMORY_MB << 20, MEMORY_MB << 20, 10**9, 8)
    assert "no-new-privileges:true" in host["SecurityOpt"] and any("SCMP_ACT_ERRNO" in option for option in host["SecurityOpt"])
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{found['State']['Pid']}/status").read_text().splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {"65534"} and int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert instance.terminate()
    check_clean(daemon)


def test_no_program_gets_out(daemon: Daemon, engine: Docker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = run_suite(tmp_path, engine=engine)
    result = suite.to_json()
    with capsys.disabled():
        print(f"\nescapes through Docker: tried {result['tried']}, escaped {result['escaped']}, healthy {result['healthy']}")
    assert [trial["name"] for trial in result["trials"] if trial["escaped"] or not trial["healthy"]] == []
    assert result["tried"] == len(load_escapes())
    assert suite.passed
    check_clean(daemon)


# What holds without the limits of the process, which the runner sets: the container's own

BOMB = "held = []\nwhile True:\n    held.append(bytearray(1 << 20))"


def test_memory_is_limited_by_the_container(daemon: Daemon, engine: Docker) -> None:
    execution = run(engine, BOMB, rlimits=False)
    assert execution.error in ("MemoryError (line 3)", "stopped: its interpreter ended")
    assert execution.seconds < 9.0, "it ran out of memory and not of time"
    few = run(engine, f"held = bytearray({MEMORY_MB // 2} << 20)\nprint('fits')", rlimits=False)
    assert few.stdout == "fits\n"


FORKS = """
import os, sys, time
for number in range(40):
    try:
        if os.fork() == 0:
            time.sleep(60)
    except BlockingIOError:
        sys.exit(number)
"""


def test_no_process_is_made_and_the_container_allows_few(daemon: Daemon, engine: Docker) -> None:
    assert "Operation not permitted" in run(engine, "import os\nos.fork()", rlimits=False).error
    words = ["--rm", "--network=none", "--pids-limit=8", "--user=65534:65534", "--entrypoint=/python/bin/python3", "slmsearch-sandbox"]
    assert daemon.ask("run", *words, "-I", "-S", "-c", FORKS).returncode == 7, "without our filter, by the limit alone"


@pytest.mark.parametrize("program", ["while True: pass", "import os\nwhile True: os.write(1, b'x' * 60000)"], ids=["endless", "flooding"])
def test_time_is_limited_whatever_is_written(daemon: Daemon, engine: Docker, program: str) -> None:
    """A client that holds output which nobody reads keeps the daemon from removing the container."""
    execution = run(engine, program, wall_s=2.0)
    assert execution.error.startswith("stopped: ")
    assert execution.seconds < 2.0 + 5.0
    check_clean(daemon)


def list_pids(daemon: Daemon) -> list[int]:
    found = [daemon.ask("inspect", "--format", "{{.State.Pid}}", name) for name in daemon.containers()]
    return [int(answer.stdout) for answer in found if answer.returncode == 0]  # others have ended meanwhile


def test_a_killed_container_leaves_nothing(daemon: Daemon, engine: Docker) -> None:
    service = Service(SandboxConfig(limits=LIMITS), engine, lambda indexed: ScriptedTools(), warm=2)
    with live_server(service) as address:
        client = SandboxClient(SandboxConfig(base_url=address, limits=LIMITS), SCRIPTED_CORPUS)
        assert client.execute("print(1)").stdout == "1\n"
        # One that is only created has the process id 0, which to `kill` is everybody in this process's group.
        assert wait_for(lambda: len(pids := list_pids(daemon)) == 2 and min(pids) > 0, GONE_SECONDS)
        for pid in list_pids(daemon):
            assert pid > 0
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: client.execute("print(2)").stdout == "2\n", GONE_SECONDS), "new ones take their place"
        health = service.health()
        assert (health["status"], health["lost"], health["sessions"]) == ("ok", 0, 1)
        client.close()
        assert service.health()["sessions"] == 0
    check_clean(daemon)


SERVER = """
import sys, time
from pathlib import Path
from slmsearch.config import SandboxConfig
from slmsearch.extensions.sandbox.docker import Docker
from slmsearch.extensions.sandbox.pool import Pool
pool = Pool(Docker(SandboxConfig(), Path(sys.argv[1])), 2)
instances = [pool.take(60.0) for _ in range(2)]
instances[0].channel.send({"program": "while True: pass", "tools": [], "limits": None, "output_chars": 0}, None)
print("running", flush=True)
time.sleep(600)
"""


def test_a_killed_server_leaves_no_container(daemon: Daemon, engine: Docker) -> None:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(COMPOSE)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert len(daemon.containers()) >= 2
    clients = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    process.stdout.close()
    check_clean(daemon)
    _, alive = psutil.wait_procs(clients, timeout=GONE_SECONDS)
    assert [found for found in alive if found.is_running() and found.status() != psutil.STATUS_ZOMBIE] == []
