"""A store of another MLflow's schema: migrated as a copy, by one process, whole or not at all; never taken back in silence."""

import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from mlflow.store.db.utils import _get_alembic_config, create_sqlalchemy_engine
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.errors import ServiceError
from tasks.tracking import local_store
from tasks.tracking.run_registry import RunRegistry, open_run_registry
from tasks.tracking.tracker import Tracker
from tests.root import ROOT

WAIT_SECONDS = 300.0
BACK = "-4"
"""Four revisions, of which some add a table: where one is missing, MLflow itself migrates a store that it opens, in its file."""
OPENING = """
import sys
from slmsearch.config import PathsConfig, TrackingConfig
from tasks.tracking import tracker, run_registry
opener = tracker.open_tracker if sys.argv[2] == "writer" else run_registry.open_run_registry
opener(PathsConfig(mlruns_dir=sys.argv[1]), TrackingConfig())
"""
HELD = """
import sys, time
from pathlib import Path
from tasks.tracking import local_store

def hold(*args, **kwargs):
    result = before(*args, **kwargs) if sys.argv[3] == "after" else None
    print("held", flush=True)
    time.sleep(600)

before = getattr(local_store, sys.argv[2])
setattr(local_store, sys.argv[2], hold)
local_store.make_store(sys.argv[1])
"""


class Store:
    def __init__(self, home: Path) -> None:
        self.home, self.path = home, home / "mlflow.db"
        self.uri = f"sqlite:///{self.path}"

    def open(self) -> Tracker:
        """Open it as a new process would: MLflow keeps the connections of a file that is no longer there."""
        self._forget()
        return Tracker(self.uri, TrackingConfig().experiment, self.home)

    def read(self) -> RunRegistry:
        """Open it as what only reads does: lineage, housekeeping, and every run before its flow begins."""
        self._forget()
        found = open_run_registry(PathsConfig(mlruns_dir=str(self.home)), TrackingConfig())
        assert found is not None
        return found

    def _forget(self) -> None:
        for engine in SqlAlchemyStore._engine_map.values():
            engine.dispose()

    @property
    def runs(self) -> list[str]:
        tracker = self.open()
        return [run.data.params["lr"] for run in tracker.client.search_runs([tracker.experiment_id])]

    @property
    def kept(self) -> list[Path]:
        return sorted(self.home.glob("mlflow-*.db"))

    @property
    def revision(self) -> str:
        return local_store._read_revision(self.path)

    def leftovers(self) -> set[str]:
        ours = {"mlflow.db", "mlflow.db.lock", "promotion.lock", "artifacts", *(file.name for file in self.kept)}
        return {file.name for file in self.home.iterdir()} - ours


@pytest.fixture
def store(tmp_path: Path, empty_stores: Path) -> Store:
    """A store with one run, as an older MLflow would have it."""
    shutil.copy(empty_stores / "mlflow.db", tmp_path / "mlflow.db")
    (tmp_path / "mlflow.db").chmod(0o600)
    found = Store(tmp_path)
    tracker = found.open()
    with tracker.run("train", "k1") as run_id:
        tracker.record_params(run_id, {"lr": "0.1"})
    engine = create_sqlalchemy_engine(found.uri)
    settings = _get_alembic_config(found.uri)
    with engine.begin() as connection:
        settings.attributes["connection"] = connection
        command.downgrade(settings, BACK)
    engine.dispose()
    assert found.revision not in ("", local_store._scripts().get_current_head())
    return found


