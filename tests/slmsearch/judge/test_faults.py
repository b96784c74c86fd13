"""The judge's server that breaks on purpose breaks as it says, or the tests of faults would prove nothing."""

from collections.abc import Iterator

import httpx
import pytest

from tests.judge_server import FAULTS, Behaviour, JudgeServer


@pytest.fixture
def broken() -> Iterator[JudgeServer]:
    with JudgeServer(Behaviour(fault_frac=0.5, faults=("status",))) as server:
        yield server


def statuses(server: JudgeServer, order: list[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {i: [] for i in order}
    for i in order * 3:
        body = {"model": "m", "messages": [{"role": "user", "content": f"question {i}"}]}
        found[i].append(httpx.post(f"{server.url}/api/chat", json=body).status_code)
    return found


def test_what_breaks_depends_on_the_question_and_not_on_the_order(broken: JudgeServer) -> None:
    first = statuses(broken, list(range(12)))
    with JudgeServer(broken.behaviour) as again:
        assert statuses(again, list(reversed(range(12)))) == first
    every = [status for tries in first.values() for status in tries]
    assert {200} < set(every) <= {200, 429, 500, 502, 503}
    assert broken.counts["status"] == sum(status != 200 for status in every)
    assert set(broken.counts) <= {*FAULTS, "/api/chat"}
