"""Verdicts on disk: shared by processes, there after a kill, quick to look up."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.errors import JudgeError
from slmsearch.judge.cache import StoredVerdict, VerdictCache

ROOT = Path(__file__).resolve().parents[3]

WRITER = """
import sys, time
from pathlib import Path
from slmsearch.judge.cache import StoredVerdict, VerdictCache
name, path, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
cache = VerdictCache(path)
for i in range(count):
    cache.store([StoredVerdict(f"{name}-{i}", i % 2 == 0, "d", "q", "[]", "a"), StoredVerdict(f"shared-{i}", True, "d", "q", "[]", "a")])
    print(i, flush=True)
if name == "killed":
    time.sleep(60)
"""


def stored(key: str, correct: bool = True) -> StoredVerdict:
    return StoredVerdict(key, correct, "digest", "Who?", '["Ada"]', "Ada L.")


def start_writer(name: str, path: Path, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, name, str(path), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_was_stored_is_found_and_the_first_stays(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "deep" / "v.sqlite")
    assert cache.find(["a"]) == {} == cache.find([])
    cache.store([stored("a"), stored("b", False)])
    cache.store([stored("a", False)])
    assert cache.find(["b", "a", "c", "a"]) == {"a": True, "b": False}
    assert VerdictCache(cache.path).count() == 2


def test_thousands_are_found_in_one_query(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "v.sqlite")
    cache.store([stored(f"key {i}", i % 3 == 0) for i in range(40_000)])
    statements: list[str] = []
    cache._connection.set_trace_callback(statements.append)  # type: ignore[union-attr]
    found = cache.find([f"key {i}" for i in range(50_000)])
    assert len(found) == 40_000
    assert sum(found.values()) == 13_334
    assert len(statements) == 1


def test_processes_share_it_from_its_very_beginning(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    writers = [start_writer(f"w{i}", path, 50) for i in range(4)]
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [("", 0)] * 4
    cache = VerdictCache(path)
    assert cache.count() == 4 * 50 + 50
    assert cache.find(["w3-48", "w3-49", "shared-7"]) == {"w3-48": True, "w3-49": False, "shared-7": True}


def test_a_kill_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "v.sqlite"
    writer = start_writer("killed", path, 30)
    assert writer.stdout is not None and writer.stderr is not None
    for i in range(30):
        assert writer.stdout.readline().strip() == str(i)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(5)
    writer.stdout.close()
    writer.stderr.close()
    cache = VerdictCache(path)
    assert len(cache.find([f"killed-{i}" for i in range(30)])) == 30
    cache.store([stored("after")])
    assert cache.count() == 61


def test_it_is_in_wal_mode_and_readable_by_a_person(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "v.sqlite")
    cache.store([stored("a")])
    with sqlite3.connect(cache.path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT judge, question, answers, answer FROM verdicts").fetchall() == [
            ("digest", "Who?", '["Ada"]', "Ada L.")
        ]
    connection.close()


def test_nothing_but_a_verdict_can_be_stored(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "v.sqlite")
    with pytest.raises(JudgeError):
        cache.store([StoredVerdict("a", None, "d", "q", "[]", "a")])  # type: ignore[arg-type]
    assert cache.count() == 0


@pytest.mark.parametrize("damage", ["no database", "a folder", "a file for a folder"])
def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "judge" / "v.sqlite"
    if damage == "a file for a folder":
        path.parent.write_text("")
    else:
        path.parent.mkdir()
    if damage == "no database":
        path.write_bytes(b"not a database" * 200)
    elif damage == "a folder":
        path.mkdir()
    cache = VerdictCache(path)
    for _ in range(2):
        with pytest.raises(JudgeError, match=r"v\.sqlite: .+; check disk and permissions, or delete the file"):
            cache.store([stored("a")])


def test_old_verdicts_are_forgotten_and_their_space_is_given_back(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "verdicts.sqlite")
    cache.store([replace(stored(str(i)), question="long " * 200) for i in range(2000)])
    full = cache.path.stat().st_size
    assert cache.count(time.time() - 60) == 0
    cache.forget(time.time() - 60)
    assert cache.count() == 2000
    assert cache.count(time.time() + 60) == 2000
    cache.forget(time.time() + 60)
    assert cache.count() == 0 and cache.path.stat().st_size < full / 10
    cache.store([stored("new", False)])
    assert cache.find(["new", "1"]) == {"new": False}


def test_a_file_made_before_verdicts_had_a_time_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.sqlite"
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE verdicts (key TEXT PRIMARY KEY, correct INTEGER NOT NULL, judge TEXT NOT NULL, question TEXT NOT NULL,"
                    " answers TEXT NOT NULL, answer TEXT NOT NULL) WITHOUT ROWID")  # fmt: skip
        old.execute("INSERT INTO verdicts VALUES ('a', 1, 'j', 'q', '[]', 'x')")
        old.commit()
    cache = VerdictCache(path)
    assert cache.find(["a"]) == {"a": True}
    assert cache.count(time.time() - 60) == 0, "its age is not known, so it counts from now"
    assert cache.count(time.time() + 60) == 1
