"""The bridge between the project's rollout and TRL: what `GRPOTrainer(rollout_func=...)` calls.

TRL hands over prompts, each already repeated once per episode of its group, and wants token ids, a mask and whatever the reward
function needs, one value per prompt and in order. Episodes are played with the weights being trained, judged and scored here;
TRL's reward function only passes the number on. What TRL decodes and calls "completion" holds tool text too and is never read.

A failed episode gets no reward (None): it leaves its group, is counted, and too many of them stop training.
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import fsum
from statistics import stdev
from typing import Any

import torch
from accelerate.utils import gather_object
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch.nn import Linear, Parameter
from trl.models import unwrap_model_for_generation

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import TrainingError
from slmsearch.evaluate.metrics import summarise
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.evaluate.run import grade_episodes
from slmsearch.generate.writer import Sampling, Writer
from slmsearch.judge import Judge
from slmsearch.searcher.episode import Episode, StopReason
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import SEARCH, Toolbox

FOLD_UP_TO = 50_000_000
"""Weights a model may have for its adapter to be folded in while episodes are played: it costs a copy of the adapted layers."""

MakeWriter = Callable[[Any], Writer]
"""Model being trained (adapter active, wrappers off) -> writer that samples from it."""


class RolloutBridge:
    """Plays a generation batch for TRL and keeps the metrics of the last one."""

    def __init__(
        self, questions: Sequence[Question], toolbox: Toolbox, judge: Judge, config: RunConfig, make_writer: MakeWriter, end_id: int
    ) -> None:
        """Bind what an episode needs.

        Args:
            questions: all questions that may be asked for; no two with the same text, for the text is all that TRL passes on.
            toolbox: tools over the corpus.
            judge: decides which answers are right.
            config: limits, reward, seed, tolerated failures.
            make_writer: called once per batch.
            end_id: token that stands in for an episode that failed.
        """
        self._questions = {question.question: question for question in questions}
        if len(self._questions) != len(questions):
            raise ValueError("two questions have the same text")
        self._toolbox, self._judge, self._config = toolbox, judge, config
        self._make_writer, self._end_id = make_writer, end_id
        self.metrics: dict[str, float] = {}
        """Of the last batch, over all processes, under the project's names."""
        self.rewards: list[float | None] = []
        """Of the last batch, of this process, in the order of the prompts."""
        self.episodes: list[Episode] = []
        """Likewise."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play one episode per prompt, in order; see TRL's `rollout_func`.

        Args:
            prompts: messages, the question last.
            trainer: the calling trainer.

        Raises:
            TrainingError: more episodes failed than `train.max_failed_frac` allows.
        """
        questions = [self._questions[prompt[-1]["content"]] for prompt in prompts]
        seed = step_seed(self._config.train.seed, trainer.state.global_step)
        first_row = trainer.accelerator.process_index * len(prompts)
        sampling = Sampling(
            temperature=trainer.temperature,
            seed=seed,
            first_row=first_row,
            max_new_tokens=self._config.searcher.max_turn_tokens,
        )
        started = time.perf_counter()
        with playable(trainer) as model:
            writer = self._make_writer(model)
            episodes = play_episodes(questions, writer, self._toolbox, self._config.searcher, sampling)
        seconds = time.perf_counter() - started
        self.episodes = episodes
        chance = random.Random(f"rewards {seed} {first_row}")
        rows = grade_episodes(questions, episodes, self._judge, self._config.reward, [chance.random() for _ in episodes])
        dropped = {StopReason.MALFORMED} if self._config.train.void_turns == "drop" else set()
        self.rewards = [None if row.failed or row.stop_reason in dropped else row.reward for row in rows]
        self._summarise(gather_object(rows), gather_object(self.rewards), trainer.num_generations)
        self.metrics |= {"policy/entropy": mean_surprise(episodes), "time/rollout_s": seconds, **summarise_habits(rows, episodes)}
        return {**to_tokens(episodes, self._end_id), "episode_reward": self.rewards}

    def score(self, questions: Sequence[Question], trainer: Any) -> float:
        """Play questions once, greedily, with the weights in place, and return their mean reward; every process plays them all."""
        sampling = Sampling(temperature=0.0, seed=0, max_new_tokens=self._config.searcher.max_turn_tokens)
        with playable(trainer) as model:
            episodes = play_episodes(questions, self._make_writer(model), self._toolbox, self._config.searcher, sampling)
        reward = self._config.reward.model_copy(update={"kind": "task"})
        rows = [row for row in grade_episodes(questions, episodes, self._judge, reward) if not row.failed]
        return fsum(row.reward for row in rows) / max(1, len(rows))

    def _summarise(self, rows: list[EpisodeRow], rewards: list[float | None], group_size: int) -> None:
        failures = Counter(row.failure for row in rows if row.failed)
        if failures.total() > self._config.train.max_failed_frac * len(rows):
            cause = failures.most_common(1)[0][0]
            raise TrainingError(f"{failures.total()} of {len(rows)} episodes of a step failed: {cause}")
        self.metrics = {**summarise(rows), **summarise_groups(rewards, group_size)}


