"""What the engine needs, what it is made of, and that it refuses to do without."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from slmsearch.config import SandboxConfig
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox import root, seccomp
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap, find_bwrap
from slmsearch.extensions.sandbox.cgroups import PREFIX, find_groups
from slmsearch.extensions.sandbox.pool import Pool
from slmsearch.extensions.sandbox.reaper import kill_orphans
from slmsearch.extensions.sandbox.root import prepare_root, root_key
from slmsearch.extensions.sandbox.server import make_engine

from .conftest import LIMITS, Kept  # type: ignore[import-not-found]


def with_tools(folder: Path, *names: str) -> str:
    """Make a PATH that holds nothing but these."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or "/nonexistent")
    return str(folder)


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", with_tools(tmp_path / "bin"))
    with pytest.raises(SandboxError, match=r"bubblewrap is missing, so no program is run; install it .*apt-get install bubblewrap"):
        make_engine(SandboxConfig(), tmp_path)


def test_an_old_bubblewrap_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(SandboxError, match=r"bubblewrap 0\.6\.1 is too old, 0\.8 is needed"):
        find_bwrap()


def test_without_libseccomp_nothing_is_run(engine: Bubblewrap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SandboxError, match="so no program is run; install libseccomp"):
        Bubblewrap(LIMITS, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only a server that is root needs setpriv")
def test_root_without_a_way_to_be_nobody_runs_nothing(engine: Bubblewrap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", with_tools(tmp_path / "bin", "bwrap", "ldd"))
    with pytest.raises(SandboxError, match="setpriv is missing, so no program is run"):
        Bubblewrap(LIMITS, tmp_path / "state")


def test_a_bubblewrap_that_fails_gives_its_own_words(engine: Bubblewrap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = Bubblewrap(LIMITS, tmp_path)
    monkeypatch.setattr(broken, "_bwrap", "/bin/sh")  # which does not know the options either
    instance = broken.start()
    with pytest.raises(SandboxError, match=r"/bin/sh: .*option.*user namespaces must be allowed"):
        instance.wait_until_ready(10.0)
    assert instance.terminate()
    broken.close()


def test_the_filter_is_a_list_of_what_is_allowed() -> None:
    program = seccomp.build_filter()
    assert len(program) % 8 == 0 and program == seccomp.build_filter()
    forbidden = {
        "ptrace", "mount", "umount2", "keyctl", "add_key", "bpf", "io_uring_setup", "clone", "clone3", "fork", "vfork", "unshare", "setns",
        "socket", "socketpair", "connect", "kill", "tgkill", "tkill", "perf_event_open", "userfaultfd", "process_vm_readv", "chroot",
        "pivot_root", "open_by_handle_at", "memfd_create", "execveat", "prctl", "setuid", "capset", "personality", "mknod", "symlink",
        "link", "unlink", "rename", "mkdir", "chdir", "dup2", "pipe2", "shmget", "msgget", "mq_open", "sendmsg", "recvmsg", "mlock",
    }  # fmt: skip
    assert forbidden.isdisjoint(seccomp.FREE)


def test_the_root_is_made_once_and_named_by_its_content(tmp_path: Path) -> None:
    first = prepare_root(tmp_path)
    changed = (first / "runner.pyc").stat().st_mtime_ns
    assert prepare_root(tmp_path) == first
    assert (first / "runner.pyc").stat().st_mtime_ns == changed
    assert root_key() in first.name
    assert not first.stat().st_mode & 0o022


def test_the_root_holds_no_package_and_nothing_that_can_be_written(engine: Bubblewrap) -> None:
    names = {path.name for path in engine.root.rglob("*")}
    assert not {"site-packages", "ensurepip", "idlelib", "tkinter"} & names
    assert {path.name for path in engine.root.iterdir()} <= {"complete", "lib", "lib64", "python", "runner.pyc", "tmp", "usr"}
    assert not [path for path in engine.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert not [path for path in engine.root.rglob("*") if path.lstat().st_mode & 0o6000]


@pytest.mark.skipif(os.getuid() != 0, reason="only root meets strangers' folders in /tmp")
def test_a_folder_somebody_else_put_there_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = tmp_path / f"slmsearch-sandbox-{os.getuid()}-{root_key()}"
    theirs.mkdir()
    (theirs / "complete").touch()
    os.chown(theirs, 12345, 12345)
    monkeypatch.setattr(root, "_open_to_all", lambda path: True)
    with pytest.raises(SandboxError, match="cannot be made"):
        prepare_root(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [theirs.name], "what was begun is gone"


def test_what_killed_servers_left_is_removed(engine: Bubblewrap) -> None:
    if (groups := find_groups()) is None:
        pytest.skip("no cgroup can be made here")
    parents = {parent.parent for parent in groups.parents}
    groups.close()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [parent / f"{PREFIX}{dead.pid}-abc" for parent in parents]
    for directory in left:
        (directory / "7").mkdir(parents=True)
    again = find_groups()
    assert again is not None
    assert not any(directory.exists() for directory in left)
    again.close()


def test_cgroups_of_version_2(tmp_path: Path) -> None:
    """The kernel here has version 1, so its files are stood in for; what is written to them is what cgroup-v2(7) says."""
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "membership").write_text("0::/user.slice\n")
    groups = find_groups(tmp_path, tmp_path / "membership")
    assert groups is not None and groups.version == 2
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = groups.make("1", 123)
    (directory,) = group.directories
    assert (directory / "memory.max").read_text() == "123"
    assert (directory / "pids.max").read_text() == "8"
    assert (directory / "memory.swap.max").read_text() == "0"
    assert group.joined_by == [str(directory / "cgroup.procs")]


def test_where_no_cgroup_can_be_made_it_is_said(engine: Bubblewrap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("slmsearch.extensions.sandbox.bubblewrap.find_groups", lambda: None)
    alone = Bubblewrap(LIMITS, tmp_path)
    assert "cgroup" not in alone.layers
    assert "no cgroup can be made here" in alone.notes[0]
    instance = alone.start()
    instance.wait_until_ready(60.0)
    assert instance.terminate()


def test_a_pool_keeps_cells_warm_and_leaves_nothing_behind(engine: Bubblewrap) -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = Pool(Kept(engine), 2)
    instances = [pool.take(60.0) for _ in range(3)]
    assert all(instance.is_alive() for instance in instances)
    for instance in instances:
        pool.discard(instance)
    pool.close()
    assert not any(instance.is_alive() for instance in instances)
    assert pool.lost == 0
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_pool_that_has_no_cell_in_time_says_so(engine: Bubblewrap) -> None:
    class Slow(Kept):  # type: ignore[misc]
        def start(self) -> Any:
            time.sleep(0.3)
            return super().start()

    pool = Pool(Slow(engine), 1)
    with pytest.raises(SandboxError, match="no sandbox was free within"):
        pool.take(0.01)
    pool.close()


SERVER = """
import sys, time
from pathlib import Path
from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap
from slmsearch.extensions.sandbox.pool import Pool
pool = Pool(Bubblewrap(ProgramLimits(), Path(sys.argv[1])), 2)
instances = [pool.take(60.0) for _ in range(2)]
instances[0].channel.send({"program": "while True: pass", "tools": [], "limits": None, "output_chars": 0}, None)
print(*[instance._pid for instance in instances], flush=True)
time.sleep(600)
"""


def test_a_killed_server_leaves_no_program_running(engine: Bubblewrap, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"\d+ \d+\n", line)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 6, "two that wait and two at work, each with bubblewrap's own process, and the nanny"
    process.kill()
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10.0)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    if (groups := find_groups()) is not None:
        assert not [left for parent in groups.parents for left in parent.parent.glob(f"{PREFIX}{process.pid}-*")]
        groups.close()


LEAVE = """
import subprocess, sys
arguments = ["/usr/bin/bwrap", "-c", "import time; time.sleep(600)", "--ro-bind", sys.argv[1]]
child = subprocess.Popen(arguments, executable=sys.executable, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_bubblewrap_leaves_is_found(engine: Bubblewrap) -> None:
    """A child that waits for its dead `bwrap`, as one does that was killed in the instant after it made the child."""
    bystander = engine.start()
    bystander.wait_until_ready(60.0)
    command = [sys.executable, "-c", LEAVE, str(engine.root)]
    leader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None and leader.stdin is not None
    stuck = psutil.Process(int(leader.stdout.readline()))
    assert kill_orphans(str(engine.root)) == [], "its bwrap lives"
    leader.kill()
    leader.communicate()
    assert kill_orphans("/nowhere") == [], "somebody else's"
    assert kill_orphans(str(engine.root)) == [stuck.pid]
    gone, _ = psutil.wait_procs([stuck], timeout=10.0)
    assert gone or stuck.status() == psutil.STATUS_ZOMBIE
    assert bystander.is_alive(), "an instance with a living server is left alone"
    assert bystander.terminate()
