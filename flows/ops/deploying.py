"""Deploy the entries of `deployments/prefect.yaml`, as `prefect deploy --all` does, from a process that has Prefect loaded.

The command would load everything anew, a third of the time that `slmsearch up` takes to its first run. This module reads only the part of
Prefect's format that the file needs, and refuses everything else.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from flows.runtime.servers import Say
from flows.runtime.worker_secrets import submitted
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.foreign import cause_of
from slmsearch.package_data import package_data

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.deployments.runner import RunnerDeployment

PREFECT_FILE = "deployments/prefect.yaml"
CONFIG = "config"
"""Name of the flow parameter that takes the settings."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkPool(_Strict):
    """Work pool and queue in which a deployment's runs wait."""

    name: str
    work_queue_name: str | None = None
    job_variables: dict[str, object] = {}


class CronSchedule(_Strict):
    """Schedule by which runs start."""

    cron: str
    timezone: str
    slug: str


class Described(_Strict):
    """A deployment, as the file describes it."""

    name: str
    entrypoint: str
    work_pool: WorkPool
    description: str | None = None
    parameters: dict[str, object] = {}
    schedules: tuple[CronSchedule, ...] = ()
    tags: tuple[str, ...] = ()
    concurrency_limit: int | None = None


class PrefectFile(_Strict):
    """Contents of the file."""

    name: str
    deployments: tuple[Described, ...]


def read_prefect_file(path: Path) -> PrefectFile:
    """Read the descriptions.

    Raises:
        ConfigError: the file is missing, no YAML, or has a key that this module does not read.
    """
    try:
        return PrefectFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read ({cause_of(error)}); install slmsearch again") from error
    except ValidationError as error:
        first = error.errors()[0]
        remedy = f"leave it out, or deploy with: prefect --no-prompt deploy --all --prefect-file {path}"
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; {remedy}") from error


def deploy_flows(config: RunConfig, base: Path, say: Say) -> None:
    """Create the deployments or renew them after the file, make this config their default, and create the alarms about nights.

    Args:
        config: settings that flow runs have unless they are given others.
        base: folder in which flow runs work; relative paths and `.env` belong to it.
        say: receives a line about the step.

    Raises:
        ConfigError: the file that describes the deployments cannot be used.
    """
    from prefect.client.orchestration import get_client

    from flows.nightly import webhook
    from flows.runtime.automations import create_alarms, expect_nights

    say(f"deploying {PREFECT_FILE}")
    with get_client(sync_client=True) as client:
        create_alarms(client, webhook(config.nightly))
        settings = submitted(config)
        for described in read_prefect_file(package_data(PREFECT_FILE)).deployments:
            apply_deployment(_as_deployment(described, base, settings), client)
    expect_nights(config.tracking.registered_model)


def apply_deployment(deployment: "RunnerDeployment", client: "SyncPrefectClient") -> None:
    """Create a deployment, or renew one: schedules, a pause and parameters other than the settings are people's then, and stay."""
    from prefect.exceptions import ObjectNotFound

    try:
        known = client.read_deployment_by_name(deployment.full_name)
    except ObjectNotFound:
        deployment.apply()
        return
    deployment.parameters = {**deployment.parameters, **{name: value for name, value in known.parameters.items() if name != CONFIG}}
    deployment.schedules = []
    deployment.model_fields_set.difference_update(("schedules", "paused"))  # only what is set is sent
    deployment.apply()


def _as_deployment(described: Described, base: Path, config: dict[str, object]) -> "RunnerDeployment":
    from prefect.deployments.runner import RunnerDeployment
    from prefect.runner.storage import LocalStorage
    from prefect.schedules import Cron

    module, _, function = described.entrypoint.rpartition(".")
    flow = getattr(importlib.import_module(module), function)
    deployment = RunnerDeployment.from_flow(
        flow,
        described.name,
        description=described.description,
        parameters={**described.parameters, **({CONFIG: config} if CONFIG in described.parameters else {})},
        schedules=[Cron(item.cron, timezone=item.timezone, slug=item.slug) for item in described.schedules],
        tags=list(described.tags),
        concurrency_limit=described.concurrency_limit,
        work_pool_name=described.work_pool.name,
        work_queue_name=described.work_pool.work_queue_name,
        job_variables=dict(described.work_pool.job_variables),
    )
    deployment.entrypoint = described.entrypoint
    deployment.storage = LocalStorage(str(base))
    return deployment
