"""Runs of whole flows on random inputs, and what went into each."""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runtime.settings import recordable
from slmsearch.config import RunConfig
from tasks.tracking import open_run_registry
from tests.flows.fakes import write_corpus
from tests.flows.plain import small_run


@dataclass
class Made:
    """One run, and what went into it."""

    config: RunConfig
    result: dict[str, Any]
    lineage: dict[str, str]
    version: str
    adapter: Path


def make_one(home: Path, empty_store: Path, number: int, rng: random.Random, training: Any) -> Made:
    """Train on a corpus, an index, a base model and settings drawn at random."""
    from flows.train import train, train_and_eval

    def reword(questions: list[dict[str, Any]]) -> None:
        questions[0]["question"] += "?" * which

    which, base = rng.randrange(4), rng.randrange(3)
    sections = {"retrieval": {"max_passage_chars": rng.choice([300, 400])}, "train": {"seed": number, "learning_rate": rng.random()}}
    config = small_run(home, empty_store, **sections)
    corpus = write_corpus(home / f"corpus-{which}", reword)
    model = home / f"model-{base}"
    shutil.copytree(home / "model", model, dirs_exist_ok=True)
    (model / "model.safetensors").write_bytes(b"weights %d" % base)
    config = RunConfig.model_validate({**recordable(config), "corpus": corpus, "policy": {"model": str(model)}})
    training.content = f"adapter {number}".encode()
    result = (train_and_eval if number % 10 == 0 else train).fn(config)
    registry = open_run_registry(config.paths, config.tracking)
    assert registry is not None
    version = registry.versions()[0]
    lineage = {name.removeprefix("slmsearch."): value for name, value in version.tags.items()}
    return Made(config, result, lineage, version.label, config.paths.training / lineage["train_key"] / "adapter")
