"""A mirror of training curves in Weights & Biases, where one is wanted; MLflow stays the record.

What goes there: the metrics of each step, the settings of training, the names of the environment and its model. No episode, no text of a
corpus, no code, no console output. WANDB_API_KEY and WANDB_MODE (`offline` keeps everything here, for `wandb sync` later) are wandb's own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig, TrackingConfig
from slmsearch.errors import ConfigError, ServiceError
from slmsearch.foreign import cause_of

Mirror = Callable[[int, Mapping[str, float]], None]
"""Takes a step and its metrics."""

logger = logging.getLogger(__name__)


@contextmanager
def mirrored(config: RunConfig, key: str) -> Iterator[Mirror]:
    """Mirror the steps of a training run; where no project is configured nothing leaves this machine.

    A mirror that breaks while training goes on is given up with a warning: the curves are in MLflow. By the train key a resumed run goes on
    in the same place.

    Raises:
        ConfigError: a project is configured and the package is not installed.
        ServiceError: the run cannot be opened there.
    """
    if not config.tracking.wandb_project:
        yield lambda step, metrics: None
        return
    run = _open(config, key)

    def attempt(action: Callable[[], object], what: str) -> None:
        nonlocal run
        try:
            if run is not None:
                action()
        except Exception as error:
            logger.warning("Weights & Biases lost %s (%s: %s); no more is mirrored, MLflow has it all", what, type(error).__name__, error)
            run = None

    try:
        yield lambda step, metrics: attempt(lambda: run.log(dict(metrics), step=step), f"step {step}")
    finally:
        attempt(lambda: run.finish(), "the end")


def check_mirror(tracking: TrackingConfig) -> None:
    """Check that what a configured mirror needs is installed.

    Raises:
        ConfigError: it is not.
    """
    if tracking.wandb_project:
        _import()


def _import() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ConfigError("tracking.wandb_project needs wandb: uv pip install -e '.[wandb]', or unset it") from error
    return wandb


def _open(config: RunConfig, key: str) -> Any:
    wandb = _import()
    entity, _, project = (config.tracking.wandb_project or "").rpartition("/")
    folder = Path(config.paths.mlruns_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return wandb.init(
            project=project,
            entity=entity or None,  # then WANDB_ENTITY, or the account's own
            id=key,
            name=f"{config.environment}-{key}",
            resume="allow",
            job_type="train",
            dir=str(folder),
            config={"environment": config.environment, "model": config.policy.model, "train": config.train.model_dump(mode="json")},
            settings=wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_stats=True),
        )
    except wandb.Error as error:
        remedy = "set WANDB_API_KEY, or WANDB_MODE=offline, or unset tracking.wandb_project"
        raise ServiceError(f"Weights & Biases: {cause_of(error)}; {remedy}") from error
