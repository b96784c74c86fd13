"""`slmsearch bench rollout`: rollouts and whole GRPO steps, ours beside TRL's own tool loop and beside the limit.

Ours and the peer (`peer.py` describes it) take the same steps in turn, in one process: same model, same questions, same number of
episodes, a learning rate too small to change either. Each trainer warms up for one step. Rollout time is that of `_generate`,
step time that of the whole optimiser step.

The limit is one static batch that prefills all the tokens of the episodes just played which the policy did not write, and decodes
as many steps as the longest episode has written tokens: no tools, no turns, no waiting, no sampling. It computes every episode by itself:
where ours computes what a group has in common once, it can be faster than this limit.
"""

import time
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback
from transformers.cache_utils import DynamicCache

from slmsearch.bench.continuous import compare_continuous
from slmsearch.bench.peer import make_peer
from slmsearch.bench.result import Say, describe_machine, render_machine, render_spread, render_table, summarize
from slmsearch.bench.shapes import Shape, demo_shape, long_shape
from slmsearch.config import RunConfig
from slmsearch.environments.searcher import SearcherEnvironment
from slmsearch.judge import make_judge
from slmsearch.learn.callbacks import StepCallback
from slmsearch.learn.grpo import make_arguments, make_trainer, order_questions
from slmsearch.learn.phase_timer import PhaseTimer
from slmsearch.learn.rollout_bridge import RolloutBridge
from slmsearch.learn.trainer_samplers import open_torch_sampler, sampling_mode
from slmsearch.learn.training import load_trainable
from slmsearch.searcher.episode import Episode

PEER_MICRO_BATCHES = {"demo": (64, 16), "long": (8, 2)}
"""Episodes per forward pass that the peer is tried with; the fastest is measured."""
NO_LEARNING = 1e-12
"""A learning rate too small to change a weight."""


class Stopwatch(TrainerCallback):
    """Takes the time of steps and of what they call to generate."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.rollouts: list[float] = []
        self.episodes = 0
        self._started = 0.0

    def watch(self, trainer: Any) -> None:
        """Time the trainer's `_generate`."""
        generate = trainer._generate

        def timed(prompts: Any) -> Any:
            started = time.perf_counter()
            result = generate(prompts)
            self.rollouts.append(time.perf_counter() - started)
            self.episodes = len(prompts)
            return result

        trainer._generate = timed

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        self.steps.append(time.perf_counter() - self._started)


def run_rollout(config: RunConfig, shapes: tuple[str, ...], runs: int, say: Say) -> dict[str, Any]:
    """Measure and return medians, spreads and ratios by shape.

    Args:
        config: the demo's settings.
        shapes: `demo`, `long`.
        runs: measured steps of each side, at least 5 for a figure that is published.
        say: told what is being done.
    """
    result: dict[str, Any] = {
        "machine": describe_machine("torch", "transformers", "trl", "peft"),
        "threads": torch.get_num_threads(),
        "runs": runs,
    }
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        for name in shapes:
            shape = demo_shape(config) if name == "demo" else long_shape(Path(directory) / "long")
            result[name] = measure_shape_speed(shape, runs, Path(directory), say)
            say(f"{name}: transformers' continuous batching")
            result[name]["continuous"] = compare_continuous(shape, runs)
    return result


def measure_shape_speed(shape: Shape, runs: int, directory: Path, say: Say) -> dict[str, Any]:
    """Measure one shape."""
    say(f"{shape.name}: {shape.parameters / 1e6:.1f} M parameters")
    steps = runs + 1
    chosen, best = 0, float("inf")
    for micro_batch in PEER_MICRO_BATCHES[shape.name]:
        watch = Stopwatch()
        _make_peer(shape, 1, micro_batch, directory, watch).train()
        say(f"  peer with micro-batches of {micro_batch}: {watch.steps[-1]:.2f} s a step")
        if watch.steps[-1] < best:
            chosen, best = micro_batch, watch.steps[-1]
    ours_watch, peer_watch = Stopwatch(), Stopwatch()
    ours, bridge = make_ours(shape, directory, ours_watch)
    peer = _make_peer(shape, 1, chosen, directory, peer_watch)
    limits: list[float] = []
    for number in range(steps):
        for trainer in (ours, peer) if number % 2 else (peer, ours):
            trainer.train()
        with sampling_mode(ours) as model:
            limits.append(time_static_batch(model, bridge.episodes, ours.processing_class.pad_token_id))
        say(f"  step {number}: ours {ours_watch.steps[-1]:.2f} s, peer {peer_watch.steps[-1]:.2f} s, limit {limits[-1]:.2f} s")
    return summarise_speed(shape, chosen, ours_watch, peer_watch, limits, bridge.episodes)


