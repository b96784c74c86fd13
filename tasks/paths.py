"""Where a run's artefacts lie under the data directory, and which index version is whose. Knows no tracker and no flow."""

import re
from pathlib import Path

from slmsearch.config import RunConfig

NIGHTS = "nights"
"""Folder in `paths.mlruns_dir`, one folder in it for each registered model."""


def corpora_dir(config: RunConfig) -> Path:
    """Return the parent of materialised corpora."""
    return Path(config.paths.data_dir) / "corpora"


def index_dir(config: RunConfig) -> Path:
    """Return the parent of index versions."""
    return Path(config.paths.data_dir) / "index"


def evals_dir(config: RunConfig) -> Path:
    """Return the parent of stored evaluations."""
    return Path(config.paths.data_dir) / "evals"


def trainings_dir(config: RunConfig) -> Path:
    """Return the parent of training runs, SFT controls and supervised starts."""
    return Path(config.paths.data_dir) / "training"


def training_dir(config: RunConfig, key: str) -> Path:
    """Return where a training run of a key lies."""
    return trainings_dir(config) / key


def control_dir(config: RunConfig, key: str) -> Path:
    """Return where the SFT control of a key lies."""
    return training_dir(config, f"control-{key}")


def latest_name(environment: str) -> str:
    """Name the file in `paths.mlruns_dir` that holds the summary of the last finished training of an environment."""
    return "latest.json" if environment == "searcher" else f"latest-{environment}.json"


def nights_dir(config: RunConfig) -> Path:
    """Return where the records of a model's nights lie."""
    return Path(config.paths.mlruns_dir) / NIGHTS / re.sub(r"[^\w.-]+", "-", config.tracking.registered_model)


def serve_dir(config: RunConfig) -> Path:
    """Return where states and logs of model servers lie."""
    return Path(config.paths.data_dir) / "serve"


def shared_models_dir(config: RunConfig) -> Path:
    """Return the parent of models and adapters fetched from shared storage, each named by its hash."""
    return Path(config.paths.data_dir) / "shared-models"
