"""The file system of a program: this interpreter, its standard library, the C libraries both need, and the runner.

It is a copy, made once per interpreter and named by what it was made from, because a program runs as a user who may read none of the
server's own folders. Modules for which a program has no use (tests, Tk, pip) are left out.
"""

import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox import runner
from slmsearch.keys import content_key, file_key

PYTHON = "/python/bin/python3"
"""Path of the interpreter, inside."""
RUNNER = "/runner.pyc"
LIBRARIES = "/python/libraries"
"""Path of shared libraries, inside; the dynamic linker gets it by LD_LIBRARY_PATH, a program's only variable."""
ROOT_VERSION = 1
"""Part of the name; raise it when the copied files change."""

_LEFT_OUT = shutil.ignore_patterns(
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtle*", "ensurepip", "lib2to3", "pydoc_data", "venv",
    "config-*", "*.a", "*.opt-*.pyc", "_test*", "_ctypes_test*", "_xx*", "_tkinter*", "_curses*", "_dbm*", "_gdbm*", "_sqlite3*",
    "_ssl*", "_hashlib*", "_bz2*", "_lzma*", "readline*", "nis*", "ossaudiodev*", "_crypt*",
)  # fmt: skip
_MANIFEST = "complete"


def prepare_root(parent: Path) -> Path:
    """Make the file system, or find the one that was made before: a directory that any user can read and only its owner can change.

    It is kept in `parent`, if every user of this machine can get there; else in the system's folder for temporary files.

    Raises:
        SandboxError: it cannot be made.
    """
    name = f"slmsearch-sandbox-{os.getuid()}-{root_key()}"
    place = parent if os.getuid() != 0 or _open_to_all(parent) else Path(tempfile.gettempdir())
    final = place / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not _ours(final):
            _make(final)
    except (OSError, subprocess.CalledProcessError, py_compile.PyCompileError) as error:
        raise SandboxError(f"the sandbox's file system cannot be made in {place} ({error}); free disk space or fix permissions") from error
    return final


def root_key() -> str:
    """Name the file system by its sources."""
    binary = Path(sys.executable).resolve()
    facts = [ROOT_VERSION, sys.version, str(binary), binary.stat().st_mtime_ns, sysconfig.get_path("stdlib")]
    return content_key(facts=facts, runner=file_key(Path(runner.__file__)))


def _ours(final: Path) -> bool:
    """Return whether it exists, complete, and beyond the reach of other users: every user can write to /tmp."""
    try:
        found = final.lstat()
        return found.st_uid == os.getuid() and found.st_mode & 0o170022 == 0o040000 and (final / _MANIFEST).is_file()
    except OSError:
        return False


def _open_to_all(path: Path) -> bool:
    existing = [folder for folder in (path, *path.parents) if folder.exists()]
    return all(folder.stat().st_mode & 0o001 for folder in existing)


def _make(final: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        fill_root(temporary)
        os.replace(temporary, final)
    except OSError:
        if not _ours(final):  # else another server was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def fill_root(root: Path) -> None:
    """Copy everything into an empty directory; the image of the engine `docker` is made with it, too."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = root / "python" / "lib" / version
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=_LEFT_OUT, symlinks=False, ignore_dangling_symlinks=True)
    extensions = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    if extensions.is_dir() and not (library / "lib-dynload").exists():
        shutil.copytree(extensions, library / "lib-dynload", ignore=_LEFT_OUT)
    binary = root / PYTHON.lstrip("/")
    binary.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), binary)
    _copy_libraries(root, [binary, *(library / "lib-dynload").glob("*.so")])
    py_compile.compile(runner.__file__, str(root / RUNNER.lstrip("/")), "runner", doraise=True)
    (root / "tmp").mkdir()  # where a control of the escape suite may write
    (root / _MANIFEST).touch()
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _copy_libraries(root: Path, binaries: Iterable[Path]) -> None:
    """Copy the shared libraries that binaries need: the dynamic linker to its own place, the others together."""
    target = root / LIBRARIES.lstrip("/")
    target.mkdir()
    for name, path in sorted(_needed(binaries).items()):
        place = root / path.lstrip("/") if name == path else target / Path(name).name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


def _needed(binaries: Iterable[Path]) -> dict[str, str]:
    """Return the libraries that `ldd` finds: name and path of each; the linker has no name but its path."""
    found: dict[str, str] = {}
    # Copies do not find libraries by a path relative to themselves, so the original's folder is named.
    environment = {**os.environ, "LD_PRELOAD": "", "LC_ALL": "C", "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or ""}
    for binary in binaries:
        done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, env=environment)
        for line in done.stdout.splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            path = (rest if arrow else name).partition(" (")[0].strip()
            if path.startswith("/"):
                found[name if arrow else path] = path
    return found
