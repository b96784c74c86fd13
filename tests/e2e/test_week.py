"""A week in an hour: runs of eight flows, kills at random, two workers, PostgreSQL. Run it with `-m week`.

`WEEK_RUNS` (200) and `WEEK_KILLS` (30) say how much of it, `WEEK_SEED` (0) which; `WEEK_HOME` keeps the logs. What ends is started
again by the test, as an init system does; nothing else is fixed. At the end no run may be lost and no result doubled, no slot taken,
no process left, and the stores must not have grown faster in the second half than in the first: those of the trackers by flow run, the data
directory by adapter, because what was made before is looked up there.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.production import missing
from tests.e2e.week import DATA, FINAL, Service, wait_for

pytestmark = [pytest.mark.week, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]
RUNS, KILLS, SEED = (int(os.environ.get(f"WEEK_{name}", default)) for name, default in (("RUNS", 200), ("KILLS", 30), ("SEED", 0)))
LIMIT_S = 3 * 3600
FLOWS = {"train-and-eval": 6, "validate": 4, "reindex": 4, "evaluate": 4, "nightly": 1, "reconcile": 1, "housekeeping": 1,
    "train-planner": 3}  # fmt: skip
"""Deployment -> how often, beside the others."""
TRAININGS = ("train-and-eval", "train-planner")
VICTIMS = ("flow", "flow", "flow", "first", "second", "prefect", "mlflow")
WORLDS_EVERY = 20
"""Runs after which a new world comes, so that there is always something to make; earlier ones go on being asked for."""
AT_ONCE = 3
MEASURED_EVERY = max(1, RUNS // 20)
"""Ended runs after which the stores are measured."""
GROWS_BY = {"prefect": "flow runs", "mlflow": "flow runs", "artifacts": "flow runs", "data": "adapters"}
MAX_GROWTH = 1.5
"""Bytes per thing in the second half, at most, in bytes per thing in the first."""


@dataclass
class Log:
    """What has happened."""

    path: Path
    submitted: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Flow run -> flow and world."""
    ended: dict[str, str] = field(default_factory=dict)
    struck: list[str] = field(default_factory=list)
    sizes: list[tuple[dict[str, int], dict[str, int]]] = field(default_factory=list)
    """What there was of each kind of thing, bytes by store."""

    def say(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {len(self.ended)}/{len(self.submitted)} {text}\n")


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("PREFECT_HOME", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    kept = os.environ.get("WEEK_HOME")
    home = Path(kept) if kept else tmp_path_factory.mktemp("week")
    home.mkdir(parents=True, exist_ok=True)
    for folder in (home, *home.parents):
        if folder.name.startswith(("week", "popen-", "pytest-")):  # PostgreSQL runs as somebody else
            folder.chmod(0o711)
    made = Service(home)
    try:
        made.start()
        yield made
    finally:
        made.stack.stop()


@pytest.mark.timeout(LIMIT_S)
def test_after_a_week_nothing_is_lost_doubled_or_left(service: Service) -> None:
    log = Log(service.stack.home / "week.log")
    live_through(service, log)
    told = f"{Counter(log.ended.values())}; struck: {Counter(log.struck)}; started again: {Counter(service.started_again)}"
    log.say(told)
    print(told)
    settle(service)
    assert set(log.ended) == set(log.submitted), "no flow run is lost"
    assert len(log.struck) == KILLS
    check_results(service, log)
    service.stop_workers()
    wait_for(lambda: not service.ours(), 60, lambda: f"left: {[(process.pid, process.cmdline()) for process in service.ours()]}")
    check_growth(log)


def live_through(service: Service, log: Log) -> None:
    """Submit, kill, start again, until everything that was submitted has ended."""
    chance = random.Random(SEED)
    strikes = sorted(chance.sample(range(2, RUNS), KILLS), reverse=True)
    live: list[str] = []
    due = 0.0
    while len(log.submitted) < RUNS or live:
        service.tend()
        while len(log.submitted) < RUNS and len(live) < AT_ONCE:
            flow = chance.choices(list(FLOWS), list(FLOWS.values()))[0]
            world = chance.randint(1, 1 + len(log.submitted) // WORLDS_EVERY)
            run = service.submit(flow, world)
            log.submitted[run] = (flow, world)
            live.append(run)
        if strikes and len(log.submitted) > strikes[-1]:
            due = due or time.monotonic() + chance.uniform(0, 15)
            if time.monotonic() > due and (what := strike(service, live, chance)):
                log.say(f"killed {what}")
                log.struck.append(what)
                strikes.pop()
                due = 0.0
        for run in list(live):
            if (state := service.state(run))["type"] in FINAL:
                live.remove(run)
                log.ended[run] = state["type"]
                log.say(f"{log.submitted[run]} {state['type']} {str(state.get('message') or '')[:160]}")
                if len(log.ended) % MEASURED_EVERY == 0:
                    log.sizes.append(({"flow runs": len(log.ended), "adapters": service.adapters()}, service.sizes()))
                    log.say(f"stores: {log.sizes[-1]}")
        time.sleep(0.3)


def strike(service: Service, live: list[str], chance: random.Random) -> str:
    """Kill something at random; return what, or nothing where it was not there."""
    number, target = chance.choice((signal.SIGTERM, signal.SIGKILL)), chance.choice(VICTIMS)
    if target == "flow":
        return f"flow {number.name}" if live and service.kill_flow(chance.choice(live), number) else ""
    service.kill(target, number)
    return f"{target} {number.name}"


def settle(service: Service) -> None:
    """Wait until all states are true, with what a team leaves running and no more."""
    service.tend()
    run = service.submit("reconcile", 1)
    wait_for(lambda: service.state(run)["type"] in FINAL, 300, lambda: service.stack.log("first")[-2000:])
    assert service.state(run)["type"] == "COMPLETED"
    wait_for(lambda: not service.unfinished(), 180, lambda: f"show as running: {service.unfinished()}")
    open_runs = "select count(*) from runs where status = 'RUNNING' and lifecycle_stage = 'active'"
    wait_for(lambda: service.stack.query("mlflow", open_runs) == ["0"], 60, lambda: "MLflow runs show as running")
    wait_for(lambda: service.taken_slots() == 0, 180, lambda: f"{service.taken_slots()} slots are taken")


def check_results(service: Service, log: Log) -> None:
    """Everything that a completed run says it made is there, is one, and is the same for all who made it."""
    query = service.stack.query
    doubled = "select run_uuid, key, step from metrics group by run_uuid, key, step having count(*) > 1"
    assert not query("mlflow", doubled), "no metric twice"
    completed = [run for run, state in log.ended.items() if state == "COMPLETED"]
    tags = query("mlflow", "select f.value, r.status, k.key, k.value from runs r join tags f using (run_uuid) join tags k using (run_uuid)"
        " where f.key = 'prefect.flow_run_id' and k.key like 'slmsearch.%key'")  # fmt: skip
    made: dict[tuple[str, int, str], set[str]] = {}
    seen = set()
    for flow_run, status, name, key in (line.split("|") for line in tags):
        if flow_run in completed and status == "FINISHED" and log.submitted[flow_run][0] in TRAININGS:
            made.setdefault((*log.submitted[flow_run], name), set()).add(key)
            seen.add(flow_run)
    trained = {run for run in completed if log.submitted[run][0] in TRAININGS}
    assert trained and seen == trained, "every completed training is in MLflow, and finished there"
    train_keys = {place: keys for place, keys in made.items() if place[2] == "slmsearch.train_key"}
    assert train_keys and all(len(keys) == 1 for keys in train_keys.values()), f"one adapter for a world: {train_keys}"
    keys = {key for found in train_keys.values() for key in found}
    training = service.stack.home / DATA / "training"
    adapters = {json.loads((training / key / "manifest.json").read_text())["adapter_hash"] for key in keys}
    assert len(adapters) == len(keys), "each world has its own"
    versions = query("mlflow", "select t.value, count(distinct v.version) from model_versions v join model_version_tags t"
        " on t.name = v.name and t.version = v.version where t.key = 'slmsearch.adapter_hash' group by t.value")  # fmt: skip
    assert versions and all(line.endswith("|1") for line in versions), f"one version of the model for an adapter: {versions}"
    assert adapters <= {line.partition("|")[0] for line in versions}, "every adapter is registered"
    champions = query("mlflow", "select name, count(*) from registered_model_aliases where alias = 'champion' group by name order by name")
    assert champions == ["slmsearch-planner|1", "slmsearch-searcher|1"]


def check_growth(log: Log) -> None:
    """Each store grows by no more per thing in the second half of the week than in the first."""
    for name, thing in GROWS_BY.items():
        points = [(counts[thing], sizes[name]) for counts, sizes in log.sizes]
        first, last = points[0], points[-1]
        middle = min(points, key=lambda point: abs(point[0] - (first[0] + last[0]) / 2))
        early = (middle[1] - first[1]) / (middle[0] - first[0])
        late = (last[1] - middle[1]) / (last[0] - middle[0])
        log.say(f"{name}: {early / 1e3:.0f} kB for each of the {thing}, then {late / 1e3:.0f}")
        print(f"{name}: {early / 1e3:.0f} kB for each of the {thing} in the first half, {late / 1e3:.0f} in the second")
        assert late <= MAX_GROWTH * early + 2e4, name
