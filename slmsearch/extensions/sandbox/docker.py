"""The engine `docker`: one container per program, without network, read-only, with Docker's limits on memory, CPU and processes.

How a container is confined stands in `deployments/sandbox.yaml` alone; this starts its service `program` once per instance. The
runner is the one that bubblewrap starts, and speaks over the container's standard input and output.
"""

import os
import secrets
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from slmsearch.config import SandboxConfig
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.engine import LAYERS, Instance, open_process, wait_for
from slmsearch.extensions.sandbox.reaper import remove_containers, start_reaper

INSTALL = "install Docker with its compose plugin (docs.docker.com/engine/install) and start its daemon, or set sandbox.engine=bubblewrap"
SERVICE = "program"
IMAGE = "slmsearch-sandbox"
"""Name of the image in `deployments/sandbox.yaml`, which builds it."""
CHECK_SECONDS = 30.0
TERMINATE_SECONDS = 20.0


class Docker:
    """Engine that starts instances with `docker compose run`."""

    name = "docker"
    # Docker makes no user namespace per container unless its daemon is told to, and keeps the host's view of none.
    layers = frozenset(LAYERS) - {"nesting"}
    notes: tuple[str, ...] = ()

    def __init__(self, config: SandboxConfig, compose_file: Path | None) -> None:
        """Check that there is a daemon, the plugin and the image; build the image if it is missing.

        Raises:
            SandboxError: something is missing; the message has the remedy.
        """
        docker = shutil.which("docker")
        if docker is None:
            raise SandboxError(f"docker is missing, so no program is run; {INSTALL}")
        if compose_file is None or not compose_file.is_file():
            raise SandboxError(f"the compose file {compose_file} is missing, so no program is run; install slmsearch again")
        self._docker = docker
        self._prefix = f"slmsearch-program-{os.getpid()}-"
        self._compose = [docker, "compose", "--file", str(compose_file)]
        self._environment = {
            **os.environ,
            "DOCKER_MEMORY_LIMIT": config.docker_memory_limit,
            "DOCKER_CPU_LIMIT": str(config.docker_cpu_limit),
        }
        self._check([docker, "info", "--format", "{{.ServerVersion}}"])
        self._check([*self._compose, "version"])
        if subprocess.run([docker, "image", "inspect", IMAGE], capture_output=True).returncode != 0:
            if not (compose_file.parents[1] / "slmsearch").is_dir():
                raise SandboxError(f"the image {IMAGE} is built from a checkout: build it there, or set sandbox.engine=bubblewrap")
            self._check([*self._compose, "build", SERVICE], timeout_s=1800.0)

    def start(self) -> "DockerInstance":
        """See `SandboxEngine.start`."""
        name = f"{self._prefix}{secrets.token_hex(6)}"
        try:
            command = [*self._compose, "run", "--rm", "-T", "--no-deps", "--name", name, SERVICE]
            return DockerInstance(open_process(command, self._environment), self._docker, name)
        except OSError as error:
            raise SandboxError(f"docker cannot be started ({error}); free processes or file descriptors") from error

    def start_reaper(self) -> subprocess.Popen[bytes]:
        """See `SandboxEngine.start_reaper`."""
        return start_reaper(docker=self._docker, prefix=self._prefix)

    def close(self) -> None:
        """See `SandboxEngine.close`: remove leftovers of a client that was killed while it asked for a container."""
        remove_containers(self._docker, self._prefix)

    def _check(self, command: list[str], timeout_s: float = CHECK_SECONDS) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=self._environment)
            failure = "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        except subprocess.TimeoutExpired:
            failure = f"no answer within {timeout_s:.0f} s"
        if failure:
            raise SandboxError(f"docker does not work here ({failure[:200]}), so no program is run; {INSTALL}")


class DockerInstance(Instance):
    """See `Instance`."""

    def __init__(self, process: subprocess.Popen[bytes], docker: str, name: str) -> None:
        super().__init__(process, "docker", INSTALL)
        self._docker, self._name = docker, name
        self._killed = False

    def _find_interpreter(self) -> None:
        """See `Instance._find_interpreter`: its container has had a name from the start."""

    def is_alive(self) -> bool:
        """See `Instance.is_alive`: return whether the daemon knows its container, whatever happened to the client."""
        return self._process.poll() is None or self._is_known()

    def kill(self) -> None:
        """See `Instance.kill`."""
        with self._lock:
            if self._killed:
                return
            self._killed = True
        # Killing the client would leave the container running. It goes first all the same: while it holds the container's output and
        # nobody reads that, the daemon does not get to removing.
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._ask("rm", "--force", self._name)

    def terminate(self) -> bool:
        """See `Instance.terminate`."""
        self.kill()
        self._process.wait()
        self._close_pipes()
        # The daemon removes a container that ends by itself, too, and answers before it is done.
        with suppress(subprocess.TimeoutExpired):
            return wait_for(lambda: not self._is_known(), TERMINATE_SECONDS)
        return False

    def _is_known(self) -> bool:
        return self._ask("container", "inspect", self._name)

    def _ask(self, *words: str) -> bool:
        """Run a command of Docker's and return whether it succeeded."""
        return subprocess.run([self._docker, *words], capture_output=True, timeout=TERMINATE_SECONDS).returncode == 0
