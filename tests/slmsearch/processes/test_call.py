"""A real child process, without a model."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest

from slmsearch.errors import IndexUnusableError, ServiceError
from slmsearch.processes.allocator import PRELOAD, preload_variables
from slmsearch.processes.call import Child
from tests.slmsearch.training import far

pytestmark = pytest.mark.usefixtures("unforked")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def child():
    with Child() as child:
        yield child


def test_a_call_is_answered_from_another_process_and_tells_how_far_it_is(child):
    told = []
    facts = child.call(far.count_to, 3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert facts == {"pid": child.pid, "parent": os.getpid(), "group": child.pid}
    again = child.call("tests.slmsearch.training.far:count_to", number=0, progress=lambda *_: None)
    assert again == facts, "the same process, kept between two calls"


def test_it_can_be_started_ahead_and_import_what_calls_will_need(child):
    child.start(["wsgiref.headers"])
    pid = child.pid
    assert child.call(far.has_loaded, "wsgiref.headers") and not child.call(far.has_loaded, "wsgiref.handlers")
    assert child.pid == pid is not None


def test_what_a_call_loads_is_not_loaded_here(child):
    code = """
        import sys
        from slmsearch.processes.call import Child
        from tests.slmsearch.training import far
        with Child() as child:
            child.call(far.load_torch)
        sys.exit("torch" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, timeout=120).returncode == 0


def test_an_error_comes_out_by_its_own_class_and_the_child_goes_on(child):
    with pytest.raises(IndexUnusableError, match=r"^index gone: build it again$") as told:
        child.call(far.fail, "told")
    assert not hasattr(told.value, "__notes__")
    pid = child.pid
    with pytest.raises(KeyError, match="nobody foresaw it") as bug:
        child.call(far.fail, "bug")
    assert "far.py" in bug.value.__notes__[0], "where it happened"
    with pytest.raises(RuntimeError, match="UnpicklableError: lost at sea"):
        child.call(far.fail, "unpicklable")
    with pytest.raises(AttributeError, match="no_such_function"):
        child.call("tests.slmsearch.training.far:no_such_function")
    assert child.pid == pid


@pytest.mark.parametrize(("how", "words"), [("killed", "killed by SIGKILL: out of memory"), ("exit", "ended with exit code 4; see")])
def test_a_child_that_is_lost_is_told_and_started_again(child, how, words):
    with pytest.raises(ServiceError, match=f"the process that computed fail .*{words}") as lost:
        child.call(far.fail, how)
    assert "\n" not in str(lost.value) and child.pid is None
    assert child.call(far.count_to, 0, progress=lambda *_: None)["pid"] == child.pid


def test_what_it_logs_is_logged_here(child, caplog):
    child.call(far.warn)
    (record,) = [record for record in caplog.records if record.name == "slmsearch.far"]
    assert record.levelno == logging.WARNING and "3 o'clock" in record.getMessage()


class StoppedError(BaseException):
    """Like the SystemExit of a signal's handler."""


def test_who_is_interrupted_leaves_no_child(child):
    pids = []

    def interrupt(pid):
        pids.append(int(pid))
        raise StoppedError

    with pytest.raises(StoppedError):
        child.call(far.say_and_wait, progress=interrupt)
    assert child.pid is None and not psutil.pid_exists(pids[0])


def test_another_thread_ends_a_call(child):
    pids = []

    def interrupt(pid):
        pids.append(int(pid))
        thread = threading.Thread(target=child.interrupt)
        thread.start()
        thread.join()

    with pytest.raises(ServiceError, match="say_and_wait was killed by SIGKILL"):
        child.call(far.say_and_wait, progress=interrupt)
    assert child.pid is None and not psutil.pid_exists(pids[0])
    child.interrupt()
    assert child.call(far.count_to, 0, progress=lambda *_: None)["pid"] == child.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_child_dies_with_its_starter(number):
    code = """
        from slmsearch.processes.call import Child
        from tests.slmsearch.training import far
        Child().call(far.say_and_wait, progress=lambda pid: print(pid, flush=True))
    """
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    grandchild = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(number)
    starter.wait(60)
    starter.stdout.close()
    assert not psutil.wait_procs([grandchild], timeout=60)[1]


def test_it_has_the_fast_allocator_that_is_installed_unless_someone_chose(child, tmp_path, monkeypatch):
    for folder, name in (
        (tmp_path / "a", "libjemalloc.so.2"),
        (tmp_path / "b", "libtcmalloc_minimal.so.4"),
        (tmp_path, "libtcmalloc.so.4.5"),
    ):
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    found = {PRELOAD: str(tmp_path / "b/libtcmalloc_minimal.so.4")} if sys.platform == "linux" else {}
    assert preload_variables({}, [tmp_path / "a", tmp_path / "b"]) == found
    assert preload_variables({PRELOAD: ""}, [tmp_path / "b"]) == preload_variables({}, [tmp_path, tmp_path / "no"]) == {}
    monkeypatch.delenv(PRELOAD, raising=False)
    given = child.call(far.variable, PRELOAD)
    assert given == preload_variables().get(PRELOAD)
    assert PRELOAD not in os.environ and (not given or Path(given).name in Path(f"/proc/{child.pid}/maps").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="others keep their allocator")
def test_memory_that_a_call_has_freed_is_returned(child):
    child.call(far.fill, 1)
    before = psutil.Process(child.pid).memory_info().rss
    assert child.call(far.fill, 400) == 400
    assert psutil.Process(child.pid).memory_info().rss < before + (100 << 20)
