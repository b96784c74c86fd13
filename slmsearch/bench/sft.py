"""`slmsearch bench sft`: supervised training of a real model, ours beside TRL's `SFTTrainer`.

Each path has a process of its own, both with the same number of threads. They take turns: one takes an update while the other waits.
Every update is over the same `EPISODES` demonstrations of a generated world, encoded once: the same token ids, and the same labels,
where the demonstrator wrote. The adapter, optimiser and learning rate are the same. A first update of each is not counted.

`SFTTrainer` is set up as a sensible user would on this machine: an adapter by its `peft_config`, bfloat16 where ours has it, labels
for completions only, no recomputed activations (its default would recompute them, which is slower and not needed here), rows
padded to the longest of a batch (its default), its own head, which computes the loss without keeping logits, and
`PEER_BATCH` episodes at a time, accumulated to the same update. Ours takes as many of similar length as fill `TOKENS`. The peer is
started without what `processor.settle` sets.

Speed is real tokens, padding not counted, by the median update. CPU seconds of the processes are given, too: on a machine that has
other work they say more than the clock does.
"""

import os
import time
from collections.abc import Sequence
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from slmsearch.bench.result import Say
from slmsearch.config import RunConfig, SftConfig
from slmsearch.errors import TrainingError

EPISODES = 8
"""Demonstrations of an update."""
PEER_BATCH = 4
"""Episodes that TRL puts through the model together."""
TOKENS = 1024
"""Tokens that ours puts through the model together, padding included."""
LEARNING_RATE = 1e-4
SIDES = ("slmsearch", "trl")
Episodes = list[tuple[list[int], list[int]]]
"""Ids and labels."""


