"""Sides of `slmsearch bench rollout`: our trainer and the peer's, whose steps are timed, each alone in a process.

Two trainers in one process disturb each other: one returns to the system what the other has freed, and both take their memory anew. Where a
card is watched they stay in one process all the same, because the watch is there.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import TrainerCallback
from transformers.cache_utils import DynamicCache

from slmsearch.config import RunConfig
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode
from slmsearch.errors import ServiceError
from slmsearch.extensions.bench.peer import make_peer
from slmsearch.extensions.bench.shapes import BenchShape, reopen_shape
from slmsearch.extensions.bench.trees import catch_inputs
from slmsearch.judge.llm import make_judge
from slmsearch.processes.allocator import preload_variables
from slmsearch.processes.processor import settle
from slmsearch.training.callbacks import StepCallback
from slmsearch.training.card import CardWatch
from slmsearch.training.grpo import make_trainer
from slmsearch.training.grpo_settings import make_arguments
from slmsearch.training.memory import measure_available, measure_shape, plan_memory
from slmsearch.training.phase_timer import PhaseTimer
from slmsearch.training.rollout_bridge import RolloutBridge
from slmsearch.training.trainer_samplers import open_torch_sampler, sampling_mode
from slmsearch.training.training_run import load_trainable

NO_LEARNING = 1e-12
CLOSE_SECONDS = 5.0
OTHER, WARM_UP = "other", "warm-up"
"""Phases of the card beside the rollouts and updates that are measured."""


class Times(NamedTuple):
    """Times of one step."""

    rollout_s: float
    step_s: float


class Stopwatch(TrainerCallback):
    """Timer of a trainer's last step, and of its generation; reports both to a watch of the card."""

    def __init__(self, side: str = "", card: CardWatch | None = None) -> None:
        """Begin at 0."""
        self._side, self._card, self._steps = side, card, 0
        self._rollout_s = self._started = self._step_s = 0.0

    def take_step(self, trainer: Any) -> Times:
        """Run one step of a trainer that takes one."""
        generate = trainer._generate

        def timed(prompts: Any) -> Any:
            self._tell("rollout")
            started = now()
            result = generate(prompts)
            self._rollout_s = now() - started
            self._tell("update")
            return result

        trainer._generate = timed
        trainer.train()
        trainer._generate = generate
        self._steps += 1
        return Times(self._rollout_s, self._step_s)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        self._step_s = now() - self._started
        if self._card is not None:
            self._card.turn(OTHER)

    def _tell(self, phase: str) -> None:
        if self._card is not None:
            self._card.turn(f"{self._side} {phase if self._steps else WARM_UP}")


def now() -> float:
    """Return the time, in seconds, once a card has finished its work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def make_ours(shape: BenchShape, directory: Path, watch: Stopwatch) -> tuple[Any, RolloutBridge]:
    """Make a trainer whose every `train` takes one step; it may write to the directory."""
    config = shape.config
    model, tokenizer = load_trainable(config.policy)
    open_sampler, timer = open_torch_sampler(tokenizer, config.searcher.tool_role), PhaseTimer()
    environment = SearcherEnvironment(config).with_tools(shape.toolbox, make_judge(config.judge))
    bridge = RolloutBridge(shape.questions, environment, open_sampler, tokenizer.eos_token_id, timer)
    callback = StepCallback(bridge, lambda report: None, lambda: False, config.train, timer)
    arguments = make_arguments(environment, directory, 1, config.policy.device == "cpu")
    nodes = plan_memory(config, measure_shape(config), measure_available()).part_nodes
    trainer = make_trainer(model, tokenizer, bridge, arguments, callback, nodes)
    trainer.args.save_strategy = "no"
    trainer.add_callback(watch)
    return trainer, bridge


@torch.no_grad()
def time_static_batch(model: Any, episodes: list[Episode], pad_id: int) -> float:
    """Time the prefill of all unsampled tokens, and a decoding step for each token that the longest episode sampled, in one batch."""
    shown = [[*e.prompt_ids, *(i for turn in e.turns for i in turn.context_ids)] for e in episodes]
    steps = max(e.sampled_tokens for e in episodes)
    width = max(len(ids) for ids in shown)
    started = now()
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in shown], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in shown], device=model.device)
    cache = DynamicCache()
    output = model(input_ids=ids, attention_mask=mask, cache=cache, use_cache=True, logits_to_keep=1)
    for _ in range(steps - 1):
        chosen = output.logits[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        output = model(input_ids=chosen, attention_mask=mask, cache=cache, use_cache=True, logits_to_keep=1)
    return now() - started


class OurSide:
    """Our trainer; beside each step one static batch of its tokens is timed."""

    def __init__(self, shape: BenchShape, directory: Path, watch: Stopwatch) -> None:
        """Load the model; it may write to the directory."""
        self._watch = watch
        self._trainer, self._bridge = make_ours(shape, directory, watch)
        self._inputs = catch_inputs(self._trainer)

    def step(self) -> tuple[Times, float]:
        """Take a step; return its times, and the seconds of the static batch."""
        times = self._watch.take_step(self._trainer)
        with sampling_mode(self._trainer) as model:
            return times, time_static_batch(model, self._bridge.episodes, self._trainer.processing_class.pad_token_id)

    def end(self) -> tuple[list[Episode], dict[str, Tensor], bool]:
        """Return the last step's episodes and inputs of the loss, and whether updates went over trees."""
        check = self._trainer.tree_check
        return self._bridge.episodes, self._inputs, check is not None and check.passed

    def close(self) -> None:
        """Do nothing; see `SideProcess.close`."""


