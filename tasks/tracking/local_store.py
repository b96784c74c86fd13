"""MLflow's store in a local SQLite file: made whole, and brought whole to the schema of the MLflow that opens it.

MLflow does both in hundreds of steps, in the file that is in use. A kill between two leaves a store that MLflow can neither use nor fix,
and two processes that do it at a time break each other. After a migration the older MLflow refuses the store, and names a remedy that
fails; so the file as it was is kept.
"""

import functools
import shutil
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import mlflow
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from filelock import FileLock
from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from slmsearch.artifacts.directories import staging_directory
from slmsearch.errors import ServiceError

SQLITE = "sqlite:///"
"""Prefix of the address of a local store."""
BUSY_SECONDS = 60.0
"""Time to wait for a process that writes to the store."""


def make_store(uri: str) -> None:
    """Make a local store if there is none, or migrate an older one; private to the user, and all at once.

    A migration changes a copy, under a lock, keeps the file as it was beside it, as `mlflow-REVISION.db`, and then replaces the store.

    Raises:
        ServiceError: a newer MLflow has migrated the store.
        sqlite3.Error: the file is no database.
    """
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or _is_current(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"), staging_directory(path.parent, path.name) as staging:
        if _is_current(path):  # another process was faster
            return
        made = staging / path.name
        made.touch(mode=0o600)
        if _is_made(path):
            _migrate(path, made)
        else:
            SqlAlchemyStore(f"{SQLITE}{made}", str(path.parent / "artifacts")).engine.dispose()
        made.replace(path)


def _migrate(path: Path, made: Path) -> None:
    """Write the migrated store to `made`, and keep the store as it is."""
    revision = _read_revision(path)
    if not _is_known(revision):
        raise ServiceError(_describe_downgrade(path, revision))
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as held, closing(sqlite3.connect(path)) as old:
        held.execute("BEGIN IMMEDIATE")  # what another process wrote from here on would be lost
        with closing(sqlite3.connect(made)) as copy:
            old.backup(copy)
        engine = create_sqlalchemy_engine(f"{SQLITE}{made}")
        _upgrade_db(engine)
        engine.dispose()
        _keep(path, revision, made.parent)


def _keep(path: Path, revision: str, staging: Path) -> None:
    for number in count():
        kept = path.with_name(f"{path.stem}-{revision}{f'-{number}' if number else ''}{path.suffix}")
        try:
            kept.hardlink_to(path)
        except FileExistsError:
            if not kept.samefile(path):  # of an earlier migration, which was taken back
                continue
        except OSError:  # this file system has no hard links
            copied = staging / kept.name
            shutil.copy2(path, copied)
            copied.replace(kept)
        return


def _describe_downgrade(path: Path, revision: str) -> str:
    kept = [file for file in path.parent.glob(f"{path.stem}-*{path.suffix}") if _is_known(_read_revision(file))]
    newest = max(kept, key=lambda file: file.stat().st_mtime, default=None)
    back = f", or go back, without what was recorded since: mv {newest} {path}" if newest else ""
    told = f"{path} was migrated by a newer MLflow (to {revision}), and this is {mlflow.__version__}"
    return f"{told}; install that MLflow again{back}"


def _is_made(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_current(path: Path) -> bool:
    """Return whether a store has this MLflow's schema; one without a revision is for MLflow to judge."""
    return _is_made(path) and _read_revision(path) in ("", _scripts().get_current_head())


def _read_revision(path: Path) -> str:
    """Return the revision of a store's schema; empty if it says none."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return ""
        found = store.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(found[0]) if found else ""


def _is_known(revision: str) -> bool:
    try:
        return _scripts().get_revision(revision) is not None
    except CommandError:
        return False


@functools.cache
def _scripts() -> ScriptDirectory:
    """Return MLflow's migrations."""
    return ScriptDirectory(str(Path(mlflow.__file__).parent / "store" / "db_migrations"))
