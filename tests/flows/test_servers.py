import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.runtime import servers
from flows.runtime.api import UpRecord, find_pages, find_up, page_path, password_for, password_path, record_path, write_record
from flows.runtime.servers import Supervised, start_service, wait_until_ready
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.errors import ServiceError
from slmsearch.http_client import answers
from slmsearch.processes.child import ChildProcess
from slmsearch.processes.ports import free_port, require_free_port

PASSWORD = "slmsearch:word"


def serve_folder(folder: Path, port: int) -> ChildProcess:
    arguments = ["http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    return start_service("a web server", arguments, folder / "server.log")


def test_a_service_is_started_waited_for_and_stopped(tmp_path: Path) -> None:
    port = free_port()
    service = serve_folder(tmp_path, port)
    wait_until_ready(service, f"http://127.0.0.1:{port}/", timeout_s=30)
    assert service.is_alive
    with pytest.raises(ServiceError, match=f"port {port} is in use"):
        require_free_port(port, "--port")
    service.stop(grace_s=5)
    assert not service.is_alive
    assert not answers(f"http://127.0.0.1:{port}/", timeout_s=1)


def test_an_address_of_another_machine_is_no_port_in_use() -> None:
    with pytest.raises(ServiceError, match=r"^cannot listen on 192\.0\.2\.1 \(.*; give an address of this machine"):
        require_free_port(free_port(), "--port", "192.0.2.1")


def test_a_service_that_ends_at_once_is_named_with_its_last_words(tmp_path: Path) -> None:
    service = start_service("the oracle", ["no_such_module"], tmp_path / "oracle.log")
    with pytest.raises(ServiceError, match=r"the oracle ended at once.*No module named no_such_module"):
        wait_until_ready(service, "http://127.0.0.1:9/", timeout_s=30)


def test_a_service_that_does_not_listen_to_reason_is_killed(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)\n"
    )
    service = start_service("stubborn", ["stubborn"], tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    while "up" not in (tmp_path / "log").read_text():
        time.sleep(0.05)
    service.stop(grace_s=0.2)
    assert service.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_service_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom flows.runtime.servers import start_service\n"
        f"service = start_service('web', ['http.server', '{free_port()}'], Path({str(tmp_path / 'log')!r}))\n"
        "print(service.process.pid, flush=True)\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child.wait(10)


def test_a_record_counts_while_its_process_lives_and_its_server_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(paths=PathsConfig(data_dir=str(tmp_path)))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert find_up(config.paths) is None
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        api = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        write_record(config.paths, UpRecord(os.getpid(), api, "ui", "mlflow"), PASSWORD)
        assert find_up(config.paths) is None, "nobody answers there"
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "health").write_text("true")
    port = free_port()
    service = serve_folder(tmp_path, port)
    wait_until_ready(service, f"http://127.0.0.1:{port}/", timeout_s=30)
    record = UpRecord(os.getpid(), f"http://127.0.0.1:{port}/api", "ui", "mlflow")
    write_record(config.paths, record, PASSWORD)
    assert find_up(config.paths) == record
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert find_pages(config.paths) == "ui"
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api/")
    assert find_pages(config.paths) == "https://prefect.example", "that of the server in use"
    monkeypatch.setenv("PREFECT_UI_URL", "https://pages.example")
    assert find_pages(config.paths) == "https://pages.example"
    monkeypatch.setenv("PREFECT_SERVER_UI_ENABLED", "False")
    assert find_pages(config.paths) is None, "a server of the run's own"
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "team:word")
    assert password_for(config.paths, record.api) == PASSWORD
    assert password_for(config.paths, "http://elsewhere/api") == "team:word", "what lets one in here is sent nowhere else"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (password_path(config.paths), page_path(config.paths))] == [0o600] * 2
    password_path(config.paths).unlink()
    with pytest.raises(ServiceError, match="use it as the user who started `slmsearch up`"):
        password_for(config.paths, record.api)
    write_record(config.paths, UpRecord(2**22 - 3, record.api, "ui", "mlflow"), PASSWORD)
    assert find_up(config.paths) is None, "its process is gone"
    record_path(config.paths).write_text("{broken")
    assert find_up(config.paths) is None
    service.stop()


def test_a_log_is_private_and_a_long_one_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LOG_BYTES", 100)
    log = tmp_path / "logs" / "server.log"
    for _ in range(3):
        service = start_service("a server", ["this"], log)
        service.process.wait(60)
    aside = log.with_suffix(".old.log")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log, aside)] == [0o600] * 2
    assert sorted(path.name for path in log.parent.iterdir()) == ["server.log", "server.old.log"]


def test_the_log_of_a_service_that_runs_for_months_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LOG_BYTES", 100)
    port, log = free_port(), tmp_path / "server.log"
    service = Supervised(lambda: start_service("a server", ["http.server", str(port), "--bind", "127.0.0.1"], log))
    wait_until_ready(service.service, f"http://127.0.0.1:{port}/", timeout_s=30)
    while log.stat().st_size <= 100:
        assert answers(f"http://127.0.0.1:{port}/")
    assert not service.fix_findings(print) and log.stat().st_size == 0 and log.with_suffix(".old.log").stat().st_size > 100
    assert answers(f"http://127.0.0.1:{port}/")
    service.stop()
    assert b"\0" not in log.read_bytes() and log.read_bytes(), "it goes on at the beginning"


def test_what_a_service_starts_finds_no_variable_that_reads_like_a_setting(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(
        "from flows.runtime.settings import load_config, read_environment\nload_config(environment=read_environment())\n"
    )
    service = start_service("told", ["told"], tmp_path / "log", {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert service.wait(120) == 0, (tmp_path / "log").read_text()
    service.stop()
