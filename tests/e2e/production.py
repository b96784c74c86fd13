"""The production files, run without Docker: a real PostgreSQL, and the commands, variables and configuration that the files hold.

What a container network would give is put in place by replacing strings that must be there: names of hosts by loopback and ports, paths
of volumes by temporary ones. S3 is replaced by a folder. Nothing else of the files is changed or repeated here.
"""

import getpass
import glob
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from slmsearch.processes.ports import free_port
from tests.deployments.reading import DEPLOYMENTS, ROOT, replace_all, service

START_SECONDS = 150.0
BIN = Path(sys.executable).parent
PORTS = ("postgres", "prefect", "mlflow", "prefect_door", "mlflow_door")


def missing() -> str:
    """Say what these tests need and this machine lacks; empty if it lacks nothing."""
    programs = {"nginx": "nginx", "openssl": "openssl", "psql": "postgresql-client"}
    lacking = [f"{name} (Debian: {package})" for name, package in programs.items() if not which(name)]
    if not postgres_bin():
        lacking.append("initdb (Debian: postgresql)")
    lacking += [f"{name} (extra `production`)" for name in ("psycopg", "flask_wtf", "boto3") if find_spec(name) is None]
    return f"needs {', '.join(lacking)}" if lacking else ""


def which(name: str) -> str | None:
    """Find a program, also where only root looks."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def postgres_bin() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest version's."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    program = found[-1] if found else shutil.which("initdb")
    return Path(program).parent if program else None


@dataclass
class Stack:
    """The servers of the compose file, running."""

    home: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PORTS})
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def secrets(self) -> Path:
        """Where `make-secrets` wrote."""
        return self.home / "secrets"

    def secret(self, name: str) -> str:
        """One of them."""
        return (self.secrets / name).read_text().strip()

    def url(self, name: str) -> str:
        """Address of a server or of a door."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    # Starting and ending

    def start(self) -> None:
        """Start everything that stays up; servers start side by side."""
        subprocess.run([str(DEPLOYMENTS / "make-secrets"), str(self.secrets)], check=True, capture_output=True)
        self._start_postgres()
        self.launch("prefect", self._prefect())
        self.launch("mlflow", self._mlflow())
        self._start_proxy()
        self.wait("prefect", lambda: answers(f"{self.url('prefect')}/api/ready"))
        self.wait("mlflow", lambda: answers(f"{self.url('mlflow')}/health"))
        self.wait("proxy", lambda: answers(self.url("prefect_door"), 401))

    def stop(self) -> None:
        """End everything, the last started first."""
        for name, process in reversed(self.processes.items()):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"{name} did not end within 30 s") from None

    def launch(self, name: str, command: "Command") -> "subprocess.Popen[bytes]":
        """Start a command with nothing in its environment but what a container would have."""
        with (self.home / f"{name}.log").open("wb") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen(command.words, env=command.environment, cwd=ROOT, **options, **command.who)
        self.processes[name] = process
        return process

    def wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Wait for a process to be ready."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.2)

    # What is in the files

    def filled(self, name: str, words: list[str], variables: dict[str, str], replacements: dict[str, str]) -> "Command":
        """Make a service's command from its words and variables, in which strings are replaced; each must occur."""
        text = "\x00".join([*words, "\x01", *(f"{key}={value}" for key, value in variables.items())])
        done = replace_all(text, replacements).split("\x00")
        cut = done.index("\x01")
        plain = {"PATH": f"{DEPLOYMENTS}:{BIN}:/usr/bin:/bin", "HOME": str(self.home), "CREDENTIALS_DIRECTORY": str(self.secrets)}
        return Command(done[:cut], {**plain, **dict(pair.split("=", 1) for pair in done[cut + 1 :])})

    def _prefect(self) -> "Command":
        found = service("prefect")
        variables = dict(found["environment"])
        assert (variables["PREFECT_SERVER_DATABASE_HOST"], variables["PREFECT_SERVER_DATABASE_PORT"]) == ("postgres", "5432")
        variables |= {"PREFECT_SERVER_DATABASE_HOST": "127.0.0.1", "PREFECT_SERVER_DATABASE_PORT": str(self.ports["postgres"])}
        replacements = {
            "0.0.0.0\x00--port\x004200": f"127.0.0.1\x00--port\x00{self.ports['prefect']}",
            "http://127.0.0.1:4200": self.url("prefect_door"),
            "/tmp/prefect": str(self.home / "prefect"),
        }
        return self.filled("prefect", [*found["entrypoint"], *found["command"]], variables, replacements)

    def _mlflow(self) -> "Command":
        found = service("mlflow")
        auth = self.home / "auth.ini"
        database = f"@127.0.0.1:{self.ports['postgres']}/"
        auth.write_text(replace_all((DEPLOYMENTS / "mlflow" / "auth.ini").read_text(), {"@postgres:5432/": database}))
        replacements = {
            "--host=0.0.0.0\x00--port=5000": f"--host=127.0.0.1\x00--port={self.ports['mlflow']}",
            "@postgres:5432/": database,
            "s3://mlflow": str(self.home / "artifacts"),
            "mlflow:5000": f"127.0.0.1:{self.ports['mlflow']}",
            "127.0.0.1:5000": f"127.0.0.1:{self.ports['mlflow_door']}",
            "/etc/slmsearch/auth.ini": str(auth),
        }
        return self.filled("mlflow", [*found["entrypoint"], *found["command"]], found["environment"], replacements)

    def client(self, name: str, command: list[str], **variables: str) -> "Command":
        """Make what a worker's container runs, with another command; every one has a data directory of its own."""
        found = service("worker")
        replacements = {
            "http://prefect:4200": self.url("prefect"),
            "http://mlflow:5000": self.url("mlflow"),
            "=/data": f"={self.home / name}",
        }
        quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
        return self.filled(name, [*found["entrypoint"], *command], {**found["environment"], **quiet}, replacements)

    def _start_postgres(self) -> None:
        programs = postgres_bin()
        assert programs
        data, sockets = self.home / "postgres", self.home / "sockets"
        who = as_postgres()
        for folder in (data, sockets):
            folder.mkdir()
            if who:
                shutil.chown(folder, who["user"], who["group"])
        password = self.home / "postgres_password"
        password.write_text(self.secret("postgres_password"))
        password.chmod(0o644)
        given = service("postgres")["environment"]["POSTGRES_INITDB_ARGS"].split()
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "--pwfile", str(password), "--auth-local=trust", *given]
        subprocess.run([*initdb, "--no-sync"], check=True, capture_output=True, cwd="/", **who)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={sockets}", "-c", "fsync=off"]
        server = [str(programs / "postgres"), "-D", str(data), "-p", str(self.ports["postgres"]), *options]
        self.launch("postgres", Command(server, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, who))
        local = {"PGHOST": str(sockets), "PGPORT": str(self.ports["postgres"]), "CREDENTIALS_DIRECTORY": str(self.secrets)}
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "POSTGRES_USER": "postgres", **local}
        ready = [str(programs / "pg_isready"), "--quiet"]
        self.wait("postgres", lambda: subprocess.run(ready, env=environment).returncode == 0)
        subprocess.run([str(DEPLOYMENTS / "postgres" / "init.sh")], check=True, env=environment)

    def _start_proxy(self) -> None:
        config = self.home / "nginx.conf"
        replacements = {
            "prefect:4200": f"127.0.0.1:{self.ports['prefect']}",
            "mlflow:5000": f"127.0.0.1:{self.ports['mlflow']}",
            "listen 4200": f"listen 127.0.0.1:{self.ports['prefect_door']}",
            "listen 5000": f"listen 127.0.0.1:{self.ports['mlflow_door']}",
            "127.0.0.1:4200": f"127.0.0.1:{self.ports['prefect_door']}",
            "127.0.0.1:5000": f"127.0.0.1:{self.ports['mlflow_door']}",
            "/run/secrets": str(self.secrets),
            "/tmp/": f"{self.home}/",
        }
        config.write_text(replace_all((DEPLOYMENTS / "nginx" / "nginx.conf").read_text(), replacements))
        directives = "daemon off;" + (" user root;" if os.getuid() == 0 else "")
        nginx = which("nginx")
        assert nginx
        self.launch("proxy", Command([nginx, "-c", str(config), "-p", str(self.home), "-g", directives], {"PATH": "/usr/bin:/bin"}))

    def query(self, database: str, sql: str) -> list[str]:
        """Ask PostgreSQL as the role that a server uses; one line per row."""
        environment = {"PATH": os.environ["PATH"], "PGPASSWORD": self.secret(f"{database}_db_password")}
        where = ["--host=127.0.0.1", f"--port={self.ports['postgres']}", f"--username={database}", f"--dbname={database}"]
        done = subprocess.run(["psql", "--no-psqlrc", "-At", *where, "-c", sql], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@dataclass(frozen=True)
class Command:
    """What is started, with what in its environment, as whom."""

    words: list[str]
    environment: dict[str, str]
    who: dict[str, str] = field(default_factory=dict)


def as_postgres() -> dict[str, str]:
    """Return as whom PostgreSQL runs: it refuses to as root."""
    if os.getuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next(name for name in ("postgres", "nobody", getpass.getuser()) if name in names)
    return {"user": user, "group": str_group(user)}


def str_group(user: str) -> str:
    """Return the name of a user's own group."""
    import grp

    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def answers(url: str, wanted: int = 200) -> bool:
    """Say whether a GET has the status that is wanted."""
    try:
        return httpx.get(url, timeout=5).status_code == wanted
    except httpx.HTTPError:
        return False