@pytest.fixture(params=["hard links", "no hard links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if request.param == "no hard links":
        monkeypatch.setattr(Path, "hardlink_to", refuse)


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("opener", [Store.open, Store.read])
def test_an_older_store_is_migrated_and_kept(store: Store, opener: Callable[[Store], RunRegistry]) -> None:
    before, revision = store.path.read_bytes(), store.revision
    opener(store)
    assert store.runs == ["0.1"]
    assert store.revision == local_store._scripts().get_current_head()
    (kept,) = store.kept
    assert kept.name == f"mlflow-{revision}.db" and kept.read_bytes() == before
    assert {stat.S_IMODE(file.stat().st_mode) for file in (kept, store.path)} == {0o600} and not store.leftovers()
    assert store.runs == ["0.1"] and store.kept == [kept], "the second time nothing is left to do"


def test_one_that_was_taken_back_is_migrated_again_and_nothing_kept_is_lost(store: Store) -> None:
    first = store.path.read_bytes()
    store.open()
    (kept,) = store.kept
    store.path.unlink()
    kept.rename(store.path)
    assert store.runs == ["0.1"]
    store.path.write_bytes(first)
    with closing(sqlite3.connect(store.path)) as changed, changed:
        changed.execute("UPDATE params SET value = '0.2'")
    assert store.runs == ["0.2"] and len(store.kept) == 2


def test_three_openers_at_once_migrate_it_once(store: Store) -> None:
    kinds = ("reader", "writer", "reader")
    openers = [subprocess.Popen([sys.executable, "-c", OPENING, store.home, kind], cwd=ROOT) for kind in kinds]
    assert [opener.wait(WAIT_SECONDS) for opener in openers] == [0, 0, 0]
    assert store.runs == ["0.1"] and len(store.kept) == 1 and not store.leftovers()


@pytest.mark.parametrize(
    ("place", "moment"), [("_upgrade_db", "before"), ("_upgrade_db", "after"), ("_keep", "after"), ("_migrate", "after")]
)
def test_killed_at_any_moment_it_is_as_it_was_and_the_next_one_migrates_it(store: Store, place: str, moment: str) -> None:
    before = store.path.read_bytes()
    with subprocess.Popen([sys.executable, "-c", HELD, store.uri, place, moment], cwd=ROOT, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None and held.stdout.readline() == "held\n"
        held.send_signal(signal.SIGKILL)
    assert store.path.read_bytes() == before
    assert store.runs == ["0.1"] and len(store.kept) == 1 and not store.leftovers()


def test_nobody_writes_to_it_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade: Callable[..., None] = local_store._upgrade_db

    def write_first(engine: object) -> None:
        with closing(sqlite3.connect(store.path, timeout=0.1)) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("UPDATE params SET value = '0.3'")
        upgrade(engine)

    monkeypatch.setattr(local_store, "_upgrade_db", write_first)
    assert store.runs == ["0.1"]


@pytest.mark.parametrize("opener", [Store.open, Store.read])
@pytest.mark.parametrize("migrated", [True, False])
def test_a_store_of_a_newer_mlflow_is_refused_in_one_line(store: Store, migrated: bool, opener: Callable[[Store], RunRegistry]) -> None:
    if migrated:
        store.open()
    with closing(sqlite3.connect(store.path)) as newer, newer:
        newer.execute("UPDATE alembic_version SET version_num = 'fedcba987654'")
    with pytest.raises(ServiceError) as refused:
        opener(store)
    told = str(refused.value)
    assert "migrated by a newer MLflow (to fedcba987654), and this is" in told and "\n" not in told
    assert told.endswith(f"mv {store.kept[0]} {store.path}" if migrated else "install that MLflow again")
    if migrated:
        store.kept[0].rename(store.path)
        assert store.runs == ["0.1"]


def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"minutes of a meeting" * 100)
    for opener in (Store.open, Store.read):
        with pytest.raises(ServiceError, match=rf"MLflow at sqlite:///{tmp_path}/mlflow\.db: .*not a database; check tracking\.uri"):
            opener(Store(tmp_path))
    assert (tmp_path / "mlflow.db").read_bytes().startswith(b"minutes")


def test_a_new_store_is_private(tmp_path: Path) -> None:
    tracker = Tracker(f"sqlite:///{PathsConfig(mlruns_dir=str(tmp_path)).mlruns_dir}/mlflow.db", "slmsearch", tmp_path)
    assert tracker.experiment_id and stat.S_IMODE((tmp_path / "mlflow.db").stat().st_mode) == 0o600
