#!/usr/bin/env python3
"""Stands in for Docker's command line, to test the engine where there is no daemon: keeps to the calls that the engine makes.

`compose run` starts the real runner, without any container; `rm` kills it, `container inspect` looks for it.
"""

import os
import signal
import subprocess
import sys
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
    process = subprocess.Popen([sys.executable, "-I", "-S", "-B", RUNNER])
    (STATE / name).write_text(str(process.pid))
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
