"""Time of playing the same episodes greedily with torch, llama.cpp and vLLM, and of a decoding pass beside what the memory allows."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from slmsearch.config import RunConfig
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.extensions.bench.result import Result, Say, Spread, describe_machine, median_ratio, tabulate, take_turns
from slmsearch.extensions.bench.shapes import BenchShape, reopen_shape
from slmsearch.models.gguf_file import Quantisation
from slmsearch.models.load import load_model, load_tokenizer
from slmsearch.processes.call import Child
from slmsearch.sampling.engine_sampler import EngineSampler
from slmsearch.sampling.llamacpp import LlamaCppEngine, LlamaCppSampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.sampling.vllm import ColocatedEngine
from slmsearch.training.export_gguf import Interface, export_gguf

EPISODES = 64
COPIED_MB = 512
"""Size of the copies that measure the memory, in MiB: far more than a cache holds."""
COPIES = 7
TORCH, LLAMACPP, VLLM = "torch", "llama.cpp", "vLLM"


class TimedSampler(TorchSampler):
    """A sampler that keeps the seconds of its decoding passes."""

    def __init__(self, model: Any, tokenizer: Any, tool_role: str) -> None:
        """Wrap a loaded model; see `TorchSampler`."""
        super().__init__(model, tokenizer, tool_role)
        self.passes: list[float] = []

    def _decode(self, rows: Sequence[Any]) -> None:
        started = perf_counter()
        super()._decode(rows)
        self.passes.append(perf_counter() - started)


def run_decode(shape: BenchShape, runs: int, say: Say) -> Result:
    """Play a shape's first questions with every engine that is installed, in turn, in a process with the allocator of computations.

    Args:
        shape: questions, tools and model; its model is played on the CPU.
        runs: measured runs of each engine.
        say: receives a line about the present step.

    Raises:
        ModelError: the model cannot be loaded, or no GGUF can be made of it.
    """
    with Child() as child:
        played = child.call(play_engines, shape.name, shape.config, EPISODES, runs, say=say)
        rate = child.call(measure_bandwidth, COPIED_MB)
    return _summarise(played, rate, shape.parameters)


@dataclass(frozen=True)
class Played:
    """Results of engines that played the same questions."""

    seconds: dict[str, list[float]]
    texts: dict[str, list[list[str]]]
    """Texts of the turns of each episode."""
    sampled_tokens: int
    weights_bytes: int
    pass_s: float
    """Seconds of a decoding pass of torch, the median."""


def play_engines(name: str, config: RunConfig, episodes: int, runs: int, say: Say) -> Played:
    """Play the first questions of a shape that was made before with every engine that is installed, in turn; see `run_decode`."""
    shape = reopen_shape(name, config)
    policy, searcher = shape.config.policy, shape.config.searcher
    questions = list(islice(cycle(shape.questions), episodes))
    model, tokenizer = load_model(policy)
    ours = TimedSampler(model.eval(), tokenizer, searcher.tool_role)
    samplers: dict[str, Sampler] = {TORCH: ours}
    played: dict[str, list[Episode]] = {}

    def side(name: str) -> Callable[[], float]:
        def play() -> float:
            started = perf_counter()
            played[name] = play_episodes(
                questions, samplers[name], shape.toolbox, searcher, Sampling(max_new_tokens=searcher.max_turn_tokens)
            )
            return perf_counter() - started

        return play

    with tempfile.TemporaryDirectory() as folder:
        if find_spec("xllamacpp"):
            kind: Quantisation = "bf16" if policy.dtype == "bfloat16" else "f32"
            file = export_gguf(policy, Path(folder) / "model", kind, Interface("", "", (), searcher.tool_role)).file
            samplers[LLAMACPP] = LlamaCppSampler(LlamaCppEngine(str(file), cpu=True), load_tokenizer(policy), searcher.tool_role)
        if find_spec("vllm"):
            samplers[VLLM] = EngineSampler(_open_vllm(shape), load_tokenizer(policy), searcher.tool_role)
        say(f"playing {episodes} episodes with {', '.join(samplers)}")
        seconds = take_turns({name: side(name) for name in samplers}, runs)
    texts = {engine: [[turn.text for turn in episode.turns] for episode in found] for engine, found in played.items()}
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return Played(seconds, texts, sum(episode.sampled_tokens for episode in played[TORCH]), size, median(ours.passes))


def measure_bandwidth(copied_mb: int) -> float:
    """Return the bytes a second that a copy of `copied_mb` MiB reads and writes, the median of several."""
    source = torch.ones(copied_mb << 18)  # float32
    target = torch.empty_like(source)
    rates = []
    for _ in range(COPIES):
        started = perf_counter()
        target.copy_(source)
        rates.append(2 * source.numel() * source.element_size() / (perf_counter() - started))
    return median(rates)


def _open_vllm(shape: BenchShape) -> ColocatedEngine:
    from vllm import LLM

    policy, searcher = shape.config.policy, shape.config.searcher
    room = searcher.max_episode_tokens + 1024  # with the prompt
    share = shape.config.train.vllm.gpu_memory_frac  # of a CPU's memory, too: its own 0.92 is not free beside the other engines
    limits: dict[str, Any] = {"max_model_len": room, "gpu_memory_utilization": share}
    return ColocatedEngine(LLM(model=policy.model, dtype=policy.dtype, logprobs_mode="processed_logprobs", **limits))


def _summarise(played: Played, bytes_per_s: float, parameters: int) -> Result:
    seconds, limit_s = played.seconds, played.weights_bytes / bytes_per_s
    ratios = {name: median_ratio(times, seconds[TORCH]) for name, times in seconds.items()}
    ours = played.texts[TORCH]
    same = {name: sum(a == b for a, b in zip(found, ours, strict=True)) / len(found) for name, found in played.texts.items()}
    values = {
        "weights_mb": played.weights_bytes / 1e6,
        "limit_s": limit_s,
        "pass_s": played.pass_s,
        "parameters": parameters,
        "episodes": len(ours),
        "sampled_tokens": played.sampled_tokens,
        "bandwidth_frac": limit_s / played.pass_s,
        "llamacpp_ratio": ratios.get(LLAMACPP),
        "vllm_ratio": ratios.get(VLLM),
        "seconds": {name: Spread(times) for name, times in seconds.items()},
        "same_episodes_frac": same,
        "machine": str(machine := describe_machine("torch", "transformers")),
    }
    records = [{"side": name, "s": Spread(times), "ratio": ratios[name], "same": same[name]} for name, times in seconds.items()]
    columns = {
        "engine": "{side}",
        f"seconds for {len(ours)} episodes": "{s:.2f}",
        "beside torch": "{ratio:.2f}",
        "same episodes": "{same:.0%}",
    }
    notes = [
        f"a decoding pass: {1e3 * played.pass_s:.1f} ms; {played.weights_bytes / 1e6:.0f} MB of weights at the rate of a copy: "
        f"{1e3 * limit_s:.1f} ms ({limit_s / played.pass_s:.0%}); {played.sampled_tokens} tokens sampled",
        str(machine),
    ]
    return Result(values, [tabulate(columns, records)], notes)
