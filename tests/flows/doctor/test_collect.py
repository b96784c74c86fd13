"""Looking at a real directory and a real server on a port, and fixing what is safe."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flows.ops.doctor.checks import Facts, examine
from flows.ops.doctor.collect import look, remove_leftovers
from flows.ops.up import POINTER, POINTER_MARK
from flows.runtime.api import UpRecord, page_path, password_path, record_path, write_record
from slmsearch.artifacts.files import STAGING_PREFIX
from slmsearch.config import RunConfig
from tasks.tracking import OWNER, open_tracker
from tests.flows.fakes import make_config, write_corpus


def gone_pid() -> int:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    return int(done.stdout)


def facts_of(config: RunConfig) -> Facts:
    return look(config.paths, config.retrieval, config.tracking)


@pytest.fixture
def config(isolated_environment: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.chdir(isolated_environment)
    monkeypatch.setenv("PREFECT_HOME", str(isolated_environment / "prefect"))
    return make_config(isolated_environment, write_corpus(isolated_environment / "corpus"), empty_store)


def test_what_killed_processes_left_is_found_and_mended(config: RunConfig, isolated_environment: Path) -> None:
    pid = gone_pid()
    half = config.paths.index / f"{STAGING_PREFIX}abc-{pid}"
    half.mkdir(parents=True)
    mine = config.paths.index / f"{STAGING_PREFIX}abc-{os.getpid()}"
    mine.mkdir()
    write_record(config.paths, UpRecord(pid, "http://127.0.0.1:9/api", "", ""), "user:password")
    records = (record_path(config.paths), password_path(config.paths), page_path(config.paths))
    tracker = open_tracker(config.paths, config.tracking)
    run = tracker.start_run("train", "key")
    tracker.set_tags(run, {OWNER: f"{socket.gethostname()} {pid} 12345"})

    facts = facts_of(config)
    assert (facts.abandoned, facts.dead_records, facts.orphans) == ((half,), records, 1)
    done = remove_leftovers(facts, config.paths, config.tracking)
    assert len(done) == 5 and not any(path.exists() for path in records)
    again = facts_of(config)
    assert (again.abandoned, again.dead_records, again.orphans) == ((), (), 0)
    assert mine.is_dir(), "its writer lives"


def test_records_of_a_process_that_lives_stay_though_its_server_does_not_answer(config: RunConfig) -> None:
    write_record(config.paths, UpRecord(os.getpid(), "http://127.0.0.1:9/api", "", ""), "user:password")
    Path(POINTER).write_text(f'{POINTER_MARK}\n[api]\nurl = "http://127.0.0.1:9/api"\n')
    assert facts_of(config).dead_records == ()
    os.utime(record_path(config.paths), (0, 0))  # the process id was given anew
    assert len(facts_of(config).dead_records) == 4


def test_a_server_on_an_open_port_is_seen(config: RunConfig, tmp_path: Path) -> None:
    program = tmp_path / "serve.py"
    program.write_text(
        "import socket, sys\ns = socket.socket()\ns.bind(('0.0.0.0', 0))\ns.listen()\n"
        "print(s.getsockname()[1], flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, str(program), "chroma run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        port = int(process.stdout.readline())
        found = [item for item in facts_of(config).listeners if item.port == port]
        process.stdin.close()
    assert [(item.service, item.host, item.pid, item.guarded) for item in found] == [("chroma", "0.0.0.0", process.pid, False)]


def test_the_installation_these_tests_run_in_is_sound(config: RunConfig) -> None:
    wrong = [finding.describe() for finding in examine(facts_of(config)) if finding.check in ("versions", "chroma")]
    assert wrong == []


def test_a_store_that_cannot_be_read_is_a_finding(config: RunConfig) -> None:
    (Path(config.paths.mlruns_dir) / "mlflow.db").write_text("this is no database, not even a small one")
    assert any("MLflow at" in finding.message for finding in examine(facts_of(config)))
