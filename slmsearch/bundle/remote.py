"""The script of a bundle on the other machine, started by `run.sh`: checks, installs without a network, trains, packs the results.

It needs only Python's standard library. When it is run again, it resumes where it stopped.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import site
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tarfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
MANIFEST, FILES, WHEELS, RUN = "bundle.json", "files", "wheels", "run"
UNFINISHED = 75
"""Exit code when the time limit was reached: run it again to resume (EX_TEMPFAIL of sysexits.h)."""
STOP_S = 120
"""Time a stopped run has to save its state, in seconds."""
STORE = "mlflow.db"
PROBE = """
import json, torch
card = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
print(json.dumps({"torch": torch.__version__, "gpu": card.name if card else None, "gpu_bytes": card.total_memory if card else None}))
"""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file of a bundle."""

    path: str
    """Path on the other side, with slashes."""
    bytes: int
    sha256: str
    pieces: int = 0
    """Number of pieces; 0: the file is whole in one archive."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive of a bundle."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """Content of `bundle.json`."""

    product: str
    python: str
    used: dict[str, str]
    """Package -> version that the machine must have."""
    data_wheels: list[str]
    command: list[str]
    files: list[PackedFile]
    archives: list[Archive]


class Unusable(Exception):
    """Error for something missing or wrong; the message is one line that names it and says what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Run the script and return its exit code: 0 done, 3 something missing or wrong, 75 unfinished at the time limit."""
    parser = argparse.ArgumentParser(prog="run.sh", description="Install slmsearch without a network, train, pack the results.")
    parser.add_argument("--into", type=os.path.abspath, default=HERE / "home", help="folder of its own for environment, data and results")
    parser.add_argument("--check", action="store_true", help="only check that everything was copied whole")
    parser.add_argument("--install", action="store_true", help="check and install, no more")
    parser.add_argument("--no-gpu-check", action="store_true", help="train at once")
    parser.add_argument("--seconds", type=float, help="stop after so long; run again to go on")
    given = parser.parse_args(arguments)
    into, deadline = Path(given.into), time.monotonic() + given.seconds if given.seconds else None
    try:
        manifest = read_manifest(HERE / MANIFEST)
        require_machine(manifest)
        check_archives(manifest.archives)
        if given.check:
            say("all files are complete")
            return 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        into.mkdir(parents=True, exist_ok=True)
        lock = hold(into / ".lock")
        files = unpack(manifest, into)
        python = install(manifest, files, into)
        if given.install:
            return 0
        return work(manifest, files, into, python, deadline, not given.no_gpu_check, lock)
    except Unusable as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"run.sh: {error.strerror or error}: {error.filename or 'no file named'}; check disk space and permissions", file=sys.stderr)
        return 3


def stop(number: int, _frame: object) -> NoReturn:
    """Exit on SIGTERM and Ctrl-C; child processes are terminated on the way out."""
    raise SystemExit(128 + number)


def hold(path: Path) -> int:
    """Take a lock that lasts as long as this process or one of its children."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Unusable(f"another run works in {path.parent}; wait for it, or stop it") from error
    os.set_inheritable(lock, True)
    return lock


def say(text: str) -> None:
    """Write a message with the time to stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def read_manifest(path: Path) -> BundleManifest:
    """Load the manifest."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path.name} cannot be read ({error}); copy it again") from error
    told["files"], told["archives"] = [PackedFile(**file) for file in told["files"]], [Archive(**archive) for archive in told["archives"]]
    return BundleManifest(**told)


def require_machine(manifest: BundleManifest) -> None:
    """Refuse a Python other than the bundle's, and a machine that lacks packages the bundle relies on."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != manifest.python:
        raise Unusable(f"this bundle is for Python {manifest.python} and {sys.executable} is {here}; PYTHON=/path/to/python ./run.sh")
    if find_spec("torch") is None:
        raise Unusable(f"{sys.executable} has no torch, which a bundle never carries; PYTHON=/path/to/python ./run.sh takes another one")
    for name, wanted in manifest.used.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        if plain(found) != plain(wanted):
            raise Unusable(f"{name} is {found} here and {wanted} in the target file: run `pip freeze` again and create the bundle again")


def plain(number: str) -> str:
    """Return a version without leading zeros, which some metadata have and `pip freeze` omits."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", number)


def check_archives(archives: list[Archive]) -> None:
    """Refuse archives that are missing, truncated or changed."""
    for archive in archives:
        path = HERE / archive.name
        if not path.is_file():
            raise Unusable(f"{path.name} is missing; copy it beside run.sh")
        if (size := path.stat().st_size) != archive.bytes:
            raise Unusable(f"{path.name} was cut off: {size:,} of {archive.bytes:,} bytes; copy it again")
        if file_hash(path) != archive.sha256:
            raise Unusable(f"{path.name} has another SHA-256 than it was written with; copy it again")


