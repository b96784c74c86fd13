"""The isolation layers between a program and the machine, one name each.

All of them stand wherever programs are run. The escape suite takes single ones down to show that a program which failed would have
succeeded without them; no setting and no request can.
"""

from enum import StrEnum


class Layer(StrEnum):
    """One layer."""

    ROOT = "root"
    """The file system is an interpreter and nothing else; no /proc, /sys or /dev. Down: the host's, for reading."""
    READ_ONLY = "read_only"
    """Nothing can be written anywhere. Down: /tmp is a writable directory of the host."""
    ENVIRONMENT = "environment"
    """No variable of the server is passed on."""
    DESCRIPTORS = "descriptors"
    """No open file of the server is passed on."""
    PID = "pid"
    """Own process namespace."""
    NETWORK = "network"
    """Own network namespace, with no interface up."""
    IPC = "ipc"
    """Own System V IPC and POSIX message queues."""
    UTS = "uts"
    """Own host name."""
    CGROUP_VIEW = "cgroup_view"
    """Own cgroup namespace."""
    NESTING = "nesting"
    """No further user namespace can be made."""
    IDENTITY = "identity"
    """A user id that nobody else has and no capabilities. Down: that of the server."""
    SYSCALLS = "syscalls"
    """The seccomp filter."""
    RLIMITS = "rlimits"
    """Limits of the process: memory, CPU, processes, open files, file size, core dumps."""
    CGROUP = "cgroup"
    """Memory and process cgroup, where the server may make one."""
    CLOCK = "clock"
    """The server's clock. Down: no time limit for the program."""
    OUTPUT = "output"
    """The server's limit on what comes back."""
    CALLS = "calls"
    """The server's count of tool calls."""
    PATIENCE = "patience"
    """The server never waits for a program to read. Down: it does."""
    FRAMES = "frames"
    """The server's limit on the length of one message."""
    KILL = "kill"
    """The sandbox is killed as soon as the program has answered."""
    TOKEN = "token"
    """Calls reach only the tools of the session whose token came with the program. Down: the escape knows another's token."""


ALL_LAYERS = frozenset(Layer)
