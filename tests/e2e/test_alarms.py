"""Alarms about nights, by a real Prefect server: lost, missing, and only once."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flows.runtime.api import prefect_api
from slmsearch.config import PathsConfig, RunConfig

WITHIN_S = 10
"""The shortest that Prefect takes."""


class Hook(BaseHTTPRequestHandler):
    taken: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def hook() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook"
        server.shutdown()
        thread.join()


def told(alarm: str) -> list[dict[str, Any]]:
    return [taken for taken in Hook.taken if taken["alarm"] == alarm]


def wait_for(found: Callable[[], object], seconds: float, again: Callable[[], None]) -> None:
    """Do something, and once more every ten seconds, until something is found."""
    deadline = time.monotonic() + seconds
    due = 0.0
    while not found():
        assert time.monotonic() < deadline, Hook.taken
        if time.monotonic() >= due:
            again()
            due = time.monotonic() + 10
        time.sleep(0.1)


@contextmanager
def own_events() -> Iterator[None]:
    """Leave no sender of events behind: Prefect keeps one a process, and the next test's server is another."""
    from prefect.events.worker import EventsWorker

    try:
        yield
    finally:
        EventsWorker.drain_all()


def test_a_lost_and_a_missing_night_reach_the_webhook(tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    config = RunConfig(paths=PathsConfig(data_dir=str(tmp_path / "data"), mlruns_dir=str(tmp_path / "mlruns")))
    with prefect_api(config.paths) as api, own_events():
        from prefect.client.orchestration import get_client
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
        from prefect.states import Cancelled, Running

        from flows.nightly import nightly
        from flows.runtime.automations import LOST, MISSING, NAMES, create_alarms, expect_nights

        monkeypatch.setattr("flows.runtime.automations.LATE_H", WITHIN_S / 3600)
        with temporary_settings({PREFECT_API_URL: api.url, PREFECT_API_AUTH_STRING: api.password}), get_client(sync_client=True) as client:
            assert create_alarms(client, None) == list(NAMES)
            assert create_alarms(client, hook) == [], "once by name"
            found = {item.name: item for item in client.read_automations()}
            assert len(client.read_automations()) == len(NAMES)
            assert [found[name].actions[0].type for name in (LOST, MISSING)] == ["call-webhook"] * 2, "what did nothing calls it now"
            cancelled: list[str] = []

            def lose_a_night() -> None:
                run = client.create_flow_run(nightly, name="quiet-owl", parameters={"config": {}})
                client.set_flow_run_state(run.id, Running(), force=True)
                client.set_flow_run_state(run.id, Cancelled(message="somebody stopped it"), force=True)
                cancelled.append(str(run.id))

            # The server looks for the events of an automation some moments after it has answered, so they are told again.
            wait_for(lambda: told("lost"), 60, again=lose_a_night)
            wait_for(lambda: told("missing"), 150, again=lambda: expect_nights(config.tracking.registered_model))
    lost = told("lost")
    assert all("quiet-owl ended as Cancelled: somebody stopped it" in alarm["text"] for alarm in lost)
    assert len({alarm["flow_run_id"] for alarm in lost}) == len(lost) and {alarm["flow_run_id"] for alarm in lost} <= set(cancelled)
