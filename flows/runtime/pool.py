"""The work pool: its name, its type and its base job template."""

import json
from collections.abc import Mapping
from pathlib import Path

from slmsearch.config import TrainConfig
from slmsearch.errors import ConfigError

POOL = "gpu"
"""Name of the pool."""


def read_template(path: Path) -> dict[str, object]:
    """Read a base job template.

    Raises:
        ConfigError: it is no JSON object with the two parts that Prefect requires.
    """
    try:
        template: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the base job template {path} cannot be read ({error}); give a JSON file") from error
    if not isinstance(template, dict) or not {"job_configuration", "variables"} <= template.keys():
        raise ConfigError(f"the base job template {path} needs `job_configuration` and `variables`; see deployments/kubernetes/")
    return template


def prepare_pool(train: TrainConfig, pool_type: str = "process", template: Mapping[str, object] | None = None) -> None:
    """Create the pool of a worker and the limits of devices.

    Args:
        train: settings with the number of devices.
        pool_type: kind of worker that runs flows.
        template: base job template; None takes that of Prefect, or that of an existing pool.

    Raises:
        ConfigError: the pool exists with another type.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    from flows.runtime.device import create_limits, device_names

    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(WorkPoolCreate(name=POOL, type=pool_type, base_job_template=dict(template or {})))
        except ObjectAlreadyExists:
            there = client.read_work_pool(POOL).type
            if there != pool_type:
                remedy = f"choose that, or remove it: prefect work-pool delete {POOL}"
                raise ConfigError(f"the work pool {POOL!r} is of type {there}, not {pool_type}; {remedy}") from None
            if template is not None:
                client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=dict(template)))
        create_limits(client, device_names(train))