def unpack(manifest: BundleManifest, into: Path) -> Path:
    """Return the folder of the files, unpacked from the archives if there are any; every file has its recorded hash."""
    if not manifest.archives:
        check_files(manifest.files, HERE / FILES)
        return HERE / FILES
    files, done = into / FILES, into / FILES / ".complete"
    if not (done.is_file() and done.read_text() == identity()):
        say(f"unpacking {len(manifest.archives)} archives")
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir(parents=True)
        for archive in manifest.archives:
            with tarfile.open(HERE / archive.name) as tar:
                tar.extractall(files, filter="data")
        for file in manifest.files:
            join(files / file.path, file.pieces)
        check_files(manifest.files, files)
        done.write_text(identity())
    return files


def join(path: Path, pieces: int) -> None:
    """Join the pieces of a file."""
    if not pieces:
        return
    with path.open("wb") as whole:
        for number in range(pieces):
            piece = path.with_name(f"{path.name}.piece{number:03d}")
            with piece.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 22)
            piece.unlink()


def check_files(files: list[PackedFile], folder: Path) -> None:
    """Refuse files that are missing or changed."""
    for file in files:
        path = folder / file.path
        if not path.is_file():
            raise Unusable(f"{file.path} is missing from the bundle; copy it again")
        if file_hash(path) != file.sha256:
            raise Unusable(f"{file.path} has another SHA-256 than it was written with; copy the bundle again")


def install(manifest: BundleManifest, files: Path, into: Path) -> Path:
    """Return the Python of the environment; create it from the wheels if it is missing. It also sees the packages installed here."""
    environment, done = into / "env", into / "env" / ".complete"
    python = environment / "bin" / "python"
    if done.is_file() and done.read_text() == identity():
        return python
    # Packages with models and texts are read by the run, not installed.
    data = tuple(f"{name.replace('-', '_')}-" for name in manifest.data_wheels)
    wheels = [wheel for wheel in sorted((files / WHEELS).glob("*.whl")) if not wheel.name.startswith(data)]
    say(f"installing {len(wheels)} packages into {environment}")
    shutil.rmtree(environment, ignore_errors=True)
    call([sys.executable, "-m", "venv", "--without-pip", str(environment)], "make an environment")
    pip = next((wheel for wheel in wheels if wheel.name.startswith("pip-")), None)
    if pip is None:
        raise Unusable("the bundle has no wheel of pip, which installs the others; create it again")
    options = ["--no-index", "--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    call([str(python), f"{pip}/pip", "install", *options, *map(str, wheels)], "install the wheels")
    own = Path(call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], "find its packages").strip())
    # After its own packages, so that those take precedence over other versions.
    (own / "machine.pth").write_text("".join(f"import site; site.addsitedir({str(folder)!r})\n" for folder in folders_of_packages()))
    call([str(python), "-m", "compileall", "-q", "-j", "0", str(own)], "", check=False)  # TRL takes 16 s to import without
    call([str(python), "-c", "import torch, trl, slmsearch"], "import torch, TRL and slmsearch")
    done.write_text(identity())
    return python


