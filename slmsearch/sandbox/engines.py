"""The engine that the settings name."""

from pathlib import Path

from slmsearch.config import SandboxConfig
from slmsearch.sandbox.engine import Engine


def make_engine(config: SandboxConfig, state_dir: Path, compose_file: Path | None = None) -> Engine:
    """Make the configured engine.

    Args:
        config: which engine, its limits.
        state_dir: where the file system of the instances is kept.
        compose_file: for `docker`.

    Raises:
        SandboxError: this machine lacks what it needs; the message has the line that installs it.
    """
    if config.engine == "docker":
        from slmsearch.sandbox.docker import Docker

        return Docker(config, compose_file)
    from slmsearch.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap(config.limits, state_dir)
