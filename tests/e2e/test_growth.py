"""Months in half an hour: what each file grows by, and that it stops growing. Run it with `-m production -s -k growth`.

Real rounds of flows, each on a world of its own; then everything becomes 40 days older, and the real housekeeping and Prefect's own
deletion have their turn; and again. `GROWTH_ROUNDS` (3) says how many rounds there are in each of the four months; with fewer than there
are versions of a model kept, those still grow in number. What MLflow has deleted goes a month later for good: the third month is the first
that is as full as a month can be.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.e2e.commands import Home
from tests.e2e.growth import FLOWS, KEPT_VERSIONS, age, fit, sizes
from tests.e2e.stand import ROOT

ROUNDS, MONTHS, OLDER_DAYS = int(os.environ.get("GROWTH_ROUNDS", "3")), 4, 40
RUNS = 1000
SLACK, SMALL = 1.15, 40_000
"""Growth from one month to the next that is none: of a size, and in bytes (a database grows by pages)."""
KEPT = ("mlruns/promotions.jsonl",)
"""Some hundred bytes for each thing, on purpose."""


@pytest.mark.production
@pytest.mark.timeout(3600)
def test_nothing_grows_without_bound(tmp_path: Path) -> None:
    assert ROUNDS >= KEPT_VERSIONS
    home = Home(tmp_path)
    points, peaks, troughs = [], [], []
    for month in range(MONTHS):
        rounds = play(home, 1 + month * ROUNDS, (1 + month) * ROUNDS)
        points += rounds if month == 0 else []
        peaks.append(sizes(tmp_path))
        assert not old_flow_runs(home), "Prefect has deleted those of the month before"
        age(tmp_path, OLDER_DAYS)
        forget_versions(home)
        kinds = {item["kind"] for item in home.run("housekeeping", "--apply")["items"]}
        print(f"month {month + 1}: housekeeping took {', '.join(sorted(kinds))}")
        troughs.append(sizes(tmp_path))
    print_table(points, peaks, troughs)
    for name in peaks[-1]:
        for found in (peaks, troughs):
            before, after = (month.get(name, 0) for month in found[-2:])
            assert after <= SLACK * before + SMALL or name in KEPT, (name, [month.get(name, 0) for month in found])


def play(home: Home, first: int, last: int) -> list[tuple[int, dict[str, int]]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "SLMSEARCH_"))}
    command = [sys.executable, "-m", "tests.e2e.growth", str(home.folder), str(first), str(last)]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(line["runs"], line["sizes"]) for line in lines]


def old_flow_runs(home: Home) -> int:
    ((count,),) = home.ask(f"select count(*) from flow_run where end_time < datetime('now', '-{OLDER_DAYS - 5} days')", "prefect")
    return int(count)


def forget_versions(home: Home) -> None:
    """Delete registered versions, as users do in MLflow: all but the champion and the newest; they and their runs stay otherwise."""
    client = MlflowClient(f"sqlite:///{home.mlruns}/mlflow.db")
    for model in client.search_registered_models():
        versions = sorted(client.search_model_versions(f"name = '{model.name}'"), key=lambda found: -int(found.version))
        for version in versions[KEPT_VERSIONS:]:
            if str(version.version) not in map(str, model.aliases.values()):
                client.delete_model_version(model.name, version.version)


def print_table(points: list[tuple[int, dict[str, int]]], peaks: list[dict[str, int]], troughs: list[dict[str, int]]) -> None:
    """Print kB for each flow run with the share of the variance that the line explains, MB after 1,000 without deletion, MB by month."""
    print(f"\n{len(points)} flow runs a month, of {', '.join(FLOWS)}; sizes in MB, before -> after housekeeping of each month")
    for name in sorted(peaks[-1]):
        rate, explained = fit([runs for runs, _ in points], [found.get(name, 0) for _, found in points])
        months = "  ".join(
            f"{peak.get(name, 0) / 1e6:.2f} -> {trough.get(name, 0) / 1e6:.2f}" for peak, trough in zip(peaks, troughs, strict=True)
        )
        print(f"  {name:32s} {rate / 1e3:8.1f} kB/run (R2 {explained:.2f})  {rate * RUNS / 1e6:8.1f} MB/{RUNS}  {months}")
