"""Packages and code of a run, recorded beside its settings. This module does not import Prefect, which must not load too early."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import slmsearch
from slmsearch.keys import file_key

PACKAGES = (
    "accelerate", "chromadb", "datasets", "great-expectations", "mlflow", "numpy", "peft", "prefect", "safetensors",
    "sentence-transformers", "slmsearch", "tokenizers", "torch", "transformers", "trl",
)  # fmt: skip


def describe_environment() -> dict[str, object]:
    """Return versions of Python and of the packages that determine results, and a digest of the code of each package."""
    packages = sorted(path.name for path in Path(slmsearch.__file__).parent.iterdir() if (path / "__init__.py").is_file())
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "code": {package: code_digest(package) for package in packages},
    }


@cache
def installed(package: str) -> str | None:
    """Return the version of an installed package, None if it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def code_digest(*packages: str) -> str:
    """Hash the source of packages of `slmsearch`, and of the modules that all of them use."""
    root = Path(slmsearch.__file__).parent
    files = [*root.glob("*.py"), *(path for package in packages for path in (root / package).rglob("*") if path.suffix in {".py", ".txt"})]
    return file_key(*sorted(files))