class PeerSide:
    """TRL's trainer."""

    def __init__(self, shape: BenchShape, directory: Path, watch: Stopwatch, micro_batch: int, with_vllm: bool = False) -> None:
        """Load the model; see `make_peer`."""
        self._watch, self._trainer = watch, make_peer(shape, micro_batch, directory, watch, with_vllm)

    def step(self) -> tuple[Times, float]:
        """Take a step; return its times, and 0."""
        return self._watch.take_step(self._trainer), 0.0

    def close(self) -> None:
        """Do nothing; see `SideProcess.close`."""


class SideProcess:
    """A side alone in a process."""

    def __init__(self, kind: type, name: str, shape: BenchShape, directory: Path, **more: object) -> None:
        """Start the process; it opens the shape anew and makes the side until the first step."""
        context = get_context("spawn")
        self._name = name
        self._line, there = context.Pipe()
        wanted = (kind, shape.name, shape.config, directory, more)
        self._process = context.Process(target=_serve, args=(*wanted, there), daemon=True)
        with patch.dict(os.environ, preload_variables()):  # as training processes have it, the peer's, too
            self._process.start()
        there.close()

    def step(self) -> Any:
        """Take a step of the side."""
        return self._call("step")

    def end(self) -> Any:
        """Return what the side returns at its end."""
        return self._call("end")

    def close(self) -> None:
        """End the process, in order if no step is being taken."""
        self._line.close()
        self._process.join(CLOSE_SECONDS)
        self._process.kill()
        self._process.join()

    def _call(self, what: str) -> Any:
        try:
            self._line.send(what)
            return self._line.recv()
        except (EOFError, OSError) as error:
            raise ServiceError(f"{self._name} ended before it was done; what it wrote stands above") from error


def _serve(kind: type, name: str, config: RunConfig, directory: Path, more: Mapping[str, object], line: Connection) -> None:
    os.dup2(2, 1)  # trainers print
    settle()
    side = kind(reopen_shape(name, config), directory, Stopwatch(), **more)
    with suppress(EOFError):
        while True:
            line.send(getattr(side, line.recv())())


def open_side(kind: type, name: str, shape: BenchShape, directory: Path, card: CardWatch | None, **more: object) -> Any:
    """Open a side, alone in a process unless a card is watched.

    Args:
        kind: `OurSide` or `PeerSide`.
        name: name of the side.
        shape: whose steps are taken.
        directory: it may write there.
        card: its watch, or None.
        more: further arguments of the kind.
    """
    (place := directory / name.replace(" ", "-")).mkdir(parents=True, exist_ok=True)
    return SideProcess(kind, name, shape, place, **more) if card is None else kind(shape, place, Stopwatch(name, card), **more)
