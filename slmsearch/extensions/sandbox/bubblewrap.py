"""The engine `bubblewrap`: namespaces, an empty root, no network, a filter for system calls, a user id of its own.

    server ── sh ─▶ setpriv ─▶ bwrap ── clone ─▶ interpreter (process 1 of its namespace)
              joins the cgroup, becomes nobody, builds the layers; each is the same process, executed anew

A server that is not root leaves `sh` and `setpriv` out: it has no rights to give up. The interpreter dies with bwrap, and bwrap with
the thread of the server that started it.
"""

import itertools
import json
import os
import select
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from slmsearch.config import LimitsConfig
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.cgroups import Group, find_groups
from slmsearch.extensions.sandbox.engine import LAYERS, Instance, open_process
from slmsearch.extensions.sandbox.reaper import kill_orphans, start_reaper
from slmsearch.extensions.sandbox.root import LIBRARIES, PYTHON, RUNNER, prepare_root
from slmsearch.extensions.sandbox.seccomp import build_filter

INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap), or set sandbox.engine=docker"
MIN_VERSION = (0, 8)
"""First version that can forbid nested user namespaces."""
FIRST_UID = 1_879_048_192
"""User id below the end of the range, where no distribution, container engine or directory service hands out ids."""
INSIDE_ID = "65534"
JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@"'
TERMINATE_SECONDS = 5.0
CGROUP_HEADROOM = 64 * 1024 * 1024
"""Memory of bubblewrap and the kernel for an instance, beside the interpreter's own memory."""
HINT = "user namespaces must be allowed: sysctl user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns"
NO_GROUP = "no cgroup can be made here: user id, system call filter and process limits stand alone"


