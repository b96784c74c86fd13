"""Supervised training on demonstrations: tiny-searcher from scratch, and the control that goes on from a checkpoint.

The loss is the mean over tokens the reader wrote (messages and their end-of-turn tokens), plus a smaller weight times the mean
over all others. Optimiser, schedule and loop are those of
transformers' `Trainer`; batches hold about `tokens_per_batch` tokens of similar length. Demonstrations come from a stream of
fresh random worlds, so nothing is seen twice and no world that anyone evaluates on is seen at all.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import IterableDataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

from slmsearch.config import SftConfig
from slmsearch.generate.dialogue import Dialogue
from slmsearch.learn.demonstrations import Demonstration, make_demonstrations

IGNORED = -100
"""Label of tokens that carry no loss."""

WINDOW = 64
"""Batches that are filled together, so that a batch holds episodes of similar length."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A demonstration as ids, and labels equal to them where the reader wrote and `IGNORED` elsewhere."""

    ids: list[int]
    labels: list[int]


def encode_demonstration(demonstration: Demonstration, dialogue: Dialogue) -> Encoded:
    """Encode a demonstration exactly as the rollout would have laid it out."""
    ids = list(dialogue.encode_prompt([{"role": "user", "content": demonstration.question}]))
    labels = [IGNORED] * len(ids)
    for message, result in demonstration.turns:
        written = [*dialogue.content_ids(message), dialogue.end_id]
        ids += written
        labels += written
        if result:
            context = dialogue.encode_result(result)
            ids += context
            labels += [IGNORED] * len(context)
    return Encoded(ids, labels)


class DemonstrationBatches(IterableDataset[dict[str, Any]]):
    """An endless stream of padded batches; the same seed gives the same batches."""

    def __init__(self, dialogue: Dialogue, config: SftConfig, top_k: int, max_tokens: int) -> None:
        """Set up the stream.

        Args:
            dialogue: encodes with the model's own template.
            config: recipe, batch size in tokens, seed.
            top_k: pages a search shows.
            max_tokens: longer episodes are left out.
        """
        self._dialogue, self._config, self._top_k, self._max_tokens = dialogue, config, top_k, max_tokens

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield batches of `input_ids`, `attention_mask` and `labels`, each rows x tokens."""
        chance = random.Random(f"batches {self._config.seed}")
        window: list[Encoded] = []
        tokens = 0
        for demonstration in make_demonstrations(self._config, self._top_k, self._config.seed):
            encoded = encode_demonstration(demonstration, self._dialogue)
            if len(encoded.ids) > self._max_tokens:
                continue
            window.append(encoded)
            tokens += len(encoded.ids)
            if tokens >= WINDOW * self._config.tokens_per_batch:
                yield from self._batches(window, chance)
                window, tokens = [], 0

    def _batches(self, window: list[Encoded], chance: random.Random) -> list[dict[str, Any]]:
        window.sort(key=lambda encoded: len(encoded.ids))
        batches: list[dict[str, Any]] = []
        batch: list[Encoded] = []
        for encoded in window:
            if batch and (len(batch) + 1) * len(encoded.ids) > self._config.tokens_per_batch:
                batches.append(self._pad(batch))
                batch = []
            batch.append(encoded)
        batches.append(self._pad(batch))
        chance.shuffle(batches)
        return batches

    def _pad(self, batch: Sequence[Encoded]) -> dict[str, Any]:
        width = max(len(encoded.ids) for encoded in batch)
        pad_id = self._dialogue.tokenizer.pad_token_id
        return {
            "input_ids": torch.tensor([e.ids + [pad_id] * (width - len(e.ids)) for e in batch]),
            "attention_mask": torch.tensor([[1] * len(e.ids) + [0] * (width - len(e.ids)) for e in batch]),
            "labels": torch.tensor([e.labels + [IGNORED] * (width - len(e.ids)) for e in batch]),
        }


class DemonstrationTrainer(Trainer):
    """`Trainer` with the loss described above."""

    context_weight = 0.0

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """Compute the weighted loss of one batch."""
        labels = inputs.pop("labels")[:, 1:]
        outputs = model(**inputs)
        logits, targets = outputs.logits[:, :-1].flatten(0, 1), inputs["input_ids"][:, 1:].flatten()
        losses = cross_entropy(logits.float(), targets, reduction="none").view(labels.shape)
        written = labels != IGNORED
        context = inputs["attention_mask"][:, 1:].bool() & ~written
        loss = losses[written].mean()
        if self.context_weight:
            loss = loss + self.context_weight * losses[context].mean()
        return (loss, outputs) if return_outputs else loss


class _Report(TrainerCallback):
    """Passes the trainer's logs on."""

    def __init__(self, on_log: Callable[[int, dict[str, float]], None]) -> None:
        self._on_log = on_log

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        self._on_log(state.global_step, {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)})


def train_sft(
    model: Any,
    tokenizer: Any,
    config: SftConfig,
    scratch_dir: Path,
    top_k: int,
    max_tokens: int,
    on_log: Callable[[int, dict[str, float]], None] | None = None,
) -> None:
    """Train all weights of a model in place on demonstrations.

    Args:
        model: a float32 causal language model; bf16 autocast is used where the processor has it.
        tokenizer: its tokenizer, with chat template.
        config: recipe, steps, learning rate.
        scratch_dir: where `Trainer` may write; nothing is left there.
        top_k: pages a search shows in the demonstrations.
        max_tokens: longer episodes are left out.
        on_log: called with step and `Trainer`'s logs every 50 steps.
    """
    set_seed(config.seed)
    use_cpu = not torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(scratch_dir),
        max_steps=config.steps,
        per_device_train_batch_size=1,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=int(config.warmup_frac * config.steps),
        adam_beta2=0.98,
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=not use_cpu or has_bf16(),
        use_cpu=use_cpu,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = DemonstrationTrainer(
        model=model,
        args=arguments,
        train_dataset=DemonstrationBatches(Dialogue(tokenizer), config, top_k, max_tokens),
        data_collator=_single,
        callbacks=[_Report(on_log)] if on_log else [],
    )
    trainer.context_weight = config.context_weight
    trainer.remove_callback(PrinterCallback)
    attention = model.config._attn_implementation
    if use_cpu:  # torch's fused attention is slow on the CPU in bfloat16: it took half of every step
        model.set_attn_implementation("eager")
    trainer.train()
    model.set_attn_implementation(attention)


def has_bf16() -> bool:
    """Say whether this processor multiplies bfloat16 itself; where it does not, bfloat16 is slower than float32."""
    known = torch.cpu.get_capabilities()
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _single(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return batches[0]
