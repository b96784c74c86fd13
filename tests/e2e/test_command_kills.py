"""`slmsearch evaluate` and `slmsearch report`, killed with SIGKILL: the same command again ends as one that nobody killed.

Each kill falls at an exact moment, in the command or in a process that it has started; the next one goes on with what is left.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import EVALUATE, Home, Moment
from tests.stores import put_empty_stores

STORED = Moment("the evaluation is stored", "os.rename", r"evals/\.tmp-\w+-\d+@\w+$")
EVALUATIONS = (
    Moment("MLflow's tables are made", "os.rename", r"\.tmp-mlflow\.db"),
    Moment("the corpus is published", "os.rename", r"corpora/\.tmp-\w+-\d+@\w+$"),
    Moment("the index is published", "os.rename", r"index/\.tmp-\w+-\d+@\w+$"),
    Moment("episodes are written", "open", r"evals/\.tmp-.*/episodes\.jsonl$"),
    STORED,
    Moment("the table is recorded", "os.rename", r"artifacts/eval/\w+\.json$"),
    Moment("the table is recorded, the evaluation not yet", "os.rename", r"artifacts/evaluation\.json$"),
    Moment("all is recorded but the lineage", "os.rename", r"artifacts/lineage\.json$"),
)
PLACED = Moment("the page takes its place", "os.rename", r"reports/\.tmp-.*html-\d+@\w+$")
KEPT = Moment("the page is kept in MLflow", "os.rename", r"artifacts/report/report\.html$")
PAGES = (Moment("the page is written", "open", r"reports/\.tmp-.*html-\d+@\w+$"), PLACED, KEPT)
IDS = dict.fromkeys(("mlflow_run_id", "flow_run_id", "seconds"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_killed_once_both_end_as_if_nobody_had(home: Home, empty_stores: Path) -> None:
    put_empty_stores(empty_stores, home.folder)
    home.kill(STORED, *EVALUATE)
    made = home.run(*EVALUATE)
    check_evaluation(home, made)
    home.kill(PLACED, "report", made["mlflow_run_id"])
    check_page(home, made)


@pytest.mark.kill
def test_killed_at_every_moment_both_end_as_if_nobody_had(home: Home, tmp_path: Path) -> None:
    for moment in EVALUATIONS:
        home.kill(moment, *EVALUATE)
    made = home.run(*EVALUATE)
    check_evaluation(home, made)
    golden = Home(tmp_path / "golden")
    unkilled = golden.run(*EVALUATE)
    assert timeless({**made, **IDS}) == timeless({**unkilled, **IDS})
    assert home.recorded(made["mlflow_run_id"]) == golden.recorded(unkilled["mlflow_run_id"])
    whole = check_page(home, made)
    for moment in PAGES:
        home.kill(moment, "report", made["mlflow_run_id"], "--episodes", "1")
        assert [read(path) for path in home.mlruns.glob("reports/[!.]*.html")] == [whole] or moment == KEPT, "the page before stands"
    assert check_page(home, made) == whole


def timeless(value: Any) -> Any:
    """Return a result without the metrics that measure seconds."""
    if not isinstance(value, dict):
        return value
    return {name: timeless(inner) for name, inner in value.items() if not name.startswith("time/")}


def check_evaluation(home: Home, made: dict[str, Any]) -> None:
    home.check_truth(completed=1)
    found = home.recorded(made["mlflow_run_id"])
    assert found["stages"] == [(name, "FINISHED") for name in ("evaluate", "evaluate-untrained", "index", "validate")]
    assert list(found["tables"].values()) == [made["n"]] == [3] == [len(found["traces"])]


def check_page(home: Home, made: dict[str, Any]) -> str:
    """Make the page, which must be the same in both places; return it."""
    page = home.run("report", made["mlflow_run_id"])
    home.check_whole()
    home.check_truth(completed=1)
    whole = read(page["page"])
    assert whole == read(home.mlruns / "artifacts" / made["mlflow_run_id"] / "artifacts" / page["artifact"])
    return whole


def read(page: str | Path) -> str:
    """Return a page without the time at which it was made."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", Path(page).read_text())
