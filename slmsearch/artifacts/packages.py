"""Files of a package, fetched by the installer of this Python environment with its mirrors, folders and proxies."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from slmsearch.errors import ServiceError

FROM_PIP = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", " "),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", " "),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS", ","),
    "PIP_NO_INDEX": ("UV_OFFLINE", " "),
    "PIP_CERT": ("SSL_CERT_FILE", " "),
}
"""Settings of pip that uv names differently, and uv's separator of several values."""
_MISMATCH = ("hash mismatch", "do not match the hashes")
"""Parts of the messages of uv and pip about a file with another hash."""


def unpack_package(requirement: str, sha256: str, out: Path, environment: Mapping[str, str]) -> None:
    """Unpack a wheel, `name==version` with its sha256, into a directory, without its dependencies; none of it is installed or run.

    The installer reads its settings from `environment`.

    Raises:
        ServiceError: there is no installer, it cannot fetch the package, or the registry's file has another hash.
    """
    out = out.absolute()
    wanted = out.with_name(f"{out.name}.txt")
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(out), "-r", str(wanted)]
    command = find_installer(environment)
    with tempfile.TemporaryDirectory(prefix="slmsearch-package-") as neutral:  # uv reads [tool.uv] of the current folder and its parents
        variables = with_uv_names(environment)
        try:
            ended = subprocess.run([*command, *options], capture_output=True, text=True, env=variables, cwd=neutral, check=False)
        finally:
            wanted.unlink(missing_ok=True)
    if ended.returncode == 0:
        return
    said = [line.strip() for line in f"{ended.stderr}\n{ended.stdout}".splitlines() if line.strip()]
    if any(mark in line.lower() for line in said for mark in _MISMATCH):
        raise ServiceError(
            f"the package {requirement} that was fetched does not have the recorded SHA-256 ({sha256[:12]}...), so nothing of it is used; "
            "the mirror or folder holds another file under that name: remove it there, or take another mirror"
        )
    causes = [line for line in said if not line.lower().startswith(("warning", "hint"))] or ["no reason given"]
    cause = "; ".join(line.removeprefix("error: ").removeprefix("ERROR: ").removeprefix("cause: ") for line in causes)
    raise ServiceError(
        f"the package {requirement} cannot be fetched ({cause[:200]}); go online once, name a mirror or a folder of wheels "
        "(UV_DEFAULT_INDEX, UV_FIND_LINKS; PIP_INDEX_URL, PIP_FIND_LINKS), or copy the data directory from another machine"
    )


def find_installer(environment: Mapping[str, str]) -> list[str]:
    """Return the start of an `install` command of this environment: its pip, else uv, which `make` uses.

    Raises:
        ServiceError: neither is installed.
    """
    # `importlib.util.find_spec` would ask setuptools' hook as well, which then breaks every later import of setuptools (Python 3.11).
    if PathFinder.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
    return [find_uv(environment), "pip", "install", "--python", sys.executable]


def find_uv(environment: Mapping[str, str]) -> str:
    """Return the path of uv: from the variable `UV`, from the PATH, or from a checkout, where `make` installs it.

    Raises:
        ServiceError: uv is not installed.
    """
    beside = Path(sys.prefix).resolve().parent / ".uv" / "bin"
    uv = environment.get("UV") or shutil.which("uv", path=environment.get("PATH")) or shutil.which("uv", path=str(beside))
    if uv is None:
        raise ServiceError("packages cannot be fetched: uv is not on the PATH; pip install uv")
    return uv


def with_uv_names(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that also hold pip's settings under uv's names; uv's own settings win. Paths of wheel folders become absolute."""
    renamed = {new: separator.join(environment[old].split()) for old, (new, separator) in FROM_PIP.items() if environment.get(old)}
    named = {**renamed, **environment}
    for name, separator in (("PIP_FIND_LINKS", " "), ("UV_FIND_LINKS", ",")):
        if name in named:
            links = named[name].split(separator)
            named[name] = separator.join(str(Path(link).absolute()) if Path(link).exists() else link for link in links)
    return named
