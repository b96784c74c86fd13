"""Supervised training on demonstrations: tiny-searcher from scratch, a real model's first steps, and the control of a run.

The loss is the mean over the tokens that the demonstrator wrote in an update (messages and their end-of-turn tokens), plus a smaller
weight times the mean over all others. Optimiser, schedule and loop are those of transformers' `Trainer`. An update goes through the
model in micro-batches of episodes of similar length or, where `batch_size` fixes its number of episodes, as trees of their common
beginnings. Each loss is divided by the tokens of the whole update, so that its division changes no gradient. The head is computed only
for tokens with a loss, a tile at a time.

Shapes: B rows, T tokens, D hidden size, V vocabulary.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

from slmsearch.config import SftConfig
from slmsearch.models.attention import use_attention
from slmsearch.models.flex import to_device
from slmsearch.models.load import has_bf16
from slmsearch.processes.processor import trim_heap
from slmsearch.training.card import watching_card
from slmsearch.training.check_head import check_head
from slmsearch.training.encoding import IGNORED, Encoded
from slmsearch.training.fused_lora import fused_lora, lower_frozen
from slmsearch.training.held_out import HeldOutScores, Score
from slmsearch.training.losses import causal_of, token_losses
from slmsearch.training.memory import SFT
from slmsearch.training.phase_timer import CardUse, PhaseTimer
from slmsearch.training.sft_checkpoints import SftCheckpoints
from slmsearch.training.streams import within_context
from slmsearch.training.tree import Tree, attention_width, build_trees, compare, tree_inputs

OnLog = Callable[[int, dict[str, float]], None]
"""Callback with the step and the logs of `Trainer`."""
OnPhase = Callable[[str, str, int, int], None]
"""Callback with the current activity, the unit of its count, the count so far, and the total."""


def tell_nobody(what: str, unit: str, done: int, total: int) -> None:
    """Ignore progress."""


WINDOW = 64
"""Batches that are filled together, so that a batch holds episodes of similar length."""

WIDTH_STEP, WIDE, WIDE_STEP = 16, 512, 64
"""Units of a batch's width: the first up to the width `WIDE`, then the third. oneDNN compiles a kernel for every new shape and keeps it:
with a new shape in every step the process grew to 5.6 GB instead of 1.4."""

TRIM_STEPS = 16
"""Updates after which a CPU's freed memory is returned to the system: its pieces fit other tensors badly (a process grew by 9 MiB an update
with SmolLM2). Returning it after every update costs a sixth of the time."""


Micro = dict[str, Tensor]
"""`input_ids`, `attention_mask` and `labels`, each (B, T), padded on the right."""


class TrainingFacts(TypedDict, total=False):
    """Record of a supervised training."""

    source: str
    """Source of its examples."""
    episodes: int | None
    """Number of its examples; None: an endless stream."""
    start: str
    """Model that it began with."""
    left_out: dict[str, int]
    """Number of excluded examples by reason."""
    config: dict[str, object]
    """Settings of a model trained from scratch; the next two fields are for such models, too."""
    parameters: int
    threads: int
    steps: int
    seconds: float
    card: dict[str, CardUse]
    """Use of a CUDA card, where there was one."""


class EpisodeBatches(IterableDataset[dict[str, list[Micro]]]):
    """An endless stream of updates, `{"parts": micro-batches}`; the same episodes and seed give the same ones."""

    def __init__(self, episodes: Callable[[], Iterator[Encoded]], pad_id: int, config: SftConfig) -> None:
        """Set up the stream of the episodes that `episodes` yields.

        Args:
            episodes: begins the stream of episodes.
            pad_id: token that pads rows on the right.
            config: sizes and seed.
        """
        self._episodes, self._pad_id, self._config = episodes, pad_id, config

    def __iter__(self) -> Iterator[dict[str, list[Micro]]]:
        """Yield the micro-batches of each update."""
        for update in self._of_so_many_episodes() if self._config.batch_size else self._of_similar_length():
            yield {"parts": update}

    def _of_so_many_episodes(self) -> Iterator[list[Micro]]:
        """Take episodes in order; inside an update the longest come first."""
        taken: list[Encoded] = []
        for encoded in self._episodes():
            taken.append(encoded)
            if len(taken) == self._config.batch_size:
                yield self._fill(taken, whole=False)[0]
                taken = []

    def _of_similar_length(self) -> Iterator[list[Micro]]:
        chance = random.Random(f"batches {self._config.seed}")
        waiting, tokens = list[Encoded](), 0
        for encoded in self._episodes():
            waiting.append(encoded)
            tokens += len(encoded.ids)
            if tokens >= WINDOW * self._config.tokens_per_batch:
                batches, waiting = self._fill(waiting, whole=True)
                tokens = sum(len(encoded.ids) for encoded in waiting)
                chance.shuffle(batches)
                yield from ([batch] for batch in batches)

    def _fill(self, waiting: list[Encoded], whole: bool) -> tuple[list[Micro], list[Encoded]]:
        """Fill batches, the longest episodes first; return them and, if `whole`, the episodes that did not fill one."""
        waiting = sorted(waiting, key=lambda encoded: -len(encoded.ids))
        batches = []
        while waiting:
            width = padded_width(len(waiting[0].ids))
            rows = max(1, self._config.tokens_per_batch // width)
            if whole and rows > len(waiting):
                break
            batches.append(self._pad(waiting[:rows], width))
            waiting = waiting[rows:]
        return batches, waiting

    def _pad(self, batch: Sequence[Encoded], width: int) -> Micro:
        return {
            "input_ids": torch.tensor([e.ids + [self._pad_id] * (width - len(e.ids)) for e in batch]),
            "attention_mask": torch.tensor([[1] * len(e.ids) + [0] * (width - len(e.ids)) for e in batch]),
            "labels": torch.tensor([e.labels + [IGNORED] * (width - len(e.ids)) for e in batch]),
        }


def padded_width(tokens: int) -> int:
    """Round a number of tokens up to the width of a batch."""
    step = WIDTH_STEP if tokens <= WIDE else WIDE_STEP
    return -(-tokens // step) * step


@dataclass(frozen=True)
class TreePart:
    """Episodes as a tree, with its P distinct pairs of a node and the token behind it."""

    tree: Tree
    pairs: Tensor
    """(2, P): nodes, and ids of the tokens behind them."""
    written: Tensor
    """(P,) number of episodes in which the demonstrator wrote the token."""
    context: Tensor
    """(P,) number of episodes in which it is any other token."""


def tree_parts(
    rows: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], context: bool, most: int, width: int, device: torch.device | str
) -> list[TreePart]:
    """Make trees of rows of ids and their labels, of at most `most` nodes each; see `build_trees`.

    Pairs that no demonstrator wrote are left out unless `context` is set.
    """
    found = []
    for members, tree in build_trees(rows, most, width, device, WIDE_STEP):
        before = np.concatenate([tree.nodes[n][:-1] for n in range(len(members))])
        behind = np.concatenate([np.asarray(rows[i][1:]) for i in members])
        is_written = np.concatenate([np.asarray(labels[i][1:]) != IGNORED for i in members])
        pairs, place = np.unique(np.stack([before, behind]), axis=1, return_inverse=True)
        counts = [np.bincount(place, weights, pairs.shape[1]).astype(np.float32) for weights in (is_written, ~is_written)]
        needed = np.flatnonzero(counts[0] + context * counts[1])
        found.append(TreePart(tree, *(to_device(np.ascontiguousarray(values[..., needed]), device) for values in (pairs, *counts))))
    return found


class DemonstrationTrainer(Trainer):
    """A `Trainer` with the loss described above; one of its batches is an update."""

    context_weight = 0.0
    tokens_per_tree = 0
    """Nodes of a tree. Common beginnings of an update's episodes go through the model once, if the first micro-batch has the same loss
    over trees; 0: micro-batches go through the model row by row."""
    tokens_per_update = 0
    """Divisor of the sum of an update's token losses, so that a token weighs the same in every batch; 0: the mean over the update's tokens.
    A batch of `tokens_per_batch` holds episodes of similar length, so that with the mean the few tokens of short ones weigh most: a
    planner whose shortest plan is not to plan never planned."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the updates as they are: accelerate's loader would cut every micro-batch to as many rows as the first has."""
        updates: Any = self.train_dataset
        return DataLoader(updates, batch_size=None)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run an update's micro-batches forward and backward; return the loss of the update."""
        if self.args.use_cpu and self.state.global_step % TRIM_STEPS == 0:
            trim_heap()
        parts: list[Micro] = inputs["parts"]  # on the CPU, where labels are counted: the host need not wait for a card
        if self.tokens_per_tree and not self.state.global_step and not self._check_trees(model.eval(), parts[0]):
            self.tokens_per_tree = 0
        model.train()
        written = self.tokens_per_update or sum(int(_is_written(part).sum()) for part in parts)
        context = self.tokens_per_update or sum(int(_is_context(part).sum()) for part in parts)
        total = torch.zeros((), device=self.args.device)
        for part in self._as_trees(model, parts) if self.tokens_per_tree else parts:
            loss = self._compute_loss(model, part, max(1, written), max(1, context))
            self.accelerator.backward(loss)
            total += loss.detach()
        return total

    def _as_trees(self, model: Any, parts: Sequence[Micro]) -> list[TreePart]:
        rows, labels = list[list[int]](), list[list[int]]()
        for part in parts:
            for ids, label, real in zip(part["input_ids"], part["labels"], part["attention_mask"].bool(), strict=True):
                rows.append(ids[real].tolist())
                labels.append(label[real].tolist())
        width, counts = attention_width(causal_of(model)), bool(self.context_weight)
        return tree_parts(rows, labels, counts, self.tokens_per_tree, width, self.args.device)

    def _compute_loss(self, model: Any, part: Micro | TreePart, written: int, context: int) -> Tensor:
        """Compute a part's share of the loss of an update that has `written` and `context` tokens of the two kinds."""
        with self.accelerator.autocast():
            compute: Any = self._compute_tree if isinstance(part, TreePart) else self._compute_part
            return cast(Tensor, compute(model, part, written, context))

    @torch.no_grad()
    def _check_trees(self, model: Any, part: Micro) -> bool:
        """Return whether a micro-batch has the same loss over trees as row by row."""
        ends = (max(1, int(_is_written(part).sum())), max(1, int(_is_context(part).sum())))

        def measure() -> float:
            trees = [self._compute_loss(model, tree, *ends) for tree in self._as_trees(model, [part])]
            return abs(float(self._compute_loss(model, part, *ends) - sum(trees)))

        return compare(causal_of(model), measure, exact=not self.args.bf16).passed

    def _compute_tree(self, model: Any, part: TreePart, written: int, context: int) -> Tensor:
        """Compute a tree's share of the update's loss."""
        causal = causal_of(model)
        weights = part.written / written + self.context_weight * part.context / context
        hidden = causal.base_model(**tree_inputs(causal, part.tree), upcast=self.args.use_cpu).last_hidden_state[0]
        before, behind = part.pairs
        return (token_losses(causal, hidden[before], behind) * weights).sum()

    def _compute_part(self, model: Any, part: Micro, written: int, context: int) -> Tensor:
        """Compute a micro-batch's share of the update's loss.

        Rows are padded on the right and attention is causal: no real token sees a padded one, so that no mask is needed.
        """
        causal, device = causal_of(model), self.args.device
        ids = to_device(part["input_ids"].numpy(), device)
        hidden = causal.base_model(input_ids=ids, use_cache=False, upcast=self.args.use_cpu).last_hidden_state[:, :-1]

        def losses(chosen: Tensor) -> Tensor:
            targets, places = part["input_ids"][:, 1:][chosen], chosen.nonzero(as_tuple=True)
            states = hidden[tuple(to_device(place.numpy(), device) for place in places)]
            return token_losses(causal, states, to_device(targets.numpy(), device))

        loss = losses(_is_written(part)).sum() / written
        if self.context_weight:
            loss = loss + self.context_weight * losses(_is_context(part)).sum() / context
        return loss


