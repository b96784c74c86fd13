"""Target files: a user's description of the machine that a bundle is for.

    python 3.12 manylinux_2_28_x86_64
    torch==2.11.0
    numpy==2.5.2

The first line names the Python version and, unless it is the default, the newest platform tag that the machine takes. The rest is the
output of `pip freeze` there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from slmsearch.config import PolicyConfig, TrainConfig
from slmsearch.errors import ConfigError

DEFAULT_PLATFORM = "manylinux_2_28_x86_64"
OLDEST_GLIBC = 5
"""Minor version of the oldest glibc 2 that wheels name; `manylinux1`, `2010` and `2014` stand for 2.5, 2.12 and 2.17."""
_FIRST = re.compile(r"python[ \t]+(3\.\d+)(?:[ \t]+(\S+))?")
_PLATFORM = re.compile(r"manylinux_2_(\d+)_(x86_64|aarch64)")
_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)[ \t]*(?:===?[ \t]*([^\s;]+)|@[ \t]*\S.*)")
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


@dataclass(frozen=True, slots=True)
class Target:
    """Machine that a bundle is for."""

    python: str
    """Minor version, such as `3.12`."""
    glibc: int
    """Minor version of its glibc 2."""
    processor: str
    """`x86_64` or `aarch64`."""
    installed: Mapping[str, str]
    """Versions installed there, by normalised name; packages without a version in the freeze are left out."""

    @property
    def platforms(self) -> list[str]:
        """Platform tags of the wheels that the machine takes, the newest first."""
        tags = [f"manylinux_2_{minor}_{self.processor}" for minor in range(self.glibc, OLDEST_GLIBC - 1, -1)]
        tags += [f"{name}_{self.processor}" for minor, name in sorted(_LEGACY.items(), reverse=True) if minor <= self.glibc]
        return [*tags, f"linux_{self.processor}"]


def require_extras(target: Target, policy: PolicyConfig, train: TrainConfig) -> None:
    """Check that the packages are there which settings need and no bundle carries.

    Raises:
        ConfigError: one is not among those that the target lists with a version.
    """
    needs = {"bitsandbytes": ("policy.load_in_4bit", policy.load_in_4bit), "vllm": ("train.vllm.mode", train.vllm.mode != "off")}
    for package, (setting, needed) in needs.items():
        if needed and package not in target.installed:
            raise ConfigError(
                f"{setting} needs {package}, which the target does not list as {package}==VERSION: install it there, or unset it"
            )


def parse_target(text: str) -> Target:
    """Parse a target file.

    Raises:
        ConfigError: its first line does not name a Python and a platform, another line is not one of `pip freeze`, or torch is missing.
    """
    first, *rest = text.removeprefix("\ufeff").splitlines() or [""]
    found = _FIRST.fullmatch(first.strip())
    platform = _PLATFORM.fullmatch((found and found[2]) or DEFAULT_PLATFORM)
    if not found or not platform:
        raise ConfigError(
            f"line 1 of the target is {first[:80]!r}; it names a Python version and perhaps a platform: `python 3.12 {DEFAULT_PLATFORM}`"
        )
    installed: dict[str, str] = {}
    names = set[str]()
    for number, line in enumerate(rest, 2):
        line = line.strip()
        if not line or line.startswith(("#", "-")):  # comments, editable installations, options
            continue
        pin = _PIN.fullmatch(line)
        if not pin:
            raise ConfigError(f"line {number} of the target is {line[:80]!r}, not one of `pip freeze` (`name==version`)")
        names.add(name := canonicalize_name(pin[1]))
        try:
            if pin[2]:
                Version(pin[2])
                installed[name] = pin[2]
        except InvalidVersion as error:
            raise ConfigError(f"line {number} of the target is {line[:80]!r}: {pin[2]!r} is no version of a Python package") from error
    if "torch" not in names:
        raise ConfigError("the target has no torch, and a bundle never carries it: install torch on that machine, then freeze again")
    return Target(found[1], int(platform[1]), platform[2], installed)