class Bubblewrap:
    """Engine that starts instances with `bwrap`."""

    name = "bubblewrap"
    _inside = ""
    """Path of the prepared files inside an instance."""

    def __init__(self, limits: LimitsConfig, state_dir: Path) -> None:
        """Check the machine; of the limits only the cgroup's memory is used, the others are set when a program comes.

        Raises:
            SandboxError: something is missing; the message has the line that installs it.
        """
        self._bwrap = find_bwrap()
        self._filter = build_filter()
        self.root = prepare_root(state_dir)
        kill_orphans(str(self.root))
        self._memory_bytes = limits.memory_mb * 1024 * 1024 + CGROUP_HEADROOM
        self._numbers = itertools.count()
        self._setpriv = shutil.which("setpriv")
        if os.getuid() == 0 and self._setpriv is None:
            raise SandboxError("the server runs as root and setpriv is missing, so no program is run; apt-get install util-linux")
        # Last, because it leaves directories behind that `close` removes.
        self._groups = find_groups()
        self.layers = frozenset(LAYERS) - (set() if self._groups else {"cgroup"})
        self.notes: tuple[str, ...] = () if self._groups else (NO_GROUP,)

    def start(self) -> "BubblewrapInstance":
        """See `SandboxEngine.start`."""
        number = next(self._numbers)
        try:
            group = self._groups.make(str(number), self._memory_bytes) if self._groups else None
        except OSError as error:
            raise SandboxError(f"no cgroup can be made ({error}); remove what is left of killed servers, or restart this one") from error
        try:
            return self._spawn(number, group)
        except OSError as error:
            if group is not None:
                group.remove()
            raise SandboxError(f"bubblewrap cannot be started ({error}); free processes or file descriptors") from error

    def _spawn(self, number: int, group: Group | None) -> "BubblewrapInstance":
        filter_fd, filter_in = os.pipe()
        info_fd, info_in = os.pipe()
        try:
            os.write(filter_in, self._filter)
            os.close(filter_in)
            options = [option for layer in self._layer_options(filter_fd).values() for option in layer]
            bwrap = [self._bwrap, "--die-with-parent", "--new-session", "--info-fd", str(info_in), *options]
            libraries = ["--chdir", "/", "--setenv", "LD_LIBRARY_PATH", f"{self._inside}{LIBRARIES}"]
            interpreter = [f"{self._inside}{PYTHON}", "-I", "-S", "-B", f"{self._inside}{RUNNER}"]
            process = self._open([*self._prelude(number, group), *bwrap, *libraries, *interpreter], (filter_fd, info_in))
        except BaseException:
            os.close(info_fd)
            raise
        finally:
            os.close(filter_fd)
            os.close(info_in)
        return BubblewrapInstance(process, info_fd, group)

    def _open(self, command: list[str], fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        return open_process(command, {}, "/", fds)

    def _prelude(self, number: int, group: Group | None) -> list[str]:
        """Return the shell commands that join the cgroup and, for a server that is root, switch to `nobody`."""
        join = ["/bin/sh", "-c", JOIN, "join", *group.joined_by, "--"] if group else []
        if os.getuid() != 0:
            return join
        identity = str(FIRST_UID + os.getpid() % 65536 * 4096 + number % 4096)
        nobody = [f"--reuid={identity}", f"--regid={identity}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        return [*join, str(self._setpriv), *nobody]

    def _layer_options(self, filter_fd: int) -> dict[str, list[str]]:
        """Return the options of bwrap that make each layer."""
        return {
            "pid": ["--unshare-pid", "--as-pid-1"],
            "network": ["--unshare-net"],
            "ipc": ["--unshare-ipc"],
            "uts": ["--unshare-uts", "--hostname", "sandbox"],
            "cgroup_view": ["--unshare-cgroup-try"],
            "identity": ["--unshare-user", "--uid", INSIDE_ID, "--gid", INSIDE_ID, "--cap-drop", "ALL"],
            "nesting": ["--disable-userns"],
            "environment": ["--clearenv"],
            "root": ["--ro-bind", str(self.root), "/"],
            "syscalls": ["--seccomp", str(filter_fd)],
        }

    def start_reaper(self) -> subprocess.Popen[bytes]:
        """See `SandboxEngine.start_reaper`."""
        groups = [str(parent) for parent in self._groups.parents] if self._groups else []
        return start_reaper(marker=str(self.root), groups=groups)

    def close(self) -> None:
        """See `SandboxEngine.close`."""
        if self._groups is not None:
            self._groups.close()


class BubblewrapInstance(Instance):
    """See `Instance`."""

    def __init__(self, process: subprocess.Popen[bytes], info_fd: int, group: Group | None) -> None:
        super().__init__(process, "bubblewrap", HINT)
        self._group = group
        self._info_fd: int | None = info_fd
        self._pid = 0
        self._pidfd: int | None = None

    def _find_interpreter(self) -> None:
        """Hold the interpreter by a descriptor, which stays valid when its process number is reused."""
        if self._info_fd is None:
            raise ValueError("it was terminated")
        self._pid = int(json.loads(os.read(self._info_fd, 4096))["child-pid"])
        self._pidfd = os.pidfd_open(self._pid)
        parent = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[1]
        if int(parent) != self._process.pid:
            raise ValueError("its interpreter ended")

    def is_alive(self) -> bool:
        """See `Instance.is_alive`."""
        with self._lock:
            return self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]

    def kill(self) -> None:
        """See `Instance.kill`."""
        # One that has not come up has no program to end. Killing bwrap while it makes its child could leave that waiting for ever.
        with self._lock, suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def terminate(self) -> bool:
        """See `Instance.terminate`."""
        if self._pidfd is None and self._info_fd is not None:
            with suppress(SandboxError):
                self.wait_until_ready(TERMINATE_SECONDS)
        self.kill()
        gone = self._has_ended(TERMINATE_SECONDS)
        if not gone:
            self._process.kill()
            gone = self._has_ended(TERMINATE_SECONDS)
        self._close_pipes()
        with self._lock:
            for fd in (self._info_fd, self._pidfd):
                if fd is not None:
                    os.close(fd)
            self._info_fd = self._pidfd = None
        return (self._group is None or self._group.remove()) and gone


def find_bwrap() -> str:
    """Find a `bwrap` that is recent enough.

    Raises:
        SandboxError: there is none.
    """
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxError(f"bubblewrap is missing, so no program is run; {INSTALL}")
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.split()
    version = tuple(int(part) for part in said[-1].split(".")) if said and said[-1].replace(".", "").isdecimal() else ()
    if version < MIN_VERSION:
        raise SandboxError(f"bubblewrap {'.'.join(map(str, version))} is too old, 0.8 is needed; {INSTALL}")
    return path
