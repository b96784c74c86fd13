"""GRPO through TRL's `GRPOTrainer`: its arguments from `TrainConfig`, and a trainer that adds to it.

Added: episodes from `RolloutBridge`; forward passes over trees of the rows instead of one padded block; the gap between
sampler and trainer; a report per step; sealed checkpoints. The loss, the advantages and the adapter are TRL's and PEFT's.
TRL's private parts are touched here alone.
Shapes: B rows of a micro-batch, T tokens of a row, C tokens of its completion: the last C of the T.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import fsum
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import pad
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient

from slmsearch.config import TrainConfig
from slmsearch.models.flex import to_device
from slmsearch.processes.processor import trim_heap
from slmsearch.sampling.torch_sampler import is_small
from slmsearch.training.fused_lora import fused_lora
from slmsearch.training.grpo_settings import make_adapter_config, make_dataset
from slmsearch.training.parts import Unheard, cut_batch, lay_out
from slmsearch.training.rollout_bridge import RolloutBridge, episode_reward
from slmsearch.training.rows import find_distinct, only_needed, split_blocks, spread_values
from slmsearch.training.tree import ScoredTree, TreeCheck, check_tree, score_tree, score_trees

GAP = "policy/kl_sampler"
"""Name of the gap between sampler and trainer."""
NO_ADVANTAGE = 1e-6
"""Advantages up to this size are rounding errors of a group whose rewards are all equal."""
GAP_TOKENS = 1024
"""Tokens of rows without advantage that are scored to measure the sampler's gap, in an update; a row of each micro-batch at least."""


def compute_advantages(
    rewards: Sequence[float | None], group_size: int, algorithm: Literal["rloo", "reinforce"], baseline: float
) -> list[float]:
    """Compute one advantage per episode as `train.algorithm` says; 0.0 without a reward or without a second one in the group.

        grpo        r - mean of the group                   what TRL computes
        rloo        r - mean of the group's other episodes  = grpo x n / (n - 1), n episodes of the group having a reward
        reinforce   r - a constant                          needs no group

    All three share TRL's loss: with one update per batch the ratio is 1 and its gradient is the policy gradient's. TRL's own RLOO
    trainer takes no rollouts from outside. Sources: GRPO: Shao et al. 2024 (DeepSeekMath), without the division by the standard
    deviation (Liu et al. 2025, Dr. GRPO). RLOO: Kool et al. 2019, Ahmadian et al. 2024. REINFORCE: Williams 1992.

    Args:
        rewards: (episodes,) of all groups, group after group; None for an episode without one, which gets advantage 0.0.
        group_size: G, episodes per group.
        algorithm: formula of the table.
        baseline: the constant that `reinforce` subtracts.
    """
    if algorithm == "reinforce":
        return [0.0 if reward is None else reward - baseline for reward in rewards]
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [reward for reward in group if reward is not None]
        total = fsum(known)
        for reward in group:
            others = len(known) - 1
            advantages.append(0.0 if reward is None or others < 1 else reward - (total - reward) / others)
    return advantages


