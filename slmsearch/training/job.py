"""A training job, as data that one process writes and another reads, and the manifest of a finished one. Imports little.

Secrets never reach the file: `TrainJob.to_json` leaves them out, and `launch.py` passes them separately.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from pydantic import TypeAdapter

from slmsearch.artifacts.directories import find_damage, hash_files, seal
from slmsearch.artifacts.files import file_hash, read_json, replace_json
from slmsearch.config import ControlConfig, LoraSection, PolicyConfig, RunConfig, SftConfig
from slmsearch.config.secrets import put_secrets, split_secrets
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.keys import content_key
from slmsearch.models.hashes import model_hash, weights_file
from slmsearch.training.files import ACCELERATE, ADAPTER, CHECKPOINTS, ERROR, LOCK, LOG, MANIFEST, STOP
from slmsearch.training.phase_timer import CardUse

TRAINING_VERSION = 12
"""Part of every train key; raise it when the code changes what a training run computes."""

START_VERSION = 10
"""Part of the key of every supervised start; raise it likewise."""

CONTROL_VERSION = 12
"""Part of the key of every control; raise it likewise."""

PACKAGES = ("torch", "transformers", "trl", "peft")
"""Packages whose versions are part of every train key."""
SAME_RESULTS: Mapping[str, Mapping[str, str]] = {"transformers": {"5.24.0": "5.23.0"}}
"""Package -> version -> the earlier version that trains the same adapters, by which keys name it, so that nothing is trained again without
need. Measured byte by byte in both environments (docs/operations.md says by what); a version that was not measured has its own name."""

UNSEALED = (CHECKPOINTS, LOCK, LOG, ERROR, STOP, ACCELERATE)
"""Files that may change, grow or be deleted after training."""

_NOT_TRAINED_ON = {"preflight", "twins_frac"}
"""Settings of a training run that do not change its adapter, or are among the parts of its environment."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """All inputs of a training process."""

    directory: Path
    """Directory of adapter, checkpoints and reports: `<data_dir>/training/<train_key>`."""
    corpora_dir: Path
    corpus_digest: str
    index_dir: Path
    index_key: str
    train_key: str
    config: RunConfig

    def to_json(self) -> str:
        """Write the job, without secrets."""
        plain, _ = split_secrets(self.config)
        fields = {name: str(getattr(self, name)) for name in self.__slots__ if name != "config"}
        return json.dumps({**fields, "config": plain}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, secrets: dict[str, str] | None = None) -> "TrainJob":
        """Read a job and put the secrets (dotted path to value) back into its config."""
        fields = json.loads(text)
        put_secrets(fields["config"], secrets or {})
        return TypeAdapter(cls).validate_python(fields)


def make_job(config: RunConfig, corpus_digest: str, index_key: str) -> TrainJob:
    """Make the job of a run: its train key and the directories under `paths.data_dir`."""
    key, paths = train_key(config, corpus_digest, index_key), config.paths
    return TrainJob(paths.training / key, paths.corpora, corpus_digest, paths.index, index_key, key, config)


def train_key(config: RunConfig, corpus_digest: str, index_key: str) -> str:
    """Hash everything that decides the result of a training run, except the machine."""
    return content_key(**train_sources(config, corpus_digest, index_key))


def train_sources(config: RunConfig, corpus_digest: str, index_key: str) -> dict[str, object]:
    """Collect everything that decides the result of a training run, except the machine."""
    policy, environment = config.policy, environment_of(config)
    return {
        "version": TRAINING_VERSION,
        "packages": deciding_versions(),
        "corpus": corpus_digest,
        "policy": {
            "model": model_hash(policy.model),
            "adapter": model_hash(policy.adapter) if policy.adapter else "",
            "dtype": _dtype_of(policy),
            **_template_part(policy),
        },
        # Where held-out questions are scored at each checkpoint, the best of these weights are published.
        "train": config.train.key_parts(exclude=_NOT_TRAINED_ON | (set() if config.train.monitor.held_out else {"checkpoint_steps"})),
        **environment.teaching(config).train_parts(),
        environment.name: environment.key_parts(index_key),
    }


def deciding_versions() -> dict[str, str]:
    """Return the versions of the installed packages that decide what a training computes."""
    installed = {name: version(name) for name in PACKAGES}
    return {name: SAME_RESULTS.get(name, {}).get(found, found) for name, found in installed.items()}


def start_key(config: RunConfig, digest: str) -> str | None:
    """Name the supervised start of a run by its inputs, None where it has none; no heavy package is imported."""
    parts = environment_of(config).teaching(config).start_parts(digest)
    if parts is None:
        return None
    return content_key(
        version=START_VERSION,
        model=model_hash(config.policy.model),
        sft=config.sft.key_parts(),
        **_lora_part(config.policy, config.train.lora if config.sft.lora else None),
        **({"adapter": model_hash(config.policy.adapter)} if config.policy.adapter else {}),
        **_template_part(config.policy),
        **parts,
    )


def control_key(config: RunConfig, model_key: str, train_key: str) -> str:
    """Name the control of a run by its inputs.

    They include the training if its time decides the control's steps, or if the control's examples are of the corpus.
    """
    return content_key(
        version=CONTROL_VERSION,
        model=model_key,
        sft=control_settings(config.control, config.sft).key_parts(),
        **_lora_part(config.policy, config.train.lora if config.sft.lora else None),
        **({"adapter": model_hash(config.policy.adapter)} if config.policy.adapter else {}),
        **_template_part(config.policy),
        top_k=config.retrieval.top_k,
        searcher=config.searcher.model_dump(include={"max_episode_tokens", "max_turn_tokens", "missing_names", "tool_role"}),
        prompt=[dict(message) for message in make_prompt("?", config.searcher)],
        **({} if config.control.steps and config.sft.start == "none" else {"train_key": train_key}),
    )


def control_settings(control: ControlConfig, sft: SftConfig) -> SftConfig:
    """Return the settings of the control, with one step where the number of steps is to be measured.

    Its stream of worlds is not the one the checkpoint saw. Its learning rate is a third of that of the checkpoint's own training, which
    the cosine schedule had brought to 0.
    """
    changes = {"steps": control.steps or 1, "learning_rate": sft.learning_rate / 3, "seed": sft.seed + 100}
    return sft.model_copy(update=changes)


def _dtype_of(policy: PolicyConfig) -> str:
    return "nf4" if policy.load_in_4bit else policy.dtype


def _lora_part(policy: PolicyConfig, lora: LoraSection | None) -> dict[str, object]:
    """Return what decides a supervised training of adapters beside its examples: their size, and the numbers of the base."""
    return {"lora": lora.key_parts(), "dtype": _dtype_of(policy)} if lora else {"lora": None}


def _template_part(policy: PolicyConfig) -> dict[str, object]:
    return {"chat_template_kwargs": policy.chat_template_kwargs} if policy.chat_template_kwargs else {}


class JobManifest(TypedDict):
    """Record that a training run is finished, and of its results."""

    adapter_hash: str
    """sha256 of the weights."""
    adapter_files: dict[str, str]
    """sha256 of each file; old manifests have none."""
    steps: int
    seconds: float
    """Time spent in steps over all attempts, in seconds, loading included for the last one."""
    spent: dict[str, float]
    """Seconds of the last attempt by purpose, as `phase_timer.py` names them."""
    card: NotRequired[dict[str, CardUse]]
    """Use of a CUDA card by phase, where there was one."""
    resumed_from: int
    """Step from which the last attempt continued; 0: from the beginning."""
    train_key: str
    corpus_digest: str
    index_key: str
    base_model: str


def write_manifest(
    job: TrainJob, steps: int, seconds: float, resumed_from: int, phase_seconds: dict[str, float], card: dict[str, CardUse] | None = None
) -> None:
    """Write the manifest of a finished training."""
    adapter = job.directory / ADAPTER
    facts: JobManifest = {
        "adapter_hash": file_hash(weights_file(adapter)),
        "adapter_files": hash_files(adapter),
        "steps": steps,
        "seconds": round(seconds, 1),
        "spent": phase_seconds,
        "resumed_from": resumed_from,
        "train_key": job.train_key,
        "corpus_digest": job.corpus_digest,
        "index_key": job.index_key,
        "base_model": job.config.policy.model,
    }
    if card:
        facts["card"] = card
    replace_json(job.directory / MANIFEST, facts)
    seal(job.directory, UNSEALED)


def read_manifest(directory: Path) -> JobManifest | None:
    """Return the manifest of a finished training run; None if the run is unfinished or a file of its adapter differs from the manifest."""
    adapter, manifest = directory / ADAPTER, cast(JobManifest, read_json(directory / MANIFEST))
    try:
        files = manifest.get("adapter_files") or {weights_file(adapter).name: manifest["adapter_hash"]}
        return manifest if find_damage(adapter, files) is None and files[weights_file(adapter).name] == manifest["adapter_hash"] else None
    except (KeyError, TypeError, AttributeError):
        return None
