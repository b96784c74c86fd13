"""A Docker daemon of the tests' own: its socket, images, containers and firewall rules are gone when it has been stopped."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

NEEDED = {"dockerd": "docker.io", "docker": "docker.io", "iptables-save": "iptables", "debootstrap": "debootstrap"}
START_SECONDS = 60.0
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def missing() -> str:
    """Say what these tests need and this machine lacks; empty if it lacks nothing."""
    if os.getuid() != 0:
        return "needs root: dockerd and debootstrap do not work without"
    lacking = sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})
    if lacking:
        return f"needs Docker and debootstrap: apt-get install --no-install-recommends {' '.join(lacking)}"
    if any(process.info["name"] == "dockerd" for process in psutil.process_iter(["name"])):
        return "needs a machine on which no Docker daemon runs: two would share firewall rules, and images are made under public names"
    return ""


class Daemon:
    """One `dockerd`; `run` asks it."""

    def __init__(self, kept: Path | None) -> None:
        """Start it.

        Args:
            kept: where images stay between test runs; None: they are thrown away.
        """
        self.home = Path(tempfile.mkdtemp(prefix="slmsearch-docker-"))  # paths of sockets are short
        self._data = kept or self.home / "data"
        self.config = self.home / "config"
        (self.config / "cli-plugins").mkdir(parents=True)
        self.variables = {"DOCKER_HOST": f"unix://{self.home}/docker.sock", "DOCKER_CONFIG": str(self.config)}
        self._rules = subprocess.run(["iptables-save"], capture_output=True, check=True).stdout
        self._forwarding = FORWARDING.read_text()
        places = ["--data-root", str(self._data), "--exec-root", str(self.home / "exec"), "--pidfile", str(self.home / "pid")]
        with (self.home / "log").open("wb") as log:
            command = ["dockerd", "--bridge=none", *places, "--host", self.variables["DOCKER_HOST"]]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while self.ask("info").returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.home / "log").read_text(errors="replace")
                self.stop()
                raise AssertionError(f"dockerd does not start here:\n{said[-3000:]}")
            time.sleep(0.2)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {**os.environ, **self.variables}

    def ask(self, *words: str, timeout_s: float = 120.0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `docker` and return what it came to."""
        environment = {**self.environment, **variables}
        return subprocess.run(["docker", *words], env=environment, capture_output=True, text=True, errors="replace", timeout=timeout_s)

    def run(self, *words: str, timeout_s: float = 120.0, **variables: str) -> str:
        """Run `docker`, which must succeed, and return what it printed."""
        done = self.ask(*words, timeout_s=timeout_s, **variables)
        assert done.returncode == 0, f"docker {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """Return what the daemon knows of an image or a container."""
        (found,) = json.loads(self.run("inspect", name))
        assert isinstance(found, dict)
        return found

    def containers(self) -> list[str]:
        """List all containers by name, those that have ended included."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def leftovers(self) -> dict[str, list[str]]:
        """Return containers, their processes and their mounts, as daemon and kernel know them."""
        running = [p.info for p in psutil.process_iter(["name", "cmdline"]) if p.info["name"].startswith("containerd-shim")]
        shims = [info["cmdline"] for info in running if info["cmdline"]]  # one that has ended has none
        roots = (str(self.home), str(self._data))
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return {
            "containers": self.containers(),
            "processes": [" ".join(words) for words in shims],
            "mounts": [mount for mount in mounts if mount.startswith(roots) and "/merged" in mount],
        }

    def stop(self) -> None:
        """Stop it and restored what it changed on this machine."""
        if self._process.poll() is None:
            if names := self.ask("ps", "--all", "--quiet").stdout.split():
                self.ask("rm", "--force", "--volumes", *names)
            self.ask("network", "prune", "--force")
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        subprocess.run(["iptables-restore"], input=self._rules, check=True)
        FORWARDING.write_text(self._forwarding)
        for folder in Path("/sys/fs/cgroup").glob("*/docker"):
            with suppress(OSError):
                folder.rmdir()
        shutil.rmtree(self.home, ignore_errors=True)
