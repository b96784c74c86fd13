"""The judge's bench on a small scale: it counts right, and would see a verdict that was made up."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from slmsearch.bench import judge as bench
from slmsearch.bench.judge import make_items, measure_cache, measure_faults, render_judge, write_timelines
from slmsearch.bench.judge_server import FAULTS, Behaviour, JudgeServer, hash_truth, serve_apart
from slmsearch.bench.judge_step import SIDES, measure_plain
from slmsearch.judge.exact import exact_match
from slmsearch.judge.llm import LlmJudge, judge_by_rule
from slmsearch.report.judge import describe_timeline


def test_every_judgement_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TIMEOUT_S", 0.3)
    row = measure_faults("ollama", 1, 200, lambda text: None)
    assert row["right"] + row["failed"] == row["judgements"] == 200
    assert row["invented"] == 0 and row["stored"] == row["right"]
    assert row["failed"] > 0 and all(row["faults"].values())


def test_an_invented_verdict_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that takes every outage for a no is what the count is there to catch."""
    monkeypatch.setattr(bench, "TIMEOUT_S", 0.3)
    ask_once = LlmJudge._ask_once

    def invents(self: LlmJudge, question: object, answer: str) -> bool:
        try:
            return ask_once(self, question, answer)  # type: ignore[arg-type]
        except Exception:
            return False

    monkeypatch.setattr(LlmJudge, "_ask_once", invents)
    row = measure_faults("openai", 0, 120, lambda text: None)
    assert row["failed"] == 0 and 0 < row["invented"] < 60


def test_the_second_pass_asks_nobody() -> None:
    row = measure_cache(40, 2)
    assert (row["first_calls"], row["second_calls"], row["second_looks_at_the_model"], row["same"]) == (40, 0, 1.0, True)


def test_no_rule_decides_what_is_judged() -> None:
    assert all(judge_by_rule(*item) is None and not exact_match(item[1], item[0].answers) for item in make_items(50))
    assert {True, False} == {hash_truth(str(i)) for i in range(20)}


def test_steps_are_timed_beside_the_exact_judge_and_drawn(tmp_path: Path) -> None:
    plain = measure_plain(16, 1, turn_s=0.03)
    assert plain["asked"] == 16
    assert set(plain["step_s"]) == set(SIDES)
    timeline = plain["timeline"]["overlapped"]
    assert len(timeline["turns"]) == 8 and len(timeline["verdicts"]) == 16
    first = {side: plain["timeline"][side]["verdicts"][0][0] - plain["timeline"][side]["turns"][-1][1] for side in SIDES[1:]}
    assert first["overlapped"] < 0 <= first["afterwards"]  # of the first question to the judge, from the end of the last turn
    assert "waiting for the judge" in describe_timeline(timeline)
    result = {"machine": {"processor": "p", "threads": 1, "versions": {}}, "runs": 1, "plain": plain, "grpo": plain}
    assert [Path(path).read_bytes()[:4] for path in write_timelines(result, tmp_path)] == [b"\x89PNG"] * 2
    assert "| plain | 16 | 16 | overlapped |" in render_judge(result)


# The server itself


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


def test_a_server_apart_ends_with_its_context() -> None:
    with serve_apart(Behaviour()) as server:
        assert httpx.get(f"{server.url}/api/tags").json()["models"][0]["name"] == "judge:latest"
        assert server.counts() == {"/api/tags": 1}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/api/tags")


def test_a_server_apart_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(
        "import time\nfrom slmsearch.bench.judge_server import Behaviour, serve_apart\n"
        "if __name__ == '__main__':\n"
        "    with serve_apart(Behaviour()) as server:\n        print(server.url, flush=True)\n        time.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, str(script)], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    url = starter.stdout.readline().strip()
    assert httpx.get(f"{url}/api/tags").status_code == 200
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait(5)
    starter.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/api/tags")
        except httpx.HTTPError:
            return
        time.sleep(0.05)
    pytest.fail("the server outlived its starter")