def _is_written(part: Micro) -> Tensor:
    return part["labels"][:, 1:] != IGNORED


def _is_context(part: Micro) -> Tensor:
    return part["attention_mask"][:, 1:].bool() & ~_is_written(part)


class _Report(TrainerCallback):
    """A callback that passes on every step, and the trainer's logs."""

    def __init__(self, on_log: OnLog | None, on_phase: OnPhase) -> None:
        self._on_log, self._on_phase = on_log, on_phase

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._on_phase("SFT", "steps", state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if self._on_log is not None:
            self._on_log(state.global_step, {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)})


@dataclass(frozen=True)
class Lesson:
    """A loaded model and the examples that train it."""

    model: Any
    """A causal language model, bare or with an adapter. Its trained weights are float32; the processor uses bfloat16 autocast if it can,
    and frozen weights are then bfloat16."""
    tokenizer: Any
    """Tokenizer of the model, with chat template."""
    settings: SftConfig
    """Settings: steps, learning rate, batch size."""
    stream: Callable[[], Iterator[Encoded]]
    """Function that begins an endless stream of episodes, see `streams.py`."""
    facts: TrainingFacts = field(default_factory=TrainingFacts)
    """Record of the training, without steps and seconds."""
    even: bool = False
    """True: every token weighs the same, see `DemonstrationTrainer.tokens_per_update`."""
    card: Callable[[TrainingFacts], str] | None = None
    """Function that writes a model card from the record."""
    score: Score | None = None
    """Function that plays held-out questions; it changes nothing."""
    use_cpu: bool = False
    """Train on the CPU, also where there is a GPU."""