def run_sft(config: RunConfig, runs: int, say: Say) -> dict[str, Any]:
    """Measure both sides.

    Args:
        config: `policy`, `train.lora`, and the seed of `sft`.
        runs: counted updates of each side, which take turns.
        say: told of each update.

    Returns:
        `tokens_per_s_ratio` and `peak_rss_gib` (ours), and for each side medians, all times and its peak.

    Raises:
        TrainingError: a side ended early.
    """
    episodes = _encode_episodes(config)
    tokens = sum(len(ids) for ids, _ in episodes)
    sides = {name: _Side(name, config, episodes, runs + 1) for name in SIDES}
    try:
        for side in sides.values():
            side.take()
        for run in range(runs + 1):
            for name, side in sides.items():
                update = side.step()
                say(f"{name:<10} update {run}: {update['seconds']:.1f} s, {update['cpu_seconds']:.1f} CPU s")
        ends = {name: side.take() for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.close()
    found = {name: _summarise(side.updates[1:], tokens, ends[name]) for name, side in sides.items()}
    ours, peer = found["slmsearch"], found["trl"]
    return {
        "tokens_per_s_ratio": round(ours["tokens_per_s"] / peer["tokens_per_s"], 3),
        "tokens_per_cpu_s_ratio": round(ours["tokens_per_cpu_s"] / peer["tokens_per_cpu_s"], 3),
        "peak_rss_gib": ours["peak_rss_gib"],
        "tokens": tokens,
        "written_tokens": sum(label >= 0 for _, labels in episodes for label in labels),
        "longest": max(len(ids) for ids, _ in episodes),
        "threads": ends["slmsearch"]["threads"],
        "bfloat16": ends["slmsearch"]["bfloat16"],
        "peer_batch": PEER_BATCH,
        **found,
    }


def render_sft(result: dict[str, Any]) -> str:
    """Write the result as lines of text."""
    lines = [f"{result['tokens']} tokens an update, {result['written_tokens']} of them learnt; {result['threads']} threads"]
    for name in SIDES:
        side = result[name]
        lines.append(
            f"{name:<10} {side['tokens_per_s']:8.0f} tokens/s  {side['tokens_per_cpu_s']:8.0f} per CPU s  {side['peak_rss_gib']:.2f} GiB"
        )
    return "\n".join([*lines, f"ratio {result['tokens_per_s_ratio']:.2f} by the clock, {result['tokens_per_cpu_s_ratio']:.2f} by CPU time"])


def _summarise(updates: Sequence[dict[str, float]], tokens: int, end: dict[str, Any]) -> dict[str, Any]:
    seconds, cpu = [update["seconds"] for update in updates], [update["cpu_seconds"] for update in updates]
    return {
        "tokens_per_s": round(tokens / median(seconds), 1),
        "tokens_per_cpu_s": round(tokens / median(cpu), 1),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "loss": end["loss"],
        "peak_rss_gib": end["peak_rss_gib"],
    }


def _encode_episodes(config: RunConfig) -> Episodes:
    from transformers import AutoTokenizer

    from slmsearch.generate.chat_renderer import ChatRenderer
    from slmsearch.learn.sft import demonstrated

    renderer = ChatRenderer(AutoTokenizer.from_pretrained(config.policy.model), config.searcher.tool_role)
    stream = demonstrated(renderer, config, SftConfig(recipe="expert", seed=config.sft.seed))
    return [(list(encoded.ids), list(encoded.labels)) for encoded in islice(stream, EPISODES)]


class _WithoutWarmup(SftConfig):
    warmup_frac: ClassVar[float] = 0.0


class _Side:
    """One path in its process; an update is taken when it is told to."""

    def __init__(self, name: str, config: RunConfig, episodes: Episodes, updates: int) -> None:
        self.name, self.updates = name, list[dict[str, float]]()
        context = get_context("spawn")
        self._line, there = context.Pipe()
        self._process = context.Process(target=take_turns, args=(name, config, episodes, updates, there), daemon=True)
        self._process.start()
        there.close()

    def step(self) -> dict[str, Any]:
        """Let it take one update; return its times."""
        self._line.send("go on")
        self.updates.append(self.take())
        return self.updates[-1]

    def take(self) -> dict[str, Any]:
        """Receive what it says next: that it is ready, what an update took, how it ended."""
        try:
            said: dict[str, Any] = self._line.recv()
        except (EOFError, OSError) as error:
            raise TrainingError(f"{self.name} ended before it was done; what it wrote stands above") from error
        return said

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def take_turns(side: str, config: RunConfig, episodes: Episodes, updates: int, line: Connection) -> None:
    """Train one path in this process, an update for every message that comes in."""
    import resource

    from slmsearch.processor import settle

    os.dup2(2, 1)  # trainers print
    os.environ.pop("GOMP_SPINCOUNT", None)
    if side == "slmsearch":
        settle()
    import torch

    from slmsearch.learn.sft import has_bf16

    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        loss = (_start_ours if side == "slmsearch" else _start_peer)(config, episodes, updates, folder, _turn_taker(line))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line.send({"peak_rss_gib": round(peak, 3), "threads": torch.get_num_threads(), "bfloat16": has_bf16(), "loss": loss})


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


def _start_ours(config: RunConfig, episodes: Episodes, updates: int, folder: str, taker: Any) -> float:
    from peft import get_peft_model

    from slmsearch.learn.encoding import Encoded
    from slmsearch.learn.grpo import make_adapter_config
    from slmsearch.learn.sft import train_sft
    from slmsearch.learn.teach import load_student

    settings = _WithoutWarmup.model_validate(
        {
            **config.sft.model_dump(),
            "steps": updates,
            "batch_size": len(episodes),
            "tokens_per_batch": TOKENS,
            "learning_rate": LEARNING_RATE,
            "context_weight": 0.0,
            "lora": True,
        }
    )
    model, tokenizer = load_student(config.model_copy(update={"sft": settings}))
    model = get_peft_model(model, make_adapter_config(config.train.lora))
    encoded = [Encoded(ids, labels, 0) for ids, labels in episodes]
    logs: dict[str, float] = {}

    def stream() -> Any:
        while True:
            yield from encoded

    train_sft(model.train(), tokenizer, settings, Path(folder), stream, lambda _, log: logs.update(log), callbacks=[taker])
    return logs["train_loss"]


def _start_peer(config: RunConfig, episodes: Episodes, updates: int, folder: str, taker: Any) -> float:
    from datasets import Dataset
    from trl import SFTConfig as PeerConfig
    from trl import SFTTrainer

    from slmsearch.generate.load import load_model
    from slmsearch.learn.grpo import make_adapter_config
    from slmsearch.learn.sft import has_bf16

    model, tokenizer = load_model(config.policy)
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
    rows = {
        "input_ids": [ids for ids, _ in episodes],
        "completion_mask": [[int(label >= 0) for label in labels] for _, labels in episodes],
    }
    peft_config = make_adapter_config(config.train.lora)
    data = Dataset.from_dict(rows)
    trainer = SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer, peft_config=peft_config, callbacks=[taker])
    return float(trainer.train().training_loss)
