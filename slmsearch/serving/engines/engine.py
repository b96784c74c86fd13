"""Base class of engines: the facts that the supervisor needs of one."""

import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal

import psutil

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.http_client import answers, list_models
from slmsearch.processes.ports import find_listener
from slmsearch.serving.engines.request import Role, ServeRequest

Say = Callable[[str], None]


class ServerEngine:
    """One kind of server. It uses OpenAI's protocol unless it says otherwise."""

    name: ClassVar[str]
    title: ClassVar[str]
    """Name as its makers write it."""
    program: ClassVar[str]
    """Name of its program on the PATH."""
    kind: ClassVar[Literal["ollama", "openai"]] = "openai"
    """Protocol."""
    ports: ClassVar[Mapping[Role, int]] = {"judge": 8000, "policy": 8001}
    """Default port; that of a judge is also the default of `judge.kind=openai`."""
    install: ClassVar[str]
    """Instructions to install it, for a message."""
    memory_advice: ClassVar[str]
    """Advice after memory ran out; names the settings."""
    health_path: ClassVar[str] = "/health"
    """Path that answers with 200 when the model is loaded, and not before."""
    remedies: ClassVar[Mapping[str, str]] = {}
    """Regular expression for a line of the log -> advice."""

    def check(self, request: ServeRequest) -> None:
        """Refuse requests that this engine cannot serve.

        Raises:
            ConfigError: the engine does not support an option or a kind of model.
            ModelError: model or adapter does not exist.
        """

    def find(self, request: ServeRequest) -> list[str]:
        """Return the path of the server's program on this machine: the one beside this interpreter, else that of the PATH.

        Raises:
            ServiceError: it is not installed; the message holds the command that installs it.
        """
        program = shutil.which(self.program, path=str(Path(sys.executable).parent)) or shutil.which(self.program)
        if program is None:
            raise ServiceError(f"{self.title} is not installed: {self.install}")
        return [program]

    def prepare(self, request: ServeRequest, say: Say) -> None:
        """Fetch the data that the server will load, before it starts.

        Raises:
            ServiceError: they cannot be fetched.
        """

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        """Return program and arguments."""
        raise NotImplementedError

    def environment(self, request: ServeRequest) -> dict[str, str]:
        """Return variables added to the server's environment."""
        return {}

    def base_url(self, request: ServeRequest) -> str:
        """Return the address for clients."""
        return f"{request.origin}/v1"

    def client_name(self, request: ServeRequest) -> str:
        """Return the name that clients use for the served model, or for its one adapter."""
        return request.adapters[0][0] if len(request.adapters) == 1 else request.name

    def settle(self, request: ServeRequest, say: Say, stop: threading.Event) -> None:
        """Make a healthy server ready for the model.

        Raises:
            ServiceError: it cannot serve the model.
        """

    def recognise(self, request: ServeRequest) -> bool:
        """Return whether a server for this request answers already.

        Raises:
            ServiceError: a server of this protocol answers there, with another model.
        """
        served = _pinned_model(request.port) or list_models(self.base_url(request))
        if served is None:
            return False
        if request.name in served or self.client_name(request) in served:
            return True
        held = ", ".join(served[:3]) or "nothing it would name"
        raise ServiceError(
            f"port {request.port} is in use: the server at {self.base_url(request)} serves {held}, not {request.name}; stop it, choose"
            f" another port with --port, or set {request.role}.model to what it serves"
        )

    def is_healthy(self, request: ServeRequest) -> bool:
        """Return whether the server is up."""
        return answers(request.origin + self.health_path)

    def refuse_adapters_and_share(self, request: ServeRequest, adapters: str, share: str) -> None:
        """Refuse LoRA adapters, and a share of the GPU's memory other than none, with a remedy.

        Raises:
            ConfigError: the request has one of them.
        """
        if request.adapters:
            raise ConfigError(f"{self.title} takes no LoRA adapters here: {adapters}")
        if request.gpu_memory not in (None, 0.0):
            raise ConfigError(
                f"{self.title} cannot be held to a share of the GPU's memory: leave --gpu-memory out (0 means the CPU); {share}"
            )


def _pinned_model(port: int) -> list[str] | None:
    """Return the model on the command line of `transformers serve`; the server itself lists the Hub's cache, or fails."""
    holder = find_listener(port)
    with suppress(psutil.Error, ValueError, IndexError):
        words = [] if holder is None else list(holder.cmdline())
        if any(Path(word).name.startswith("transformers") for word in words):
            return [words[words.index("serve") + 1]]
    return None
