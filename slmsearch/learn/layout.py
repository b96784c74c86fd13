"""A finished run laid out as one directory: adapter, tokenizer, settings, checkpoints. Weights are linked, not copied."""

import json
import os
import shutil
from pathlib import Path

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.artifacts.files import replace_json
from slmsearch.config.secrets import split_secrets
from slmsearch.generate.load import set_template_kwargs
from slmsearch.learn.files import ADAPTER, CHECKPOINTS, MANIFEST
from slmsearch.learn.job import TrainJob
from slmsearch.models.known import split_commit

TRAINING_CONFIG = "training_config.json"


def lay_out(job: TrainJob, out: Path) -> Path:
    """Lay a finished training run out.

    Args:
        job: a job that has been trained.
        out: directory, replaced as a whole.

    Returns:
        `out`, with `adapter_config.json`, `adapter_model.safetensors`, tokenizer files, `training_config.json`, `checkpoint-*`.
    """
    from transformers import AutoTokenizer

    policy = job.config.policy
    model, revision = split_commit(policy.model)
    tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
    plain, _ = split_secrets(job.config)
    del plain["paths"]  # of this machine, and the directory is made to be sent
    manifest = json.loads((job.directory / MANIFEST).read_text(encoding="utf-8"))
    with replaced_directory(out) as staging:
        set_template_kwargs(tokenizer, policy.chat_template_kwargs).save_pretrained(staging)
        for source in [*(job.directory / ADAPTER).iterdir(), *(job.directory / CHECKPOINTS).glob("checkpoint-*")]:
            _link(source, staging / source.name)
        replace_json(staging / TRAINING_CONFIG, {"config": plain, "run": manifest})
    return out


def _link(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir()
        for child in source.iterdir():
            _link(child, target / child.name)
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
