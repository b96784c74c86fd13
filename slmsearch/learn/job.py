"""A training job, as data that one process writes and another reads.

Secrets never reach the file: `TrainJob.to_json` leaves them out, and `launch.py` hands them over apart.
"""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.config.secrets import join_secrets, split_secrets
from slmsearch.environments.registry import environment_of
from slmsearch.keys import content_key
from slmsearch.learn.models import model_hash

TRAINING_VERSION = 3
"""Part of every train key; raise it when the code changes what a training run computes."""

START_VERSION = 2
"""The same for the supervised start of a run."""

PACKAGES = ("torch", "transformers", "trl", "peft")
"""Their versions are part of every train key."""

_NOT_TRAINED_ON = {"checkpoint_steps", "preflight"}
"""Settings of a training run that do not change the adapter it ends with."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """Everything a training process needs."""

    directory: Path
    """Where adapter, checkpoints and reports go: `<data_dir>/training/<train_key>`."""
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
        config = join_secrets(fields.pop("config"), secrets or {})
        for name in ("directory", "corpora_dir", "index_dir"):
            fields[name] = Path(fields[name])
        return cls(**fields, config=config)


def make_job(config: RunConfig, corpus_digest: str, index_key: str) -> TrainJob:
    """Make the job of a run: its train key and the directories under `paths.data_dir`."""
    key, paths = train_key(config, corpus_digest, index_key), config.paths
    return TrainJob(paths.training / key, paths.corpora, corpus_digest, paths.index, index_key, key, config)


def train_key(config: RunConfig, corpus_digest: str, index_key: str) -> str:
    """Hash everything that decides what a training run ends with, except the machine."""
    return content_key(**train_sources(config, corpus_digest, index_key))


def train_sources(config: RunConfig, corpus_digest: str, index_key: str) -> dict[str, Any]:
    """Collect everything that decides what a training run ends with, except the machine."""
    return {
        "version": TRAINING_VERSION,
        "packages": {name: version(name) for name in PACKAGES},
        "corpus": corpus_digest,
        "policy": _policy_part(config.policy),
        "train": config.train.key_parts(exclude=_NOT_TRAINED_ON),
        **environment_of(config).train_parts(config, index_key),
    }


def start_key(config: RunConfig, digest: str) -> str | None:
    """Name the supervised start of a run by what it is made from, None where it has none; nothing heavy is loaded."""
    parts = environment_of(config).start_parts(config, digest)
    if parts is None:
        return None
    return content_key(
        version=START_VERSION,
        model=model_hash(config.policy.model),
        sft=config.sft.key_parts(),
        lora=config.train.lora.key_parts() if config.sft.lora else None,
        **({"chat_template_kwargs": config.policy.chat_template_kwargs} if config.policy.chat_template_kwargs else {}),
        **parts,
    )


def _policy_part(policy: PolicyConfig) -> dict[str, Any]:
    adapter = model_hash(policy.adapter) if policy.adapter else ""
    precision = "nf4" if policy.load_in_4bit else policy.dtype
    template = {"chat_template_kwargs": policy.chat_template_kwargs} if policy.chat_template_kwargs else {}
    return {"model": model_hash(policy.model), "adapter": adapter, "dtype": precision, **template}
