"""The device a stage computes on, held by one stage at a time.

Every device has a strict concurrency limit of one slot, `gpu:<host>:<index>`; a machine without a GPU has the one device 0. The
work pool itself is not limited, so a re-index or a validation need not wait for a training run.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists
from prefect.logging import get_run_logger

from flows.runtime.settings import read_environment
from slmsearch.config import TrainConfig

LEASE_SECONDS = 60.0
"""Time after which the slot of a killed holder is free again, the shortest that Prefect allows."""


def device_names(train: TrainConfig, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the devices of a run: the first of CUDA_VISIBLE_DEVICES, as many as training has processes."""
    environment = read_environment() if environment is None else environment
    visible = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    wanted = train.num_processes
    indices = visible[:wanted] if len(visible) >= wanted else [str(i) for i in range(wanted)]
    return [f"gpu:{socket.gethostname()}:{index}" for index in indices]


def create_limits(client: SyncPrefectClient, names: list[str]) -> None:
    """Create the missing limits of devices."""
    for name in names:
        try:
            client.upsert_global_concurrency_limit_by_name(name, 1)
        except ObjectAlreadyExists:  # another run was faster
            continue


@contextmanager
def device(train: TrainConfig) -> Iterator[None]:
    """Hold the devices of a run; wait for their current holder."""
    names = device_names(train)
    with get_client(sync_client=True) as client:
        create_limits(client, names)
        if any(client.read_global_concurrency_limit_by_name(name).active_slots for name in names):
            get_run_logger().info("waiting for %s: another run holds it; a killed one does so for up to a minute", ", ".join(names))
    # A hiccup of the server must not end hours of training: only the start is strict.
    done = False
    try:
        with concurrency(names, lease_duration=LEASE_SECONDS, strict=True, raise_on_lease_renewal_failure=False):
            yield
            done = True
            _wait_for_the_server()
    except httpx.HTTPError as error:
        if not done:
            raise
        get_run_logger().warning("%s could not be given back (%s): it is free again after %.0f s", ", ".join(names), error, LEASE_SECONDS)


def _wait_for_the_server() -> None:
    """Wait while a server restarts: a client that does not wait cannot return its slot."""
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        client.hello()