class SearchTrainer(GRPOTrainer):
    """A `GRPOTrainer` that computes only what its loss needs, knows other advantages, and measures the gap between sampler and trainer.

    Most of a batch needs no computing: padding (lengths differ by a factor of five), tool text (needs no log-probabilities), groups
    without advantage (no gradient), and repetitions (a sure policy plays a question the same way several times). Neither loss nor gradient
    changes.
    """

    search: TrainConfig
    """Settings of the advantages."""
    bridge: RolloutBridge
    """Bridge to the last batch's rewards."""
    tree_check: TreeCheck | None = None
    """Check that decides whether updates go over trees; None: not made yet."""
    nodes_per_part = 0
    """Nodes of a batch that go forward and backward together, see `parts.py`; 0: all of a micro-batch."""
    _needed: Tensor | None = None
    """(B, C) completion tokens whose log-probabilities the loss being computed will use; None: all."""
    _trees: list[ScoredTree] | None = None
    """Trees that give these log-probabilities, where they are built already."""
    _policy_logprobs: Tensor | None = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as TRL does; on the CPU the adapter's products take fewer passes over memory (`fused_lora`)."""
        with fused_lora(self.model) if self.args.use_cpu else nullcontext():
            return super().train(*args, **kwargs)

    def _generate(self, prompts: Any) -> Any:
        """Play episodes; tell TRL that vLLM has this step's weights, which `trainer_samplers` sees to."""
        self._last_loaded_step = self.state.global_step
        self._return_memory()
        return super()._generate(prompts)

    def _return_memory(self) -> None:
        """Return memory that a phase or a part of an update on the CPU has freed.

        The next one keeps tensors of other sizes, which the freed pieces could not hold (8.6 GiB after twelve steps of 16 x 8 episodes of
        SmolLM2; of 8 x 8 episodes 5.6 after eight). A small model's stays: returning and taking it again was an eighth of the demo's step.
        """
        if self.args.use_cpu and not is_small(self.model):
            trim_heap()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Play and score a batch as TRL does, then replace GRPO's advantages with those of the configured algorithm."""
        output = super()._generate_and_score_completions(inputs)
        width = output["completion_ids"].shape[1]
        sampled = [row + [0] * (width - len(row)) for row in self.bridge.sampled_mask]  # (B, C), right-padded
        output["sampled_mask"] = torch.tensor(sampled, device=output["completion_ids"].device)
        algorithm, size, count = self.search.algorithm, self.search.group_size, len(self.bridge.rewards)
        rewards, first = gather_object(self.bridge.rewards), self.accelerator.process_index * count
        own = slice(first, first + count)  # (B,): `rewards` are of all processes
        if algorithm != "grpo":
            output["advantages"] = output["advantages"].new_tensor(compute_advantages(rewards, size, algorithm, self.search.baseline)[own])
        elif self.search.scale_rewards != "none":  # TRL divides the rounding errors of equal rewards by their deviation
            has_signal = [len(set(rewards[i - i % size :][:size]) - {None}) > 1 for i in range(len(rewards))]
            output["advantages"] *= output["advantages"].new_tensor(has_signal[own])
        return output

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, batch_size: int | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Score the needed tokens over trees of the rows (B, C); others get 0, and so do entropies, which nothing reads here.

        The first batch is also scored row by row; where the two differ, all batches are.
        """
        prompt_width = input_ids.shape[1] - logits_to_keep
        needed = attention_mask.bool() if self._needed is None else pad(self._needed, (prompt_width, 0))  # (B, T)
        arguments = (model, input_ids, attention_mask, needed, logits_to_keep)
        if self.has_trees(*arguments):
            known = self._trees
            logprobs = score_tree(self, *arguments) if known is None else score_trees(self, model, known, input_ids.shape)[:, prompt_width:]
            entropies = torch.zeros_like(logprobs) if kwargs.get("compute_entropy") else None
        else:
            logprobs, entropies = self.score_rows(*arguments, **kwargs)
        if logprobs.requires_grad:
            self._policy_logprobs = logprobs.detach()
        return logprobs, entropies, None

    def has_trees(self, *batch: Any) -> bool:
        """Return whether updates go over trees, which the first batch decides."""
        if self.tree_check is None:
            self.tree_check = check_tree(self, *batch)
        return self.tree_check.passed

    def score_rows(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, needed: Tensor, logits_to_keep: int, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Score the needed tokens as TRL's method does, each distinct row once, in blocks of rows of similar length.

        Args:
            model: as trained, with its wrappers.
            input_ids: (B, T), prompts padded on the left, completions on the right.
            attention_mask: (B, T), 0 where padded.
            needed: (B, T), True only for tokens of the last C.
            logits_to_keep: C.
            kwargs: as TRL passes them.

        Returns:
            Log-probabilities and, where TRL asks for them, entropies, each (B, C); 0 for rows without needed tokens.
        """
        prompt_width = input_ids.shape[1] - logits_to_keep
        picked, place = find_distinct(input_ids, attention_mask, needed)  # distinct rows; (B,) which of them each row equals
        real = attention_mask.cpu()  # extents are read from it: on a CUDA device each would wait for the block before
        blocks = []
        for span in split_blocks(picked, real):
            used, rows = real[span].any(0).nonzero(), to_device(span.numpy(), input_ids.device)
            first, last = min(int(used[0]), prompt_width - 1), max(int(used[-1]), prompt_width)
            kept, window = last + 1 - prompt_width, slice(first, last + 1)  # without columns in which the whole block is padding
            block = (only_needed(model, needed[rows, window]), input_ids[rows, window], attention_mask[rows, window], kept)
            scored = super()._get_per_token_logps_and_entropies(*block, **kwargs)
            blocks.append([None if values is None else pad(values, (0, logits_to_keep - kept)) for values in scored[:2]])
        logprobs, entropies = (spread_values(column, place) for column in zip(*blocks, strict=True))
        assert logprobs is not None
        return logprobs, entropies

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Compute TRL's loss, and from its log-probabilities the mean gap to the sampler's."""
        self._return_memory()
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()  # (B, C), True where the policy wrote the token
        if self.beta == 0.0:
            teaching = inputs["advantages"].abs() > NO_ADVANTAGE
            inputs = {**inputs, "advantages": inputs["advantages"] * teaching}
            mask = mask & teaching[:, None]  # (B, C) & (B, 1)
            if not mask.any():  # the loss must still depend on the weights, for `backward`
                mask[0, 0] = True
        # Tokens left out get log-probability 0 below; against real values of the others a ratio would overflow, and inf x 0 is NaN.
        others = ("old_per_token_logps", "ref_per_token_logps")
        clean = {name: inputs[name].masked_fill(~mask, 0.0) for name in others if inputs.get(name) is not None}
        left = self._choose_left(inputs, mask)
        loss = (self._learn_in_parts if self.nodes_per_part else self._take_loss)(model, {**inputs, **clean}, mask)
        if inputs.get("sampling_per_token_logps") is not None:
            self._measure_gap(model, inputs, mask, left)
        return loss

    def _take_loss(self, model: Any, inputs: dict[str, Tensor], mask: Tensor, trees: list[ScoredTree] | None = None) -> Tensor:
        """Compute TRL's loss from the log-probabilities of the completion tokens in `mask` (B, C)."""
        self._needed, self._trees = mask, trees
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._needed = self._trees = None
        return loss

    def _learn_in_parts(self, model: Any, inputs: dict[str, Tensor], mask: Tensor) -> Tensor:
        """Compute loss and gradients of one part after the other; return the sum, without a gradient. The host waits for a card once."""
        ids, real, needed = lay_out(inputs, mask)
        over_trees = self.has_trees(model, ids, real, needed, mask.shape[1])
        total, policy, accelerator = mask.new_zeros((), dtype=torch.float32), torch.zeros_like(mask, dtype=torch.float32), self.accelerator
        with nullcontext() if self.args.use_cpu else fused_lora(model):
            for rows, trees in cut_batch(model, ids, real, needed, self.nodes_per_part, over_trees):
                part = {name: value[rows] if value.ndim else value for name, value in inputs.items()}
                if self.beta == 0.0:
                    self.accelerator = Unheard(accelerator)
                try:
                    loss = self._take_loss(model, part, mask[rows], trees)
                finally:
                    self.accelerator = accelerator
                assert self._policy_logprobs is not None
                policy[rows] = self._policy_logprobs.float()
                total += loss.detach()
                accelerator.backward(loss)
                self._return_memory()
        self._policy_logprobs = policy
        return total.requires_grad_()

    def _choose_left(self, inputs: dict[str, Tensor], mask: Tensor) -> Tensor | None:
        """Choose tokens (B, C) of rows without advantage by which the gap is measured, too; None: there are none.

        Groups without advantage are not in the loss (`mask`, (B, C)), but a sampler that deviates shows there, too. Where TRL computed the
        trainer's log-probabilities before the loss (vLLM), those of all tokens exist.
        """
        if inputs.get("sampling_per_token_logps") is None or inputs.get("old_per_token_logps") is not None:
            return None
        left = inputs["sampled_mask"].bool() & ~mask  # (B, C)
        tokens = torch.where(left.any(1), inputs["prompt_mask"].sum(1) + inputs["completion_mask"].sum(1), 0)
        left &= (tokens.cumsum(0) - tokens < GAP_TOKENS / self.args.gradient_accumulation_steps)[:, None]
        return left if left.any() else None

    @torch.no_grad()
    def _measure_gap(self, model: Any, inputs: dict[str, Tensor], mask: Tensor, left: Tensor | None) -> None:
        """Measure the mean gap between the sampler's log-probabilities and the trainer's over sampled tokens; see `_choose_left`."""
        measured = inputs["sampled_mask"].bool()
        policy = inputs.get("old_per_token_logps")
        if policy is None:
            policy = self._policy_logprobs
            assert policy is not None
            if left is not None:
                policy = torch.where(mask, policy, self._score(model, inputs, left))
            measured = measured & (mask if left is None else mask | left)
        gap = ((inputs["sampling_per_token_logps"] - policy) * measured).sum()  # nats, over (B, C)
        total = self.accelerator.reduce(torch.stack([gap, measured.sum().to(gap.dtype)]), reduction="sum")
        self._metrics["train"][GAP].append(total[0] / total[1].clamp(min=1))  # `log` reads it, after the card has computed it

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, including values that lie on the device until then."""
        metrics = self._metrics["train"]
        if GAP in metrics:
            metrics[GAP] = [float(gap) for gap in metrics[GAP]]
        super().log(logs, start_time)

    def _score(self, model: Any, inputs: dict[str, Tensor], needed: Tensor) -> Tensor:
        """Compute the log-probabilities (B, C) of the completion tokens in `needed`; the others get 0."""
        ids, real, _ = lay_out(inputs, needed)
        self._needed = needed
        try:
            return self._get_per_token_logps_and_entropies(model, ids, real, needed.shape[1])[0]
        finally:
            self._needed = None

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write no model card: TRL would write one at every checkpoint."""