@contextmanager
def playable(trainer: Any) -> Iterator[Any]:
    """Lend the trained model for sampling: wrappers and gradient checkpointing off, eval mode, no gradients; then restore.

    TRL calls `rollout_func` in train mode with gradients on.
    """
    with torch.no_grad(), unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as unwrapped:
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            with trainer.accelerator.autocast(), folded(unwrapped) as model:
                yield model
        finally:
            trainer.model.train(was_training)


@contextmanager
def folded(model: Any) -> Iterator[Any]:
    """Take PEFT's wrapper off; in a small float32 model fold the adapter into the weights while it is lent, too.

    A small model spends most of its time on the adapter's many little operations. PEFT's own merge and unmerge leave rounding
    errors in the base weights at every step; here the untouched layers are put back.
    """
    if not isinstance(model, PeftModel):
        yield model
        return
    base = model.get_base_model()
    adapted = [(name, layer) for name, layer in base.named_modules() if isinstance(layer, LoraLinear)]
    small = sum(weight.numel() for weight in base.parameters()) <= FOLD_UP_TO
    if not small or any(type(layer.base_layer) is not Linear or layer.base_layer.weight.dtype != torch.float32 for _, layer in adapted):
        yield base
        return
    try:
        for name, layer in adapted:
            _replace(base, name, _fold(layer))
        yield base
    finally:
        for name, layer in adapted:
            _replace(base, name, layer)


def _fold(layer: Any) -> Linear:
    weight = layer.base_layer.weight + sum(layer.get_delta_weight(name) for name in layer.active_adapters)
    plain = Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    plain.weight, plain.bias = Parameter(weight, requires_grad=False), layer.base_layer.bias
    return plain


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)


def step_seed(seed: int, step: int) -> int:
    """Derive the sampler's seed from the run's seed and the steps done, so that a resumed run samples the same."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:8], "big") >> 1


def to_tokens(episodes: Sequence[Episode], end_id: int) -> dict[str, Any]:
    """Lay episodes out as TRL wants them: `prompt_ids`, `completion_ids`, `env_mask` (1 = the policy wrote it), `logprobs`.

    A failed episode becomes a single end token with mask 0, because TRL cannot take an empty completion and one that ends on a
    tool token counts as cut off. `logprobs` are those of the sampler, only for measuring how far it is from the trainer.
    """
    completions, masks, logprobs = [], [], []
    for episode in episodes:
        usable = episode.stop_reason is not StopReason.FAILED and bool(episode.completion_ids)
        completions.append(episode.completion_ids if usable else [end_id])
        masks.append(episode.sampled_mask if usable else [0])
        logprobs.append(episode.sampled_logprobs if usable else [0.0])
    known = all(len(a) == len(b) for a, b in zip(completions, logprobs, strict=True))
    return {
        "prompt_ids": [list(episode.prompt_ids) or [end_id] for episode in episodes],
        "completion_ids": completions,
        "env_mask": masks,
        "logprobs": logprobs if known else None,
    }


def mean_surprise(episodes: Sequence[Episode]) -> float:
    """Estimate the policy's entropy (nats): mean of -log p over all tokens sampled, in all processes.

    TRL measures it where it computes log-probabilities, which here leaves out every group without advantage.
    """
    logprobs = [value for episode in episodes for turn in episode.turns for value in turn.sampled_logprobs]
    sums: list[tuple[float, int]] = gather_object([(fsum(logprobs), len(logprobs))])
    return -fsum(total for total, _ in sums) / max(1, sum(count for _, count in sums))


def summarise_habits(rows: Sequence[EpisodeRow], episodes: Sequence[Episode]) -> dict[str, float]:
    """Measure what changes before the reward does, over all processes: likelihood of right and wrong episodes, searches, answers.

    A mean over nothing is left out.
    """
    sums = {name: [0.0, 0.0] for name in ("policy/logprob_right", "policy/logprob_wrong", "episode/searches", "answer/words")}
    for row, episode in zip(rows, episodes, strict=True):
        if row.failed:
            continue
        logprobs = [value for turn in episode.turns for value in turn.sampled_logprobs]
        likelihood = sums["policy/logprob_right" if row.correct else "policy/logprob_wrong"]
        likelihood[0] += fsum(logprobs)
        likelihood[1] += len(logprobs)
        sums["episode/searches"][0] += sum(call.name == SEARCH for call in episode.calls)
        sums["episode/searches"][1] += 1
        if episode.answer is not None:
            sums["answer/words"][0] += len(episode.answer.split())
            sums["answer/words"][1] += 1
    everywhere = gather_object([sums])
    totals = {name: [fsum(part[name][k] for part in everywhere) for k in (0, 1)] for name in sums}
    return {name: total / count for name, (total, count) in totals.items() if count}


def summarise_groups(rewards: Sequence[float | None], group_size: int) -> dict[str, float]:
    """Measure the spread of rewards inside groups; None has left its group, and a group under two teaches nothing."""
    groups = [[reward for reward in rewards[i : i + group_size] if reward is not None] for i in range(0, len(rewards), group_size)]
    spreads = [stdev(group) if len(group) > 1 else 0.0 for group in groups]
    silent = sum(len(set(group)) < 2 for group in groups)
    return {"reward/std": fsum(spreads) / len(groups), "group/zero_advantage_frac": silent / len(groups)}


def episode_reward(completions: list[Any], episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """Pass on the rewards that the bridge computed; TRL's reward function."""
    return episode_reward
