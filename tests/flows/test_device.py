"""The slot of a device, where Prefect's server goes away while a stage computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prefect import flow

from flows.runtime import device
from slmsearch.config import TrainConfig

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(300)]


@contextmanager
def refused_at_the_end(*_names: Any, **_options: Any) -> Iterator[None]:
    yield
    raise httpx.ConnectError("All connection attempts failed")


@flow
def compute(fails: bool) -> str:
    with device.device(TrainConfig()):
        if fails:
            raise httpx.ReadTimeout("the judge")
        return "computed"


def test_what_was_computed_stands_where_the_slot_cannot_be_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []
    monkeypatch.setattr(device, "concurrency", refused_at_the_end)
    monkeypatch.setattr(device, "_wait_for_the_server", lambda: asked.append(True))
    assert compute(False) == "computed"
    assert asked == [True], "the server is waited for before the slot is given back"
    assert "could not be given back (All connection attempts failed): it is free again after 60 s" in caplog.text


def test_a_stage_that_fails_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "concurrency", refused_at_the_end)
    with pytest.raises(httpx.ReadTimeout, match="the judge"):
        compute(True)
