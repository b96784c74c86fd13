"""The system calls a program may make: those a Python interpreter cannot start or run without, and no others.

It is a list of what is allowed. What is not named fails with EPERM, which Python shows as an error; a call of another architecture
kills the process. No process or thread can be made, no socket, pipe or file for writing opened, no memory made executable
except by mapping the interpreter's own libraries, and nothing sent a signal.
"""

import errno
import mmap
import os
from typing import Any

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
"""Allowed whatever their arguments."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
F_GETFD, F_SETFD, F_GETFL = 1, 2, 3
F_DUPFD_CLOEXEC = 1030
FIOCLEX = 0x5451
"""Python sets it on every file it opens."""
PROT_EXEC = mmap.PROT_EXEC
MISSING = ("clone3", "openat2", "close_range")
"""Fail with ENOSYS, so that a C library falls back to what it did before they existed."""


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
    for name in FREE:
        _allow(pyseccomp, rules, name)
    _allow_with_arguments(pyseccomp, rules)
    for name in MISSING:
        _add(pyseccomp, rules, pyseccomp.ERRNO(errno.ENOSYS), name)
    return _export(rules)


def _allow_with_arguments(pyseccomp: Any, rules: Any) -> None:
    arg, equal, masked = pyseccomp.Arg, pyseccomp.EQ, pyseccomp.MASKED_EQ
    for name, flags in (("open", 1), ("openat", 2)):
        _allow(pyseccomp, rules, name, arg(flags, masked, WRITING, 0))
    # Memory that is executable comes from a file, and there is no file but the interpreter's; what is writable is never executable.
    _allow(pyseccomp, rules, "mmap", arg(2, masked, PROT_EXEC, 0))
    _allow(pyseccomp, rules, "mmap", arg(2, masked, PROT_EXEC | mmap.PROT_WRITE, PROT_EXEC), arg(3, masked, mmap.MAP_ANONYMOUS, 0))
    _allow(pyseccomp, rules, "mprotect", arg(2, masked, PROT_EXEC, 0))
    for command in (F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC):
        _allow(pyseccomp, rules, "fcntl", arg(1, equal, command))
    _allow(pyseccomp, rules, "ioctl", arg(1, equal, FIOCLEX))
    # Limits may be read and set, of oneself; what was lowered cannot be raised again.
    _allow(pyseccomp, rules, "prlimit64", arg(0, equal, 0))


def _allow(pyseccomp: Any, rules: Any, name: str, *arguments: Any) -> None:
    _add(pyseccomp, rules, pyseccomp.ALLOW, name, *arguments)


def _add(pyseccomp: Any, rules: Any, action: int, name: str, *arguments: Any) -> None:
    if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:  # else this architecture never had it
        rules.add_rule_exactly(action, name, *arguments)


def _export(rules: Any) -> bytes:
    with os.fdopen(os.memfd_create("slmsearch-seccomp"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