def folders_of_packages() -> list[str]:
    """Return the folders in which this Python finds its installed packages."""
    own = {str(Path(path).resolve()) for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
    known = [*site.getsitepackages(), *sys.path]
    found = [path for path in dict.fromkeys(known) if path and Path(path).is_dir() and Path(path).resolve() != HERE]
    return [path for path in found if str(Path(path).resolve()) not in own and Path(path).name != "lib-dynload"]


def work(manifest: BundleManifest, files: Path, into: Path, python: Path, deadline: float | None, checks: bool, lock: int) -> int:
    """Check the card, train, pack the results; return the exit code."""
    home, logs = into / RUN, into / "logs"
    for folder in (home, logs):
        folder.mkdir(exist_ok=True)
    link_run(files / RUN, home)
    facts = {**describe_machine(python), "bundle": identity(), "product": manifest.product, "started": time.time()}
    with suppress(OSError, ValueError):  # a resumed run keeps its start time
        facts["started"] = json.loads((into / "results.json").read_text())["started"]
    environment, program = child_environment(files), str(python.with_name("slmsearch"))
    if facts["gpu"] is None:
        facts["gpu_check"] = "no CUDA device here"
    elif checks and not (logs / "gpu-check.json").is_file():
        say("gpu-check: every preset for a GPU, two updates each")
        code, said = run([program, "bench", "gpu", "--json"], home, environment, logs / "gpu-check.log", deadline, lock)
        if code in (0, 1):
            (logs / "gpu-check.json").write_text(said)
            say(f"gpu-check {'failed' if code else 'passed'}")
    with suppress(OSError, ValueError):  # of an earlier attempt, too
        facts.setdefault("gpu_check", "passed" if json.loads((logs / "gpu-check.json").read_text()).get("passed") else "failed")
    say(f"slmsearch {' '.join(manifest.command)}")
    stopped: SystemExit | None = None
    try:
        code, said = run([program, *manifest.command, "--json"], home, environment, logs / "run.log", deadline, lock)
    except SystemExit as told:  # partial results are packed first
        code, said, stopped = None, "", told
    facts |= {"exit_code": code, "finished": code in (0, 1), "ended": time.time()}
    with suppress(ValueError):
        facts["outcome"] = json.loads(said)
    (into / "results.json").write_text(json.dumps(facts, indent=1) + "\n")
    path = pack_results(into, home, (HERE if os.access(HERE, os.W_OK) else into) / f"results-{facts['machine']}.tar.gz")
    say(f"results in {path}; on the machine with slmsearch: slmsearch bundle import {path.name}")
    if stopped is not None:
        raise stopped
    if code is None:
        say("time limit reached; run it again to resume")
        return UNFINISHED
    if code not in (0, 1):
        raise Unusable(f"the run ended with exit code {code}; {logs / 'run.log'} says why: {last_line(logs / 'run.log')}")
    return 0


def link_run(source: Path, home: Path) -> None:
    """Link the run's settings and inputs into its folder; data and results of an earlier attempt stay."""
    for file in source.rglob("*"):
        target = home / file.relative_to(source)
        if file.is_file() and not (target.is_file() and file_hash(target) == file_hash(file)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def child_environment(files: Path) -> dict[str, str]:
    """Return the variables of the run: offline, with packages from the wheels of the bundle."""
    dropped = ("PYTHON", "PIP_", "SLMSEARCH_", "PREFECT_", "MLFLOW_", "DATA_DIR", "DEV", "JUDGE_", "SANDBOX_PORT", "DOCKER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": (files / WHEELS).as_uri()}
    return {**kept, **offline, "PYTHONUNBUFFERED": "1"}


def describe_machine(python: Path) -> dict[str, object]:
    """Describe this machine: name, card, versions."""
    facts: dict[str, object] = json.loads(call([str(python), "-c", PROBE], "ask torch for a card").splitlines()[-1])
    name = "".join(char if char.isalnum() or char in "-." else "-" for char in socket.gethostname()) or "machine"
    return {**facts, "machine": name, "python": platform.python_version(), "cores": os.cpu_count(), "system": platform.platform()}


def run(
    command: list[str], home: Path, environment: dict[str, str], log: Path, deadline: float | None, lock: int
) -> tuple[int | None, str]:
    """Run a command with its stderr shown and logged; return exit code (None at the time limit) and last line of stdout."""
    with log.with_suffix(".out").open("w+b") as out:
        tee = subprocess.Popen(["tee", "-a", "-i", str(log)], stdin=subprocess.PIPE, stdout=sys.stderr.fileno())
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=out, stderr=tee.stdin, pass_fds=[lock])
        code: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(None if deadline is None else max(1.0, deadline - time.monotonic()))
        finally:
            end(process)
            tee.communicate()
        out.seek(0)
        lines = out.read().decode(errors="replace").strip().splitlines()
    return code, lines[-1] if lines else ""


def end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process, with time to save its state."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def pack_results(into: Path, home: Path, path: Path) -> Path:
    """Pack facts, logs and MLflow's store into one archive."""
    staging = path.with_name(f".{path.name}")
    store, copy = home / "mlruns" / STORE, into / STORE
    with tarfile.open(staging, "w:gz") as tar:
        tar.add(into / "results.json", "results.json")
        tar.add(into / "logs", "logs")
        if store.is_file():
            with closing(sqlite3.connect(store)) as live, closing(sqlite3.connect(copy)) as target:
                live.backup(target)
            tar.add(copy, f"mlruns/{STORE}")
            copy.unlink()
            for name in ("artifacts", "bench"):
                if (home / "mlruns" / name).is_dir():
                    tar.add(home / "mlruns" / name, f"mlruns/{name}")
    staging.replace(path)
    return path


def identity() -> str:
    """Return the hash that identifies this bundle."""
    return file_hash(HERE / MANIFEST)


def file_hash(path: Path) -> str:
    """Return the sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def call(command: list[str], what: str, check: bool = True) -> str:
    """Run a short command and return its stdout; raise `Unusable` with a one-line reason if it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    ended = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    if check and ended.returncode:
        said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        raise Unusable(f"cannot {what}: {said[-1][:300] if said else f'exit code {ended.returncode}'}")
    return ended.stdout


def last_line(path: Path) -> str:
    """Return the last non-empty line of a log."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it is empty"


if __name__ == "__main__":
    sys.exit(main())
