"""Contents of a bundle, derived from a run's settings: files to carry, and the settings for the other machine.

A bundle carries the files that settings name. Models and texts that come in packages are carried as those packages, pinned by hash.
Resources on the Hub cannot be fetched there and are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from slmsearch.config import EmbedderConfig, RunConfig
from slmsearch.corpus.packages import PACKAGE_PREFIX, find_package
from slmsearch.errors import ConfigError
from slmsearch.models.hashes import read_base
from slmsearch.models.known import KNOWN, shipped_models

INPUTS = (
    "policy.model",
    "policy.adapter",
    "corpus.pages",
    "corpus.questions",
    "sft.beside.pages",
    "sft.beside.questions",
    "planner.problems",
    "planner.sft.source",
)
LISTS = ("evaluate.baselines",)
SERVED = ("http://", "https://", "openai:")
"""Prefixes of settings that name a server; the other machine may run one."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of the bundle for a run."""

    files: Mapping[str, Path]
    """Path in the folder of the run -> file here."""
    pins: tuple[str, ...]
    """Packages with data, `name==version --hash=sha256:…`."""
    settings: Mapping[str, object]
    """Settings with other values on that machine, by dotted names."""


def collect_contents(config: RunConfig) -> Contents:
    """Collect the files and packages that the resolved settings of a run name.

    Raises:
        ConfigError: a setting names a resource on the Hub, which the other machine cannot fetch, or a missing file; the environment is
            one of your own, whose code no bundle carries.
        CorpusError: a package has no known texts.
    """
    if ":" in config.environment:
        raise ConfigError(f"environment {config.environment} is code of your own, which no bundle carries: install it there and train")
    files, pins, settings = dict[str, Path](), list[str](), dict[str, object]()
    embedder = config.retrieval.embedder
    packaged = embedder.base_url or embedder.model == EmbedderConfig().model
    names = INPUTS if packaged else (*INPUTS, "retrieval.embedder.model")
    for setting in names:
        value = attrgetter(setting)(config)
        if value:
            settings[setting] = _carry(setting, str(value), files, pins)
    for setting in LISTS:
        settings[setting] = [_carry(setting, str(value), files, pins) for value in attrgetter(setting)(config)]
    return Contents(files, tuple(dict.fromkeys(pins)), settings)


def _carry(setting: str, value: str, files: dict[str, Path], pins: list[str]) -> str:
    """Record the files or pins that a setting's value needs; return the value for the other machine."""
    path = Path(value)
    if base := KNOWN.get(read_base(path) or ""):
        pins += [package.pin for package in base.packages]
    if path.parent == shipped_models():
        return path.name
    if path.name in KNOWN and path.parent.name == "models":
        pins += [package.pin for package in KNOWN[path.name].packages]
        return path.name
    if value.startswith(PACKAGE_PREFIX):
        package = find_package(value)
        pins.append(f"{package.requirement} --hash=sha256:{package.sha256}")
        return value
    if path.exists():
        place = f"inputs/{setting}/{path.name}"
        if any(held == place or held.startswith(f"{place}/") for held in files):  # another one of a list has this name
            place = f"inputs/{setting}/{len(files)}/{path.name}"
        files |= {f"{place}{inner}": file for inner, file in _files_below(path)}
        return place
    if path.is_absolute():
        raise ConfigError(f"{setting} names {value}, which does not exist here; the bundle has to carry it")
    if "/" in value or value.startswith("hub:"):
        if value.startswith(SERVED):
            return value
        raise ConfigError(f"{setting} {value} is on the Hub, which the other machine cannot reach: download it, and give its folder")
    return value


def _files_below(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield "", path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield f"/{file.relative_to(path).as_posix()}", file
