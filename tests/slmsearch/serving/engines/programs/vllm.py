"""A stand-in for `vllm serve`: refuses what its documented command line would refuse, then answers like any such server."""

import argparse
import runpy
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """The part of `vllm serve`'s command line that is used, as its documentation has it."""
    made = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    made.add_argument("command", choices=["serve"])
    made.add_argument("model_tag")
    for name, kind in (("host", str), ("port", int), ("max-model-len", int), ("max-num-seqs", int), ("gpu-memory-utilization", float)):
        made.add_argument(f"--{name}", type=kind)
    made.add_argument("--dtype", choices=["auto", "bfloat16", "float", "float16", "float32", "half"])
    made.add_argument("--served-model-name", nargs="+")
    made.add_argument("--enable-lora", action="store_true")
    made.add_argument("--lora-modules", nargs="+")
    made.add_argument("--max-loras", type=int)
    made.add_argument("--max-lora-rank", type=int, choices=[1, 8, 16, 32, 64, 128, 256, 320, 512])
    made.add_argument("--enforce-eager", action="store_true")
    made.add_argument("--generation-config")
    return made


if __name__ == "__main__":
    parser().parse_args()
    runpy.run_path(str(Path(__file__).with_name("openai_server.py")), run_name="__main__")
