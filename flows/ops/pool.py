"""The work pool: what kind of worker runs flows, and how."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slmsearch.errors import ConfigError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POOL = "gpu"
"""Its name."""


@dataclass(frozen=True)
class Pool:
    """How a pool is made where there is none."""

    type: str = "process"
    template: dict[str, Any] | None = None
    """Its base job template; None takes that of Prefect."""


PROCESSES = Pool()


def read_template(path: Path) -> dict[str, Any]:
    """Read a base job template.

    Raises:
        ConfigError: it is no JSON object with the two parts that Prefect asks for.
    """
    try:
        template = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the base job template {path} cannot be read ({error}); give a JSON file") from error
    if not isinstance(template, dict) or not {"job_configuration", "variables"} <= template.keys():
        raise ConfigError(f"the base job template {path} needs `job_configuration` and `variables`; see deployments/kubernetes/")
    return template


def create_pool(client: "SyncPrefectClient", pool: Pool) -> None:
    """Make the pool; one that is there keeps its type, and takes the template where one is given.

    Raises:
        ConfigError: it is there and of another type.
    """
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    try:
        client.create_work_pool(WorkPoolCreate(name=POOL, type=pool.type, base_job_template=pool.template or {}))
    except ObjectAlreadyExists:
        there = client.read_work_pool(POOL).type
        if there != pool.type:
            raise ConfigError(
                f"the work pool {POOL!r} is of type {there}, not {pool.type}; choose that, or remove it: prefect work-pool delete {POOL}"
            ) from None
        if pool.template is not None:
            client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=pool.template))
