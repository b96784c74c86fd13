"""A mirror of training curves in Weights & Biases, where one is wanted; MLflow stays the record."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError

Mirror = Callable[[int, Mapping[str, float]], None]
"""Takes a step and its metrics."""


@contextmanager
def mirrored(config: RunConfig, key: str) -> Iterator[Mirror]:
    """Mirror the steps of a training run; where no project is configured nothing leaves this machine.

    Args:
        config: run.
        key: train key, by which a resumed run goes on in the same place.

    Raises:
        ConfigError: a project is configured and the package is not installed.
    """
    project = config.tracking.wandb_project
    if not project:
        yield lambda step, metrics: None
        return
    try:
        import wandb
    except ImportError as error:
        raise ConfigError("tracking.wandb_project needs wandb: uv pip install 'slmsearch[wandb]', or unset it") from error
    run = wandb.init(project=project, id=key, name=f"{config.system}-{key}", resume="allow", job_type="train")
    try:
        yield lambda step, metrics: run.log(dict(metrics), step=step)
    finally:
        run.finish()
