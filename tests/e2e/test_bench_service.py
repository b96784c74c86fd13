"""`slmsearch bench service` in small numbers: every part runs, and the service holds."""

import json
from pathlib import Path

import pytest

from slmsearch.extensions.bench import service
from tests.e2e.small_world import small_world
from tests.flows.test_commands import Invoke, invoke

__all__ = ["invoke"]
NUMBERS = {"ALONE": 3, "TOGETHER": 12, "LONG": 24, "BAD": 80, "KILLED": 16, "ROUNDS": 2, "CLIENTS": 4}


def test_every_part_is_measured(invoke: Invoke, unforked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in NUMBERS.items():
        monkeypatch.setattr(service, name, number)
    with small_world(tmp_path) as world:
        code, out, err = invoke("bench", "service", "--json", "--policy", "untrained", *world.flags)
    assert code == 0, err
    found = json.loads(out)
    assert found == json.loads((tmp_path / "mlruns" / "bench" / "service.json").read_text())
    assert [found[f"{part}_questions"] for part in ("alone", "together", "long", "kill")] == [6, 24, 24, 32]
    assert [found[f"{part}_failed"] for part in ("alone", "together", "long")] == [0, 0, 0]
    assert 0 < found["together_p50_s"] <= found["together_p95_s"] <= found["together_p99_s"]
    assert found["together_ratio"] == pytest.approx(sum(found["together_ratios"]) / 2, abs=0.01)
    assert min(found["together_ratios"]) > 0 and found["together_questions_per_s"] > 0
    assert found["memory_first_mib"] > 100 and found["memory_growth_frac"] > -1
    statuses = found["bad_statuses"]
    assert sum(statuses.values()) == 80 and {"200", "400", "401", "413", "415"} <= set(statuses)
    assert (found["bad_5xx"], found["bad_hangs"], found["bad_no_reply"], found["token_in_log"]) == (0, 0, 0, False)
    assert found["kill_retryable"] == found["kill_failed"] <= 8
    assert len(found["kill_next_success_s"]) == 2 and min(found["kill_next_success_s"]) > 0
    assert not (tmp_path / "data" / "feedback.jsonl").exists()
