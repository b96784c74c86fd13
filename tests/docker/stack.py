"""`deployments/compose.yaml` on the tests' daemon: a copy of the project, its secrets, the images that stand in, the servers."""

import os
import secrets
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.deployments.reading import compose
from tests.docker.daemon import Daemon
from tests.docker.stand_ins import copy_project

BUILD_SECONDS, START_SECONDS = 1700.0, 1200.0
BUILT = {"services": "slmsearch-services:0.2.0", "worker": "slmsearch-worker:0.2.0"}
DECOYS = (".env", ".git/config", "data/corpora/private.jsonl", "deployments/secrets/extra", "mlruns/mlflow.db", "id_rsa")
"""Files of a checkout that belong in no image."""
CA = "/etc/ssl/certs/ca-certificates.crt"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder of wheels and says nothing."""

    def log_message(self, *_: object) -> None:
        """Drop it."""


class Stack:
    """The project as a team has it after `make-secrets`, and commands on it."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.daemon = daemon
        self.project = copy_project(home / "project")
        self.secrets = self.project / "deployments" / "secrets"
        subprocess.run([str(self.project / "deployments" / "make-secrets")], check=True, capture_output=True)
        self.ports = {"prefect_door": 4200, "mlflow_door": 5000}
        self.decoy = secrets.token_hex(20)
        for name in DECOYS:
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            (self.project / name).write_text(f"{self.decoy}\n")
        self._build = home / "build.yaml"
        built = {name: {"build": {"network": "host"}} for name, found in compose()["services"].items() if "build" in found}
        self._build.write_text(yaml.safe_dump({"services": built}))
        self.pip_secret = secrets.token_hex(20)
        self._pip_conf = home / "pip.conf"

    def secret(self, name: str) -> str:
        """One of them."""
        return (self.secrets / name).read_text().strip()

    def all_secrets(self) -> list[str]:
        """Everything that may stand in no layer, log or list."""
        made = [path.read_text().strip() for path in self.secrets.iterdir() if not path.name.startswith(".") and path.name != "s3.json"]
        return [*(text.rpartition("admin:")[2] for text in made), self.decoy, self.pip_secret]

    def compose(self, *words: str, timeout_s: float = 120.0, files: tuple[Path, ...] = (), **variables: str) -> str:
        """Run `docker compose` as the documentation says, as a team with a CPU does."""
        named = [word for file in (self.project / "deployments" / "compose.yaml", *files) for word in ("--file", str(file))]
        return self.daemon.run("compose", *named, *words, timeout_s=timeout_s, COMPOSE_PROFILES="cpu", **variables)

    def build(self) -> None:
        """Build both images; wheels come from where pip finds them on this machine."""
        lines = ["[global]", f"cert = {CA}", "timeout = 180", f"# {self.pip_secret}"]
        for option in ("index-url", "extra-index-url"):
            if value := os.environ.get(f"PIP_{option.upper().replace('-', '_')}"):
                lines.append(f"{option} = {value}")
        folders = os.environ.get("PIP_FIND_LINKS", "").split()
        servers = [ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) for folder in folders]
        if servers:
            lines.append("find-links = " + " ".join(f"http://127.0.0.1:{server.server_port}/" for server in servers))
        self._pip_conf.write_text("\n".join(lines) + "\n")
        threads = [threading.Thread(target=server.serve_forever) for server in servers]
        for thread in threads:
            thread.start()
        try:
            known = {"files": (self._build,), "PIP_CONFIG_FILE": str(self._pip_conf)}
            self.compose("build", "prefect", "worker", timeout_s=BUILD_SECONDS, **known)  # type: ignore[arg-type]
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()
            for thread in threads:
                thread.join()

    def inside(self, service: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in a service's container."""
        return self.daemon.ask("exec", f"slmsearch-{service}-1", *words, timeout_s=300.0)

    def query(self, database: str, sql: str) -> list[str]:
        """Ask PostgreSQL; one line per row."""
        done = self.inside("postgres", "psql", "--no-psqlrc", "-U", "postgres", "-d", database, "-At", "-c", sql)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def make_stack(daemon: Daemon, home: Path, stand_in: Callable[[str], None]) -> Stack:
    """Make the images."""
    stand_in("python-3.11")
    made = Stack(daemon, home)
    made.build()
    return made
