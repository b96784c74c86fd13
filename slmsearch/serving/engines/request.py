"""What is to be served, and where it then is: plain values."""

import ipaddress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from slmsearch.processes.ports import LOOPBACK

Role = Literal["judge", "policy"]
ROLES: tuple[Role, ...] = ("judge", "policy")


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """One server to start. None leaves a choice to the engine."""

    role: Role
    model: str
    """What the engine loads: a path, a Hub id, or a name of Ollama's library."""
    name: str
    """Name by which clients ask for it."""
    port: int
    host: str = LOOPBACK
    """Address to listen on."""
    parallel: int | None = None
    """Requests worked on at once; further ones wait."""
    ctx_size: int | None = None
    """Tokens one request may have, prompt and answer together."""
    gpu_memory: float | None = None
    """Share of the GPU's memory the server may take, 0-1; 0 keeps it on the CPU."""
    adapters: tuple[tuple[str, str], ...] = ()
    """LoRA adapters: name and path."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: str = "auto"
    """Type of the weights, where the engine lets one choose."""
    extra: tuple[str, ...] = ()
    """Arguments for the server itself, as they are."""

    @property
    def origin(self) -> str:
        """Address of the server for clients on this machine, without a path."""
        host = LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that answers."""

    role: Role
    engine: str
    base_url: str
    """What clients take as `base_url`."""
    model: str
    """Name by which clients ask for the model, or for the adapter where there is one."""
    kind: Literal["ollama", "openai"]
    """Protocol, as `judge.kind` names it."""
    pid: int | None = None
    """Process id of the server; None where it was not started here."""
    log: str | None = None


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(base_url: str) -> tuple[str, int]:
    """Return host and port of an HTTP address; the port is the scheme's where none is given.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is no HTTP address")
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
