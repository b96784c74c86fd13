"""`slmsearch bench sft`: supervised training of a real model, ours beside TRL's `SFTTrainer`.

Each path has a process of its own, both with the same number of threads. They take turns: one takes an update while the other waits.
Every update is over the same `EPISODES` demonstrations of a generated world, encoded once: the same token ids, and the same labels,
where the demonstrator wrote. The adapter, optimiser and learning rate are the same. A first update of each is not counted.

`SFTTrainer` has sensible settings for this machine: an adapter by its `peft_config`, bfloat16 where ours has it, labels
for completions only, no recomputed activations (its default would recompute them, which is slower and not needed here), rows
padded to the longest of a batch (its default), its own head, which computes the loss without keeping logits, and
`PEER_BATCH` episodes at a time, accumulated to the same update. Ours takes them as trees of at most `TOKENS` nodes. The peer is
started without what `processor.settle` sets. The limit are the linear layers of the padded rows, not of the trees.

Speed is real tokens, padding not counted, by the median update. CPU seconds of the processes are given, too: on a machine with
other work they say more than wall time.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from slmsearch.config import LoraSection, PolicyConfig, RunConfig, SftConfig
from slmsearch.errors import TrainingError
from slmsearch.extensions.bench.result import Result, Say, tabulate, take_turns
from slmsearch.processes.allocator import preload_variables

EPISODES = 8
"""Number of demonstrations of an update."""
PEER_BATCH = 4
"""Episodes in one forward pass of TRL."""
TOKENS = 3072
"""Tree nodes in one forward pass of this project's trainer."""
LEARNING_RATE = 1e-4
LIMIT_ROUNDS = 5
"""Number of timings of the linear layers alone."""
SIDES = ("slmsearch", "trl")
COLUMNS = {"": "{side}", "tokens/s": "{tokens_per_s:.0f}", "tokens per CPU s": "{tokens_per_cpu_s:.0f}", "peak, GiB": "{peak_rss_gib:.2f}"}
Episodes = list[tuple[list[int], list[int]]]
"""Token ids and labels."""
Start = Callable[[str, Any], tuple[float, float]]


def run_sft(config: RunConfig, runs: int, say: Say) -> Result:
    """Measure both sides; the configuration gives `policy`, `train.lora` and the seed of `sft`.

    Raises:
        TrainingError: a side ended early.
    """
    episodes = _encode_episodes(config)
    tokens, labels = sum(len(ids) for ids, _ in episodes), [label for _, labels in episodes for label in labels]
    policy, lora = config.policy, config.train.lora
    both = (partial(_start_ours, config.sft, policy, lora), partial(_start_peer, policy, lora))
    starts = {name: partial(start, episodes, runs + 1) for name, start in zip(SIDES, both, strict=True)}
    with ExitStack() as stack:
        sides = {name: stack.enter_context(closing(_Side(name, start))) for name, start in starts.items()}
        for side in sides.values():
            side.take()
        updates = take_turns({name: partial(side.update, say) for name, side in sides.items()}, runs)
        ends = {name: side.take() for name, side in sides.items()}
    times = {part: {name: [update[part] for update in found] for name, found in updates.items()} for part in ("seconds", "cpu_seconds")}
    speeds, cpu_speeds = ({name: round(tokens / median(found[name]), 1) for name in SIDES} for found in times.values())
    ratio, cpu_ratio = (round(found["slmsearch"] / found["trl"], 3) for found in (speeds, cpu_speeds))
    written, threads = sum(label >= 0 for label in labels), ends["slmsearch"]["threads"]
    values = {
        "tokens_per_s_ratio": ratio,
        "tokens_per_cpu_s_ratio": cpu_ratio,
        "peak_rss_gib": ends["slmsearch"]["peak_rss_gib"],
        "matmul_limit_frac": round(ends["slmsearch"]["limit_s"] / median(times["seconds"]["slmsearch"]), 3),
        "tokens": tokens,
        "written_tokens": written,
        "longest": max(len(ids) for ids, _ in episodes),
        "threads": threads,
        "bfloat16": ends["slmsearch"]["bfloat16"],
        "peer_batch": PEER_BATCH,
    }
    found = {
        name: {
            "tokens_per_s": speeds[name],
            "tokens_per_cpu_s": cpu_speeds[name],
            **{part: taken[name] for part, taken in times.items()},
            "loss": end["loss"],
            "peak_rss_gib": end["peak_rss_gib"],
        }
        for name, end in ends.items()
    }
    notes = (
        f"{tokens} tokens an update, {written} of them learnt; {threads} threads",
        f"ratio {ratio:.2f} by the clock, {cpu_ratio:.2f} by CPU time",
        f"the frozen linear layers alone would take {values['matmul_limit_frac']:.0%} of the time",
    )
    return Result({**values, **found}, (tabulate(COLUMNS, ({"side": name, **of} for name, of in found.items())),), notes)


def _encode_episodes(config: RunConfig) -> Episodes:
    from slmsearch.environments.registry import environment_of
    from slmsearch.episodes.chat_renderer import ChatRenderer
    from slmsearch.models.load import load_tokenizer
    from slmsearch.training.streams import demonstrated

    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    stream = demonstrated(renderer, environment_of(config), SftConfig(recipe="expert", seed=config.sft.seed))
    return [(list(encoded.ids), list(encoded.labels)) for encoded in islice(stream, EPISODES)]


