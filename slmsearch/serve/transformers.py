"""`transformers serve`: comes with the project and runs anywhere, slowly. For a laptop with no other engine."""

import re
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError
from slmsearch.serve.engine import Engine, Say, find_program, missing, refuse_adapters, refuse_share
from slmsearch.serve.failures import Remedy
from slmsearch.serve.hub import fetch_model
from slmsearch.serve.names import hub_name, require_directory
from slmsearch.serve.request import ServeRequest


class Transformers(Engine):
    """The server of Hugging Face's transformers."""

    name: ClassVar[str] = "transformers"
    title: ClassVar[str] = "transformers serve"
    install: ClassVar[str] = "pip install 'transformers[serving]'"
    memory_advice: ClassVar[str] = "take a smaller model with --model, or half the weights with --policy.dtype bfloat16"
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            re.compile(r"couldn't connect to|Cannot find the requested files|LocalEntryNotFound|offline mode|Temporary failure in name"),
            "the model is not in the Hub's cache and the Hub cannot be reached: give a path with --model",
        ),
        Remedy(
            re.compile(r"is not a local folder and is not a valid model identifier|Repository Not Found"),
            "no such model on the Hub: correct --model",
        ),
        Remedy(re.compile(r"Missing dependencies for serving"), "pip install 'transformers[serving]'"),
    )

    def check(self, request: ServeRequest) -> None:
        """See `Engine.check`."""
        refuse_adapters(self, request, "serve it with --engine vllm or llamacpp, or evaluate it in process with --policy.adapter")
        refuse_share(self, request, "it takes what the model needs")
        require_directory(hub_name(request.model))
        if request.parallel not in (None, 1):
            raise ConfigError(
                "transformers serve works on one request at a time: leave --parallel out, or, on a GPU, -- --continuous-batching"
            )
        if request.ctx_size is not None:
            raise ConfigError("transformers serve has no limit of its own on tokens: leave --ctx-size out")

    def find(self, request: ServeRequest) -> list[str]:
        """See `Engine.find`."""
        program = find_program("transformers")
        if program is None:
            raise missing(self)
        return [program]

    def prepare(self, request: ServeRequest, folder: Path, say: Say) -> ServeRequest:
        """Fetch the weights."""
        fetch_model(hub_name(request.model), say)
        return request

    def client_name(self, request: ServeRequest) -> str:
        """See `Engine.client_name`; it refuses every other name than that of what it loaded."""
        return hub_name(request.model)

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        """See `Engine.command`."""
        command = [*program, "serve", hub_name(request.model), "--host", request.host, "--port", str(request.port)]
        command += ["--device", "cpu" if request.gpu_memory == 0.0 else request.device, "--dtype", request.dtype]
        return [*command, *request.extra]