def train_sft(
    lesson: Lesson,
    scratch_dir: Path,
    on_log: OnLog | None = None,
    gradient_checkpointing: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    key: str = "",
    on_phase: OnPhase = tell_nobody,
) -> float:
    """Train a model in place.

    Args:
        lesson: the model and its episodes.
        scratch_dir: `Trainer` writes here: checkpoints, if there is a key.
        on_log: called with step and `Trainer`'s logs twenty times, at least every 50 steps.
        gradient_checkpointing: keep no activations inside a layer and recompute them in the backward pass.
        callbacks: callbacks for `Trainer`, beside `on_log`.
        key: names the training, see `SftCheckpoints`; a killed one resumes from its checkpoint and ends with the same weights.
        on_phase: called at every step, and where a killed training resumes.

    Returns:
        Seconds that killed processes trained before.

    Raises:
        ModelError: an episode is longer than the model's context, or the model scales its logits in a way that is not known here.
    """
    model, config = lesson.model, lesson.settings
    set_seed(config.seed)
    use_cpu = lesson.use_cpu or not torch.cuda.is_available()
    args = _make_arguments(config, scratch_dir, gradient_checkpointing, use_cpu)
    if args.bf16:
        lower_frozen(model)
    trainer = DemonstrationTrainer(
        model=model,
        args=args,
        train_dataset=EpisodeBatches(lambda: within_context(model, lesson.stream()), lesson.tokenizer.pad_token_id, config),
        callbacks=[*callbacks, _Report(on_log, on_phase)],
    )
    trainer.context_weight = config.context_weight
    trainer.tokens_per_tree = config.tokens_per_batch if config.batch_size else 0
    trainer.tokens_per_update = config.tokens_per_batch // 2 if lesson.even else 0
    trainer.remove_callback(PrinterCallback)
    if lesson.score and on_log:
        trainer.add_callback(HeldOutScores(lesson.score, on_log, trainer.accelerator.autocast))
    checkpoints = SftCheckpoints(trainer, key) if key else None
    use_attention(model)
    check_head(causal_of(model), trainer.accelerator)
    with fused_lora(model), watching_card(use_cpu) as card, PhaseTimer(card=card).on(SFT):
        trainer.train(resume_from_checkpoint=str(checkpoints.found) if checkpoints and checkpoints.found else None)
        if card is not None:
            lesson.facts["card"] = {SFT: card.read()[SFT]}
    return checkpoints.earlier_s if checkpoints else 0.0


def _make_arguments(config: SftConfig, scratch_dir: Path, gradient_checkpointing: bool, use_cpu: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(scratch_dir),
        max_steps=config.steps,
        per_device_train_batch_size=1,
        activation_checkpointing=gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if gradient_checkpointing else None,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=int(config.warmup_frac * config.steps),
        adam_beta2=0.98,
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=not use_cpu or has_bf16(),
        use_cpu=use_cpu,
        logging_steps=max(1, min(50, config.steps // 20)),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