class _Side:
    """One path in its process; it takes an update on request."""

    def __init__(self, name: str, start: Start) -> None:
        self.name, context = name, get_context("spawn")
        self._line, there = context.Pipe()
        self._process = context.Process(target=_train_side, args=(name, start, there), daemon=True)
        with patch.dict(os.environ, preload_variables() if name == "slmsearch" else {}):
            self._process.start()
        there.close()

    def update(self, say: Say) -> dict[str, float]:
        """Run one update; return its times."""
        self._line.send("go on")
        took = self.take()
        say(f"{self.name:<10} {took['seconds']:.1f} s, {took['cpu_seconds']:.1f} CPU s")
        return took

    def take(self) -> dict[str, float]:
        """Receive its next message: that it is ready, the times of an update, its end."""
        try:
            said: dict[str, float] = self._line.recv()
        except (EOFError, OSError) as error:
            raise TrainingError(f"{self.name} ended before it was done; what it wrote stands above") from error
        return said

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _train_side(side: str, start: Start, line: Connection) -> None:
    """Train one path in this process, an update for every message that comes in."""
    import resource

    from slmsearch.processes.processor import settle

    os.dup2(2, 1)  # trainers print
    os.environ.pop("GOMP_SPINCOUNT", None)
    if side == "slmsearch":
        settle()
    import torch

    from slmsearch.models.load import has_bf16

    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        loss, limit_s = start(folder, _turn_taker(line))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line.send(
        {"peak_rss_gib": round(peak, 3), "threads": torch.get_num_threads(), "bfloat16": has_bf16(), "loss": loss, "limit_s": limit_s}
    )


def _turn_taker(line: Connection) -> Any:
    """Make a callback that waits for a message before each update and tells what the update took."""
    from transformers import TrainerCallback

    class TurnTaker(TrainerCallback):
        started = cpu = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            line.send({})

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            line.recv()
            self.started, self.cpu = time.perf_counter(), time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            line.send({"seconds": time.perf_counter() - self.started, "cpu_seconds": time.process_time() - self.cpu})

    return TurnTaker()


def _start_ours(
    sft: SftConfig, policy: PolicyConfig, lora: LoraSection, episodes: Episodes, updates: int, folder: str, taker: Any
) -> tuple[float, float]:
    """Train; return the loss, and the seconds of an update's linear layers alone."""
    from peft import get_peft_model

    from slmsearch.training.encoding import Encoded
    from slmsearch.training.grpo_settings import make_adapter_config
    from slmsearch.training.sft import EpisodeBatches, Lesson, train_sft
    from slmsearch.training.teach import load_student

    settings = sft.model_copy(
        update={
            "steps": updates,
            "batch_size": len(episodes),
            "tokens_per_batch": TOKENS,
            "learning_rate": LEARNING_RATE,
            "context_weight": 0.0,
            "lora": True,
        }
    )
    model, tokenizer = load_student(policy.model_copy(update={"adapter": None}), lora=True)
    model = get_peft_model(model, make_adapter_config(lora))
    encoded, logs = [Encoded(ids, labels, 0) for ids, labels in episodes], dict[str, float]()
    lesson = Lesson(model, tokenizer, settings, lambda: cycle(encoded))
    train_sft(lesson, Path(folder), lambda _, log: logs.update(log), callbacks=[taker])
    parts = next(iter(EpisodeBatches(lambda: cycle(encoded), tokenizer.pad_token_id, settings)))["parts"]
    return logs["train_loss"], time_linear_layers(model, [part["input_ids"].numel() for part in parts])


def time_linear_layers(model: Any, tokens: Sequence[int]) -> float:
    """Time what the frozen linear layers of an update need at least: their products forward, and those for the gradient of their inputs.

    Args:
        model: as it was trained, an adapter on its layers.
        tokens: tokens of each micro-batch, padding included.

    Returns:
        Seconds, the median of `LIMIT_ROUNDS`; nothing else is computed, and everything is at hand.
    """
    import torch
    from peft.tuners.lora import Linear

    layers: list[Any] = [layer for layer in model.modules() if isinstance(layer, Linear)]
    weights = [layer.base_layer.weight.detach() for layer in layers]
    widths = {(count, size) for count in tokens for weight in weights for size in weight.shape}
    inputs = {width: torch.randn(width).to(weights[0].dtype) for width in widths}
    times = []
    with torch.no_grad():
        for _ in range(LIMIT_ROUNDS + 1):
            started = time.perf_counter()
            for count in tokens:
                for weight in weights:
                    torch.matmul(inputs[count, weight.shape[1]], weight.T)
                    torch.matmul(inputs[count, weight.shape[0]], weight)
            times.append(time.perf_counter() - started)
    return median(times[1:])


def _start_peer(policy: PolicyConfig, lora: LoraSection, episodes: Episodes, updates: int, folder: str, taker: Any) -> tuple[float, float]:
    from datasets import Dataset
    from trl import SFTConfig as PeerConfig
    from trl import SFTTrainer

    from slmsearch.models.load import has_bf16, load_model
    from slmsearch.training.grpo_settings import make_adapter_config

    model, tokenizer = load_model(policy)
    arguments = PeerConfig(
        output_dir=folder,
        max_steps=updates,
        per_device_train_batch_size=PEER_BATCH,
        gradient_accumulation_steps=len(episodes) // PEER_BATCH,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="cosine",
        adam_beta2=0.98,
        weight_decay=0.01,
        max_grad_norm=1.0,
        max_length=None,
        bf16=has_bf16(),
        use_cpu=True,
        gradient_checkpointing=False,
        completion_only_loss=True,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    masks = [[int(label >= 0) for label in labels] for _, labels in episodes]
    data = Dataset.from_dict({"input_ids": [ids for ids, _ in episodes], "completion_mask": masks})
    adapter = make_adapter_config(lora)
    trainer = SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer, peft_config=adapter, callbacks=[taker])
    return float(trainer.train().training_loss), 0.0
