"""An earlier build of this project beside today's: a recorded commit, from git, with its own process, folder and corpora."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import slmsearch
from slmsearch.artifacts.directories import replaced_directory
from slmsearch.errors import ServiceError
from slmsearch.extensions.bench import recorded_steps
from slmsearch.extensions.bench.result import Say
from slmsearch.foreign import cause_of

COMMIT = "70ab687d"
"""Build that ratios of today's are taken against."""


class RecordedBuild:
    """A process of the recorded build that takes a step of a shape whenever it is asked."""

    def __init__(self, folder: Path, shape: str, settings: Mapping[str, object]) -> None:
        """Start the process; it loads the shape until the first step.

        Args:
            folder: source code of the build, as `fetch_build` writes it.
            shape: `demo`, `long` or `real`.
            settings: changes to the shape's preset, by dotted names that the build knows.
        """
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, "-P", recorded_steps.__file__, shape, json.dumps(settings)]
        self._log = folder.with_name(f"{COMMIT}.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def take_step(self) -> tuple[float, float]:
        """Take a step; return the seconds of its rollouts and of the whole.

        Raises:
            ServiceError: the process has ended.
        """
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write("step\n")
            self._process.stdin.flush()
            rollout_s, step_s = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise ServiceError(f"the build of {COMMIT} has ended with exit code {self._process.wait()}; see {self._log}") from error
        return float(rollout_s), float(step_s)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def recorded_build(shape: str, settings: Mapping[str, object], home: Path, say: Say) -> Iterator[RecordedBuild | None]:
    """Open the recorded build for a shape, after one step; None, and a line that says why, where it cannot be had."""
    with ExitStack() as stack:
        build = None
        try:
            build = stack.enter_context(closing(RecordedBuild(fetch_build(home), shape, settings)))
            say(f"  build of {COMMIT} {build.take_step()[1]:.2f} s")
        except ServiceError as error:
            say(f"  without the build of {COMMIT}: {error}")
            build = None
        yield build


def fetch_build(home: Path) -> Path:
    """Return the folder of the recorded build's source code in `home`, written from git if it is not there.

    Raises:
        ServiceError: this is no checkout with the commit in its history.
    """
    folder, root = home / COMMIT, Path(slmsearch.__file__).parents[1]
    if folder.is_dir():
        return folder
    try:
        with replaced_directory(folder) as staging:
            packed = staging / "build.tar"
            made = subprocess.run(["git", "archive", "--output", str(packed), COMMIT], cwd=root, capture_output=True, text=True)
            if made.returncode:
                raise ServiceError(cause_of(made.stderr))
            with tarfile.open(packed) as files:
                files.extractall(staging, filter="data")
            packed.unlink()
    except OSError as error:
        raise ServiceError(cause_of(error)) from error
    return folder
