"""The same command twice at a time on one data directory: both end well, and nothing is lost or made twice.

`train` waits for the other (`tests/slmsearch/training/test_launch.py`), `serve` and `sft` refuse the second by name
(`tests/slmsearch/serving/engines/test_supervisor.py`, `tests/slmsearch/training/test_sft.py`).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import EVALUATE, LIMIT_S, QUICK, Home


def twice(home: Home, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    processes = [home.start(*arguments) for _ in range(2)]
    said = [process.communicate(timeout=LIMIT_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    home.check_whole()
    first, second = (json.loads(output) for output, _ in said)
    return first, second


def test_two_that_come_first_make_the_stores_and_the_evaluation_once(tmp_path: Path) -> None:
    """Of two that made MLflow's tables, or Prefect's, at a time one failed."""
    home = Home(tmp_path)
    first, second = twice(home, *EVALUATE)
    home.check_truth(completed=2)
    assert first["key"] == second["key"] and first["metrics"] == second["metrics"]
    found = [home.recorded(made["mlflow_run_id"]) for made in (first, second)]
    assert found[0] == found[1] and len(found[0]["traces"]) == first["n"]


@pytest.mark.kill
def test_two_of_the_other_commands(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = twice(home, "setup", *QUICK)
    assert made[0] == made[1] and len(list((home.data / "index").glob("[!.]*/manifest.json"))) == 1
    made = twice(home, "reindex", *QUICK, "--retrieval.max_passage_chars", "400")
    assert made[0]["index_key"] == made[1]["index_key"] == (home.data / "index" / "CURRENT").read_text().strip()
    made = twice(home, "train", *QUICK)
    assert made[0]["version"] == made[1]["version"] and made[0]["hash"] == made[1]["hash"]
    pages = twice(home, "report", made[0]["mlflow_run_id"])
    assert pages[0]["page"] == pages[1]["page"]
    home.check_truth(completed=4)
    assert home.ask("select count(*) from model_versions") == [(1,)]
