"""Wheels that a target machine lacks: resolved by uv, downloaded by pip, without torch.

A package installed there is used if its version fits; otherwise the bundle carries another version, which comes first on the target's path.
Other packages are carried in the version of this environment, which has been tested.
"""

import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name
from packaging.version import Version

from slmsearch.artifacts.packages import find_uv, with_uv_names
from slmsearch.bundle.target import Target
from slmsearch.errors import ServiceError
from slmsearch.package_data import CHECKOUT

DISTRIBUTION = "slmsearch"
NEVER_CARRIED = ("torch",)
"""Packages that are left out, with dependencies of torch alone: a build for a card weighs gigabytes and has to fit the driver."""

INSTALLER = "pip"
"""Package that is always carried: it installs the others."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Versions resolved for a target."""

    carried: Mapping[str, str]
    """Versions to carry, by name."""
    used: Mapping[str, str]
    """Versions that are installed there and fit."""
    shadowed: Mapping[str, str]
    """Versions that are installed there and do not fit: another one is carried."""
    pins: str
    """Requirements of the carried packages, with hashes."""


def build_own_wheel(folder: Path, environment: Mapping[str, str]) -> Path:
    """Write the wheel of this product into a folder: built from a checkout, else repacked from the installed files.

    Raises:
        ServiceError: the build failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if CHECKOUT is None:
        return _repack(folder)
    command = [find_uv(environment), "build", "--quiet", "--wheel", "--no-config", "--out-dir", str(folder), str(CHECKOUT)]
    _run(command, environment, f"build that of {DISTRIBUTION}")
    (wheel,) = folder.glob(f"{DISTRIBUTION}-*.whl")
    return wheel


def _repack(folder: Path) -> Path:
    """Repack the files of the installed wheel; the installer generates scripts again."""
    found = distribution(DISTRIBUTION)
    path = folder / f"{DISTRIBUTION}-{found.version}-py3-none-any.whl"
    kept = [file for file in found.files or () if ".." not in file.parts and file.suffix != ".pyc" and file.name not in _LOCAL]
    record = next(str(file) for file in kept if file.name == "RECORD")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in kept:
            if file.name != "RECORD":
                wheel.write(str(file.locate()), str(file))
        rows = [f"{file},{f'{file.hash.mode}={file.hash.value}' if file.hash else ''},{file.size or ''}" for file in kept]
        wheel.writestr(record, "\n".join(rows) + "\n")
    return path


_LOCAL = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Files that an installer writes beside a wheel's own files."""


def resolve(own_wheel: Path, target: Target, environment: Mapping[str, str]) -> Resolution:
    """Resolve the packages that the target needs for this product.

    Raises:
        ServiceError: no versions fit together there, or the registry does not answer.
    """
    installed = {name: version for name, version in target.installed.items() if name != INSTALLER}
    preferred = {**_installed_here(), **installed}
    with TemporaryDirectory(prefix="slmsearch-bundle-") as name:
        folder = Path(name)
        pins, overrides = folder / "pins.txt", folder / "overrides.txt"
        (folder / "wanted.in").write_text(f"{DISTRIBUTION} @ {own_wheel.resolve().as_uri()}\n{INSTALLER}\n", encoding="utf-8")
        # uv prefers the versions of an earlier output where they fit.
        pins.write_text("".join(f"{name}=={Version(version).public}\n" for name, version in preferred.items()), encoding="utf-8")
        overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in NEVER_CARRIED), encoding="utf-8")
        command = [find_uv(environment), "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate", "--generate-hashes"]
        command += ["--only-binary", ":all:", "--python-version", target.python, "--python-platform", _uv_platform(target)]
        command += ["--override", str(overrides), "--no-emit-package", DISTRIBUTION, "-o", str(pins), str(folder / "wanted.in")]
        _run(command, environment, f"resolve for Python {target.python} on {target.platforms[0]}")
        return sort_pins(pins.read_text(encoding="utf-8"), installed)


def sort_pins(text: str, installed: Mapping[str, str]) -> Resolution:
    """Separate packages to carry from installed ones, in requirements with hashes as uv writes them."""
    kept: list[str] = []
    carried, used = dict[str, str](), dict[str, str]()
    for block in text.replace("\\\n", " ").splitlines():
        requirement = block.split(" ")[0].partition(";")[0]
        name, _, number = requirement.partition("==")
        if not number:
            continue
        name = canonicalize_name(name)
        if (there := installed.get(name)) is not None and Version(there).public == Version(number).public:
            used[name] = there
        else:
            carried[name] = number
            kept.append(block)
    shadowed = {name: installed[name] for name in carried if name in installed}
    return Resolution(carried, used, shadowed, "".join(f"{block}\n" for block in kept))


def download(resolution: Resolution, target: Target, folder: Path, environment: Mapping[str, str]) -> list[Path]:
    """Download the wheels of a resolution into a folder, each with a recorded hash.

    Raises:
        ServiceError: a wheel cannot be fetched, or none exists for the target.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="slmsearch-bundle-") as name:
        pins = Path(name) / "pins.txt"
        pins.write_text(resolution.pins, encoding="utf-8")
        download_pins(pins, target, folder, environment)
    wheels = sorted(folder.glob("*.whl"))
    missing = set(resolution.carried) - {canonicalize_name(wheel.name.partition("-")[0]) for wheel in wheels}
    if missing:
        raise ServiceError(f"no wheel of {', '.join(sorted(missing))} was downloaded; try again, or with another mirror")
    return wheels


def download_pins(pins: Path, target: Target, folder: Path, environment: Mapping[str, str]) -> None:
    """Download the wheels in a file of requirements with hashes, for the target's platforms.

    Raises:
        ServiceError: a wheel cannot be fetched, or has another hash.
    """
    platforms = [word for tag in target.platforms for word in ("--platform", tag)]
    command = [find_uv(environment), "tool", "run", "--quiet", "--no-config", "--python", sys.executable, "pip", "download", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check", "--implementation", "cp"]
    command += ["--python-version", target.python, *platforms, "--dest", str(folder), "--requirement", str(pins)]
    _run(command, environment, "download")


def _uv_platform(target: Target) -> str:
    return f"{target.processor}-manylinux_2_{target.glibc}"


def _installed_here() -> dict[str, str]:
    found = {canonicalize_name(one.metadata["Name"]): one.version for one in distributions() if one.metadata["Name"]}
    return {name: version for name, version in found.items() if name != DISTRIBUTION}


def _run(command: Sequence[str], environment: Mapping[str, str], what: str) -> None:
    """Run a command of uv outside any `[tool.uv]`; raise a one-line reason if it fails."""
    with TemporaryDirectory(prefix="slmsearch-bundle-") as neutral:
        ended = subprocess.run(command, capture_output=True, text=True, cwd=neutral, env=with_uv_names(environment), check=False)
    if ended.returncode:
        said = [line.strip() for line in f"{ended.stderr}\n{ended.stdout}".splitlines() if line.strip()]
        told = [line for line in said if not line.lower().startswith(("warning", "hint"))] or said or ["no reason given"]
        raise ServiceError(f"wheels of the bundle: cannot {what} ({' '.join(told)[:400]}); go online, or name a mirror (UV_DEFAULT_INDEX)")
