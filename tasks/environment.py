"""What a run was computed with: packages and code, recorded beside its settings. Imports no Prefect, which must not come too early."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import slmsearch
from slmsearch.keys import file_key

PACKAGES = (
    "accelerate", "chromadb", "datasets", "great-expectations", "mlflow", "numpy", "peft", "prefect", "safetensors",
    "sentence-transformers", "slmsearch", "tokenizers", "torch", "transformers", "trl",
)  # fmt: skip


def describe_environment() -> dict[str, Any]:
    """Return versions of Python and of the packages that decide results, and a digest of the code of each room."""
    rooms = sorted(path.name for path in Path(slmsearch.__file__).parent.iterdir() if (path / "__init__.py").is_file())
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "code": {room: code_digest(room) for room in rooms},
    }


@cache
def installed(package: str) -> str | None:
    """Return the version of an installed package, None if it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def code_digest(*rooms: str) -> str:
    """Hash the source of rooms of `slmsearch`, and of what all of them use."""
    root = Path(slmsearch.__file__).parent
    files = [*root.glob("*.py"), *(path for room in rooms for path in (root / room).rglob("*") if path.suffix in {".py", ".txt"})]
    return file_key(*sorted(files))
