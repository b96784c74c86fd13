#!/usr/bin/env python3
"""Stands in for Docker's command line, to test the engine where there is no daemon: keeps to the calls that the engine makes.

`compose run` starts the real runner, without any container; `rm` kills it and then waits for the client,
which passes output on; `container inspect` looks for it.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER_STATE"])
RUNNER = os.environ["FAKE_DOCKER_RUNNER"]


def main(arguments: list[str]) -> int:
    with (STATE / "calls").open("a") as log:
        log.write(" ".join(arguments) + "\n")
    if (STATE / "down").exists() and arguments[0] != "version":
        print("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", file=sys.stderr)
        return 1
    match arguments:
        case ["info", *_]:
            print("29.0")
        case ["image", "inspect", _]:
            return 0 if (STATE / "image").exists() else 1
        case ["compose", "--file", _, "version"]:
            print("v5")
        case ["compose", "--file", _, "build", "program"]:
            (STATE / "image").touch()
        case ["compose", "--file", _, "run", "--rm", "-T", "--no-deps", "--name", name, "program"]:
            return run(name)
        case ["rm", "--force", name]:
            if (STATE / name).exists():
                with suppress(ProcessLookupError):
                    os.kill(int((STATE / name).read_text()), signal.SIGKILL)
                if not has_ended(int((STATE / f"{name}.client").read_text())):
                    print("the client holds output that nobody reads", file=sys.stderr)
                    return 1
                (STATE / name).unlink()
        case ["ps", "--all", "--quiet", "--filter", _]:
            pass
        case ["container", "inspect", name]:
            return 0 if (STATE / name).exists() else 1
        case _:
            print(f"unknown command: docker {' '.join(arguments)}", file=sys.stderr)
            return 125
    return 0


def run(name: str) -> int:
    (STATE / f"{name}.client").write_text(str(os.getpid()))
    process = subprocess.Popen([sys.executable, "-I", "-S", "-B", RUNNER], stdout=subprocess.PIPE)
    (STATE / name).write_text(str(process.pid))
    assert process.stdout is not None
    while block := os.read(process.stdout.fileno(), 65536):
        os.write(1, block)
    return process.wait()


def has_ended(client: int) -> bool:
    """Wait a moment for a client to end; the daemon waits for ever."""
    for _ in range(100):
        with suppress(OSError):
            if Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.02)
                continue
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
