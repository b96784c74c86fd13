"""Checks of what is installed: versions that are known to break each other, and whether they are what slmsearch asks for."""

from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from flows.ops.doctor.facts import Facts, Finding, Severity


@dataclass(frozen=True, slots=True)
class BadPair:
    """Versions that do not go together."""

    package: str
    versions: str
    """Those that break."""
    beside: str
    """Package they break; empty: by themselves."""
    beside_versions: str
    severity: Severity
    why: str
    remedy: str


OLD_FASTAPI, INSTALL = "uv pip install 'fastapi<0.151'", "make install"
APART = "keep the extras `verifiers` and `gpu` in environments of their own"
BAD_PAIRS = (
    BadPair("fastapi", ">=0.155", "prefect", "<3.9", "error", "its server dies on import (argument 'min_items')", OLD_FASTAPI),
    BadPair("fastapi", ">=0.151,<0.155", "prefect", "<3.9", "warning", "Prefect's own next release shuts it out", OLD_FASTAPI),
    BadPair("prefect", "<3.8.3", "", "", "error", "it sends no password on the events websocket", "uv pip install 'prefect==3.8.8'"),
    BadPair("sqlalchemy", ">=2.1", "prefect", "<3.9", "error", "its server schedules no flow run on PostgreSQL (bulk inserts fail)",
        "uv pip install 'sqlalchemy<2.1'"),
    BadPair("prefect-great-expectations", ">=0", "great-expectations", ">=1", "warning", "it is written for Great Expectations 0",
        "uv pip uninstall prefect-great-expectations"),
    BadPair("chromadb", "<1.5", "", "", "error", "it cannot read indexes of 1.5", "uv pip install 'chromadb==1.5.9'"),
    BadPair("verifiers", ">=0", "vllm", ">=0", "warning", "one takes mcp 1, the other mcp 2", APART),
    BadPair("setuptools", ">=81", "vllm", "<0.31", "warning", "vLLM does not start with it on Python 3.12 and later",
        "uv pip install 'setuptools<81'"),
    BadPair("transformers", ">=5.24", "trl", "<1.17", "error", "TRL's experimental rollout_func is tried with 5.23 alone", INSTALL),
    BadPair("trl", ">=1.17", "", "", "error", "its experimental rollout_func is another", INSTALL),
    BadPair("mlflow", "<3.17", "", "", "error", "its store and traces are others", "uv pip install 'mlflow==3.17.2'"),
)  # fmt: skip


def check_pairs(facts: Facts) -> list[Finding]:
    """Find versions that are known to break."""
    found = []
    for pair in BAD_PAIRS:
        version = _within(facts, pair.package, pair.versions)
        beside = _within(facts, pair.beside, pair.beside_versions) if pair.beside else ""
        if version is None or beside is None:
            continue
        both = f"{pair.package} {version}" + (f" beside {pair.beside} {beside}" if pair.beside else "")
        found.append(Finding("versions", pair.severity, f"{both}: {pair.why}", pair.remedy))
    return found


def _within(facts: Facts, package: str, versions: str) -> str | None:
    installed = facts.packages.get(canonicalize_name(package))
    try:
        inside = installed is not None and SpecifierSet(versions, prereleases=True).contains(Version(installed))
    except InvalidVersion:
        return None
    return installed if inside else None


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
