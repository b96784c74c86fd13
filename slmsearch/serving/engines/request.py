"""Requests to serve a model, and endpoints of servers: plain values."""

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
    """Model that the engine loads: a path, a Hub id, or a name of Ollama's library."""
    name: str
    """Name that clients use."""
    port: int
    host: str = LOOPBACK
    """Address to listen on."""
    parallel: int | None = None
    """Number of requests served at once; further ones wait."""
    ctx_size: int | None = None
    """Tokens one request may have, prompt and answer together."""
    gpu_memory: float | None = None
    """Share of the GPU's memory the server may take, 0-1; 0 keeps it on the CPU."""
    adapters: tuple[tuple[str, str], ...] = ()
    """LoRA adapters: name and path."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: str = "auto"
    """Type of the weights, if the engine offers a choice."""
    extra: tuple[str, ...] = ()
    """Further arguments for the server, passed on unchanged."""

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
    """Address that clients use as `base_url`."""
    model: str
    """Name that clients use for the model, or for the adapter if there is one."""
    kind: Literal["ollama", "openai"]
    """Protocol, as `judge.kind` names it."""
    pid: int | None = None
    """Process id of the server; None if it was not started here."""
    log: str | None = None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(base_url: str) -> tuple[str, int]:
    """Return host and port of an HTTP address; the port defaults to the scheme's.

    Raises:
        ValueError: it is no HTTP address.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base_url!r} is no HTTP address")
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