def summarise_speed(
    shape: Shape, micro_batch: int, ours: Stopwatch, peer: Stopwatch, limits: list[float], episodes: list[Episode]
) -> dict[str, Any]:
    """Put medians, spreads and ratios together; the first step of each is the warm-up."""
    sides = {
        "ours": {"rollout_s": ours.rollouts[1:], "step_s": ours.steps[1:]},
        "peer": {"rollout_s": peer.rollouts[1:], "step_s": peer.steps[1:]},
    }
    figures = {side: {name: summarize(values) for name, values in measured.items()} for side, measured in sides.items()}
    return {
        "parameters": shape.parameters,
        "episodes": len(episodes),
        "distinct_frac": len({tuple(episode.completion_ids) for episode in episodes}) / len(episodes),
        "calls_per_episode": mean(len(episode.calls) for episode in episodes),
        "tokens_per_episode": mean(len(episode.completion_ids) for episode in episodes),
        "peer_micro_batch": micro_batch,
        **figures,
        "limit_s": summarize(limits[1:]),
        "episodes_ratio": median(p / o for p, o in zip(peer.rollouts[1:], ours.rollouts[1:], strict=True)),
        "step_ratio": median(p / o for p, o in zip(peer.steps[1:], ours.steps[1:], strict=True)),
        "decode_limit_frac": median(a / b for a, b in zip(limits[1:], ours.rollouts[1:], strict=True)),
    }


def render_rollout(result: dict[str, Any]) -> str:
    """Render the result as Markdown."""
    shown = {name: result[name] for name in ("demo", "long") if name in result}
    sides = [
        (name, side, render_spread(of[side]["rollout_s"]), render_spread(of[side]["step_s"]),
         f"{of['episodes'] / of[side]['rollout_s']['median']:.1f}")
        for name, of in shown.items()
        for side in ("ours", "peer")
    ]  # fmt: skip
    shapes = [
        (name, f"{of['episodes']} ({of['distinct_frac']:.0%})", f"{of['calls_per_episode']:.1f}, {of['tokens_per_episode']:.0f}",
         *(f"{of[ratio]:.2f}" for ratio in ("episodes_ratio", "step_ratio", "decode_limit_frac")))
        for name, of in shown.items()
    ]  # fmt: skip
    turns = [
        (name, *(f"{of['continuous'][part]:.2f}" for part in ("ours_s", "library_s", "ratio")), f"{of['continuous']['same_frac']:.0%}")
        for name, of in shown.items()
    ]
    tables = (
        render_table(("shape", "side", "rollout, s", "step, s", "episodes/s"), sides),
        render_table(("shape", "episodes (different)", "calls, tokens of each", "episodes ratio", "step ratio", "limit / rollout"), shapes),
        render_table(("shape", "one turn of the batch, s", "by transformers' continuous batching, s", "ratio", "same turns"), turns),
    )
    return "\n\n".join([f"{render_machine(result['machine'])}\nmedians of {result['runs']} steps (lowest to highest)", *tables])


def make_ours(shape: Shape, directory: Path, watch: Stopwatch) -> tuple[Any, RolloutBridge]:
    """Make a trainer whose every `train` takes one step, at a learning rate that changes nothing.

    Args:
        shape: what is played.
        directory: where the trainer may write.
        watch: takes the times.
    """
    config = _still(shape.config)
    model, tokenizer = load_trainable(config)
    open_sampler, timer = open_torch_sampler(tokenizer, config.searcher.tool_role), PhaseTimer()
    environment = SearcherEnvironment(shape.toolbox, make_judge(config.judge), config)
    bridge = RolloutBridge(shape.questions, environment, config, open_sampler, tokenizer.eos_token_id, timer)
    callback = StepCallback(bridge, lambda report: None, lambda: False, config.train, timer)
    arguments = make_arguments(config, directory, 1, True)
    trainer = make_trainer(model, tokenizer, shape.questions, environment, bridge, arguments, config, callback)
    trainer.args.save_strategy = "no"
    trainer.add_callback(watch)
    watch.watch(trainer)
    return trainer, bridge


def _make_peer(shape: Shape, steps: int, micro_batch: int, directory: Path, watch: Stopwatch) -> Any:
    train = shape.config.train
    rows = order_questions(len(shape.questions), steps * train.questions_per_step, train.seed)
    still = Shape(shape.name, _still(shape.config), shape.questions, shape.toolbox, shape.parameters)
    trainer = make_peer(still, rows, steps, micro_batch, directory, watch)
    trainer.remove_callback(PrinterCallback)
    watch.watch(trainer)
    return trainer


def _still(config: RunConfig) -> RunConfig:
    """Take one step at a time, at a learning rate that changes nothing."""
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": 1, "learning_rate": NO_LEARNING})})


@torch.no_grad()
def time_static_batch(model: Any, episodes: list[Episode], pad_id: int) -> float:
    """Time the prefill of all that was shown, and as many decoding steps as the longest episode wrote tokens, in one batch."""
    shown = [[*e.prompt_ids, *(i for turn in e.turns for i in turn.context_ids)] for e in episodes]
    steps = max(e.sampled_tokens for e in episodes)
    width = max(len(ids) for ids in shown)
    started = time.perf_counter()
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in shown])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in shown])
    cache = DynamicCache()
    output = model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
    for _ in range(steps - 1):
        chosen = output.logits[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        output = model(input_ids=chosen, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - started