class AdapterClient(VLLMClient):
    """TRL's client of a server that takes adapters as files, and no weights."""

    def init_communicator(self, device: Any = 0) -> None:
        """Skip the communicator, which would carry weights."""


@contextmanager
def vllm_takes(**settings: Any) -> Iterator[None]:
    """Give the engine or client that TRL's trainer makes inside the context settings that TRL does not know, or sets otherwise."""
    trl: Any = vllm_generation
    if not hasattr(trl, "LLM"):  # vLLM is not installed, and TRL will raise the error
        yield
        return
    engine, client = trl.LLM, trl.VLLMClient
    trl.LLM = lambda **given: engine(**{**given, **settings})
    if settings.get("enable_lora"):
        trl.VLLMClient = AdapterClient
    try:
        yield
    finally:
        trl.LLM, trl.VLLMClient = engine, client


def make_trainer(
    model: Any, tokenizer: Any, bridge: RolloutBridge, arguments: GRPOConfig, callback: TrainerCallback, nodes: int
) -> SearchTrainer:
    """Make the trainer; a model that already carries an adapter continues with that one.

    Args:
        model: to be trained.
        tokenizer: the model's own.
        bridge: plays the episodes.
        arguments: TRL's settings.
        callback: called around every step.
        nodes: nodes of a batch that go forward and backward together (`MemoryPlan.part_nodes`); 0: all of a micro-batch.
    """
    config = bridge.environment.config
    # TRL would parse whole episodes by a response template; the saved model keeps its own.
    tokenizer = copy.copy(tokenizer)
    tokenizer.response_template = None
    adapter = make_adapter_config(config.train.lora) if config.train.method == "lora" and not isinstance(model, PeftModel) else None
    trainer = SearchTrainer(
        model=model,
        reward_funcs=episode_reward,
        args=arguments,
        train_dataset=make_dataset(list(bridge.questions.values()), bridge.environment),
        processing_class=tokenizer,
        peft_config=adapter,
        rollout_func=bridge,
        callbacks=[callback],
    )
    if config.train.vllm.mode == "colocate" and not arguments.use_cpu:
        trainer.vllm_generation.llm.sleep(level=1)
    trained: Any = trainer.model
    for weight in trained.parameters():
        if weight.requires_grad:  # TRL casts an adapter on 4-bit weights to bfloat16, in which small steps are lost
            weight.data = weight.data.float()
    trainer.search, trainer.bridge, trainer.nodes_per_part = config.train, bridge, nodes
    trainer.remove_callback(PrinterCallback)
    return trainer
