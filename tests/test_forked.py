"""The process that others are forked from: it only saves the time of loading; ends and exit codes are those of a process of its own."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from slmsearch.processes.call import Child
from tests.forked.sitecustomize import find_module

pytestmark = pytest.mark.skipif("TESTS_FORK_SERVER" not in os.environ, reason="only where processes of tests share the work")


def test_a_child_is_a_fork_and_ends_with_whom_it_stands_for() -> None:
    with Child() as child:
        pid = child.call("os:getpid")
        assert pid != child.pid
        fork = psutil.Process(pid)
        child.stop()
        psutil.wait_procs([fork], timeout=30)
        assert not fork.is_running()


def test_exit_codes_and_signals_are_handed_over() -> None:
    command = [sys.executable, "-m", "slmsearch.training.launch"]
    broken = subprocess.run([*command, "/nowhere.json"], capture_output=True, text=True)
    assert broken.returncode == 1 and "/nowhere.json" in broken.stderr
    read, write = os.pipe()
    waiting = subprocess.Popen([*command, f"/dev/fd/{read}"], pass_fds=(read,))  # reading its job, it waits
    try:
        os.write(write, b"{")
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(60) == -signal.SIGTERM
    finally:
        waiting.kill()
        os.close(read)
        os.close(write)


def test_only_named_modules_are_forked() -> None:
    assert find_module(["python", "-P", "-m", "slmsearch.processes.call", "7"]) == 3
    assert not find_module(["python", "-m", "pip", "slmsearch.processes.call"])
    assert not find_module(["python", "-m"]) and not find_module(["python", "-c", "import torch"])
