"""The allowed system calls of a program: those a Python interpreter cannot start or run without, and no others.

It lists the allowed calls. Other calls fail with EPERM, which Python shows as an error; a call of another architecture kills the process. A
program can make no process or thread, open no socket, pipe or file for writing, make no memory executable except by mapping the
interpreter's own libraries, and send no signal.

bubblewrap gets it as BPF; Docker as JSON, `deployments/sandbox-seccomp.json`, which
`python -m slmsearch.extensions.sandbox.seccomp` prints.
"""

import errno
import json
import mmap
import os
from dataclasses import dataclass

from slmsearch.errors import SandboxError

REMEDY = "install libseccomp (Debian, Ubuntu: apt-get install libseccomp2; Fedora: dnf install libseccomp)"

FREE = (
    # Files: what is open, and looking for modules below the read-only root.
    "access", "close", "faccessat", "faccessat2", "fstat", "getcwd", "getdents64", "lseek", "lstat", "newfstatat", "pread64", "read",
    "readlink", "readlinkat", "readv", "stat", "statx", "write", "writev",
    # Memory.
    "brk", "madvise", "mremap", "munmap",
    # Oneself.
    "arch_prctl", "exit", "exit_group", "futex", "getegid", "geteuid", "getgid", "getpid", "getppid", "getrandom", "getresgid",
    "getresuid", "gettid", "getuid", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "set_robust_list", "set_tid_address",
    "sigaltstack", "sysinfo", "uname", "restart_syscall", "sched_getaffinity", "sched_yield",
    # Time.
    "clock_getres", "clock_gettime", "clock_nanosleep", "getrusage", "gettimeofday", "nanosleep", "time", "times",
    # bubblewrap starts the interpreter with it, under this filter; there is nothing else to start.
    "execve",
)  # fmt: skip
"""Calls that are allowed with any arguments."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
F_GETFD, F_SETFD, F_GETFL = 1, 2, 3
F_DUPFD_CLOEXEC = 1030
FIOCLEX = 0x5451
"""Command of `ioctl` that Python sends for every file it opens."""
PROT_EXEC = mmap.PROT_EXEC
MISSING = ("clone3", "openat2", "close_range")
"""Calls that fail with ENOSYS, so that a C library falls back to older ones."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Required value of an argument of a call."""

    index: int
    value: int
    mask: int | None = None
    """Bits of the argument that are compared; None: all."""


@dataclass(frozen=True, slots=True)
class SyscallRule:
    """A call that is allowed if all conditions hold."""

    name: str
    conditions: tuple[Condition, ...] = ()


RULES = (
    *(SyscallRule(name) for name in FREE),
    SyscallRule("open", (Condition(1, 0, WRITING),)),
    SyscallRule("openat", (Condition(2, 0, WRITING),)),
    # Memory that is executable comes from a file, and there is no file but the interpreter's; what is writable is never executable.
    SyscallRule("mmap", (Condition(2, 0, PROT_EXEC),)),
    SyscallRule("mmap", (Condition(2, PROT_EXEC, PROT_EXEC | mmap.PROT_WRITE), Condition(3, 0, mmap.MAP_ANONYMOUS))),
    SyscallRule("mprotect", (Condition(2, 0, PROT_EXEC),)),
    *(SyscallRule("fcntl", (Condition(1, command),)) for command in (F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC)),
    SyscallRule("ioctl", (Condition(1, FIOCLEX),)),
    # Limits may be read and set, of oneself; what was lowered cannot be raised again.
    SyscallRule("prlimit64", (Condition(0, 0),)),
)
"""All allowed calls."""

RUNC = (SyscallRule("fstatfs"), SyscallRule("openat", (Condition(2, os.O_WRONLY | os.O_CLOEXEC),)))
"""System calls of Docker's runc behind the filter before the interpreter starts: it looks for open files and opens a pipe for writing. A
program may then open files for writing, but only its own files in /proc are writable; all others are read-only."""


def build_filter() -> bytes:
    """Compile the filter to BPF, as `bwrap --seccomp` reads it.

    Raises:
        SandboxError: libseccomp is missing.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxError(f"no filter for system calls can be built ({error}), so no program is run; {REMEDY}") from error
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))

    def compare(condition: Condition) -> object:
        if condition.mask is None:
            return pyseccomp.Arg(condition.index, pyseccomp.EQ, condition.value)
        return pyseccomp.Arg(condition.index, pyseccomp.MASKED_EQ, condition.mask, condition.value)

    absent = pyseccomp.ERRNO(errno.ENOSYS)
    for action, rule in (*((pyseccomp.ALLOW, rule) for rule in RULES), *((absent, SyscallRule(name)) for name in MISSING)):
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, rule.name) >= 0:  # else this architecture never had it
            rules.add_rule_exactly(action, rule.name, *map(compare, rule.conditions))
    with os.fdopen(os.memfd_create("slmsearch-seccomp"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def docker_profile() -> dict[str, object]:
    """Return the filter in Docker's format; calls of another architecture than the machine's kill the process there, too."""

    def compare(condition: Condition) -> dict[str, int | str]:
        if condition.mask is None:
            return {"index": condition.index, "value": condition.value, "op": "SCMP_CMP_EQ"}
        return {"index": condition.index, "value": condition.mask, "valueTwo": condition.value, "op": "SCMP_CMP_MASKED_EQ"}

    rules = (*RULES, *RUNC)
    free = {"names": [rule.name for rule in rules if not rule.conditions], "action": "SCMP_ACT_ALLOW"}
    conditional = [
        {"names": [rule.name], "action": "SCMP_ACT_ALLOW", "args": list(map(compare, rule.conditions))} for rule in rules if rule.conditions
    ]
    missing = {"names": list(MISSING), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS}
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno.EPERM, "syscalls": [free, *conditional, missing]}


if __name__ == "__main__":
    print(json.dumps(docker_profile(), indent=1))
