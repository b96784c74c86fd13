"""Steps of the recorded build, run by its own modules: one for each line of stdin, its times as JSON on stdout.

Arguments: the shape, and changes to its preset as JSON. It runs in the build's folder and imports nothing of today's.
"""

import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def main(shape: str, settings: dict[str, object]) -> None:
    """Load the shape and take a step for each line."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # others print, too
    rollout, shapes = import_module("slmsearch.bench.rollout"), import_module("slmsearch.bench.shapes")
    with TemporaryDirectory(prefix="slmsearch-recorded-") as folder:
        if shape == "long":
            made = shapes.long_shape(Path(folder) / "long")
        elif shape == "demo":
            made = shapes.demo_shape(load([], settings))
        else:
            config = load([Path("deployments/configs/squad.yaml")], settings)
            indexed = import_module("slmsearch.environments.indexed_corpus").open_indexed_corpus(config)
            questions = import_module("slmsearch.environments.environment").select_questions(indexed.questions["train"], 0)
            made = shapes.Shape("real", config, questions, indexed.toolbox, 0)
        still = {"train.steps": 1, "train.learning_rate": rollout.NO_LEARNING, "policy.device": "cpu"}
        watch = rollout.Stopwatch()
        trainer, _ = rollout.make_ours(replace(made, config=made.config.changed(still)), Path(folder), watch)
        for _ in sys.stdin:
            print(json.dumps(watch.take_step(trainer)), file=told, flush=True)


def load(files: list[Path], settings: dict[str, object]) -> Any:
    """Return the build's settings, with its own folder for data."""
    found = import_module("flows.cli.settings")
    return found.resolve_paths(found.load_config(files, environment={}), Path.cwd()).changed(settings)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
