"""Checks of what is installed: versions that are known to break each other, and whether they are what slmsearch asks for."""

import tomllib
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from flows.ops.doctor.facts import Facts, Finding

INSTALL = "make install"
BAD_PAIRS = tomllib.loads(Path(__file__).with_name("bad_pairs.toml").read_text(encoding="utf-8"))["pairs"]


def check_pairs(facts: Facts) -> list[Finding]:
    """Find versions that are known to break."""
    found = []
    for pair in BAD_PAIRS:
        both = [_within(facts, Requirement(pair[name])) for name in ("package", "beside") if name in pair]
        if None not in both:
            found.append(Finding("versions", pair["severity"], f"{' beside '.join(filter(None, both))}: {pair['why']}", pair["remedy"]))
    return found


def _within(facts: Facts, bad: Requirement) -> str | None:
    """Return name and version of a package whose installed version is a bad one."""
    installed = facts.packages.get(canonicalize_name(bad.name))
    try:
        inside = installed is not None and bad.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return None
    return f"{bad.name} {installed}" if inside else None


def check_requirements(facts: Facts) -> list[Finding]:
    """Compare what is installed with what slmsearch asks for; what only an extra asks for may be missing."""
    found = []
    for text in facts.requirements:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        installed = facts.packages.get(canonicalize_name(wanted.name))
        if installed is None:
            found.append(Finding("requirements", "error", f"{wanted.name} is not installed", INSTALL))
        elif not wanted.specifier.contains(installed, prereleases=True):
            found.append(
                Finding("requirements", "error", f"{wanted.name} {installed} is installed, {wanted.specifier} is asked for", INSTALL)
            )
    return found


def check_python(facts: Facts) -> list[Finding]:
    """Check the interpreter."""
    if (3, 11) <= facts.python < (3, 15):
        return []
    version = ".".join(map(str, facts.python))
    return [Finding("python", "error", f"Python {version} is not supported", "make clean, then make install PYTHON=/path/to/python3.11")]


def check_chroma(facts: Facts) -> list[Finding]:
    """Compare Chroma here with a server the environment names."""
    found = []
    here = facts.packages.get("chromadb", "")
    if facts.chroma_server is not None:
        address, version = facts.chroma_server
        if not version:
            found.append(Finding("chroma", "warning", f"no Chroma server answers at {address}", "start it, or unset CHROMA_SERVER_HOST"))
        elif version != here:
            message = f"the Chroma server at {address} is {version}, the client {here}: queries end in KeyError '_type'"
            found.append(Finding("chroma", "error", message, f"uv pip install 'chromadb=={version}', or update the server"))
    return found


CHECKS = (check_python, check_pairs, check_requirements, check_chroma)
