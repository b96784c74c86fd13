"""llama.cpp's server from the package `xllamacpp`: python -m slmsearch.serving.engines.llama_server, with arguments of `llama-server`."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

LOG_SECONDS = 2.0
"""Time for llama.cpp, whose log is written by a thread of its own, to say why a start failed; an exit cuts it off."""


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; others than these end the process with a message, as `llama-server` does."""
    parser = argparse.ArgumentParser("llama_server", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--ctx-size", type=int, required=True)
    parser.add_argument("--n-gpu-layers", type=int, default=-1)
    parser.add_argument("--lora", action="append", default=[])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    import xllamacpp

    given = read_arguments(arguments)
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.model_alias = given.model, {given.alias}
    settings.hostnames, settings.port = [given.host], given.port
    settings.n_parallel, settings.n_ctx, settings.n_gpu_layers = given.parallel, given.ctx_size, given.n_gpu_layers
    settings.endpoint_slots = False  # it shows the prompts to everybody who can connect
    settings.lora_adapters = [_adapter(path) for path in given.lora]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # at an orderly end of the interpreter its threads are waited for, for ever
    try:
        server = xllamacpp.Server(settings)
    except Exception as error:
        time.sleep(LOG_SECONDS)
        print(f"could not start: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    print(f"listening on {server.listening_address}", flush=True)
    threading.Event().wait()


def _adapter(path: str) -> object:
    import xllamacpp

    adapter = xllamacpp.CommonAdapterLoraInfo()
    adapter.path, adapter.scale = path, 1.0
    return adapter


if __name__ == "__main__":
    main(sys.argv[1:])
