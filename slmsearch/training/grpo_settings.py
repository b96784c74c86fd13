"""Translate settings into what TRL takes: its arguments, the order of its rows, its engine, its adapter."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig

from slmsearch.config import LoraSection, TrainConfig
from slmsearch.corpus.questions import Question
from slmsearch.episodes.playable import Playable
from slmsearch.errors import ConfigError

PATIENCE_S = 4 * 3600
"""Longest time that processes wait for each other, in seconds: the first plays the preflight rollouts while the others wait, and a judge
may be slow. The launcher notices at once when a process has died."""


def num_steps(config: TrainConfig, num_questions: int) -> int:
    """Count the optimiser steps of a run: as configured, or as many as `epochs` passes take."""
    return config.steps or max(1, math.ceil(config.epochs * num_questions / config.questions_per_step))


def order_questions(num_questions: int, num_rows: int, seed: int) -> list[int]:
    """Draw the order of questions for a whole run: pass after pass over all of them, each in a new order.

    The order is fixed in advance, because no checkpoint holds a sampler's state and TRL would start over with its first pass.

    Args:
        num_questions: number of questions of a pass.
        num_rows: length of the order.
        seed: random seed of the run.
    """
    chance = random.Random(f"question order {seed}")
    order: list[int] = []
    while len(order) < num_rows:
        order += chance.sample(range(num_questions), num_questions)
    return order[:num_rows]


def make_dataset(questions: Sequence[Question], environment: Playable) -> Dataset:
    """Make the data of a whole run: one row per question and step, as messages."""
    train = environment.config.train
    order = order_questions(len(questions), num_steps(train, len(questions)) * train.questions_per_step, train.seed)
    prompts = [[dict(message) for message in environment.opening(question.question)] for question in questions]
    return Dataset.from_dict({"prompt": [prompts[i] for i in order]})


def make_arguments(environment: Playable, directory: Path, max_steps: int, use_cpu: bool) -> GRPOConfig:
    """Translate the environment's configuration into TRL's.

    Args:
        environment: environment that plays the run's questions.
        directory: takes the checkpoints.
        max_steps: optimiser steps.
        use_cpu: train on the CPU.

    Raises:
        ConfigError: the episodes of a step cannot be divided evenly.
    """
    policy, train, vllm = environment.config.policy, environment.config.train, environment.config.train.vllm
    episodes, micro_batches = train.questions_per_step * train.group_size, train.num_processes * train.accumulation
    if episodes % micro_batches:
        raise ConfigError(
            f"{episodes} episodes a step cannot be split over {train.num_processes} processes x {train.accumulation} micro-batches: "
            "change train.questions_per_step, train.group_size or train.accumulation"
        )
    if (reward := environment.config.reward).abstained and reward.abstained_gated and episodes // train.num_processes % train.group_size:
        raise ConfigError(f"reward.abstained needs whole groups in each of {train.num_processes} processes: change train.group_size")
    return GRPOConfig(
        output_dir=str(directory),
        seed=train.seed,
        max_steps=max_steps,
        per_device_train_batch_size=episodes // micro_batches,
        gradient_accumulation_steps=train.accumulation,
        num_generations=train.group_size,
        num_iterations=1,
        shuffle_dataset=False,
        learning_rate=train.learning_rate,
        lr_scheduler_type=train.lr_schedule,
        max_grad_norm=train.max_grad_norm,
        temperature=train.temperature,
        loss_type=train.loss,
        scale_rewards=train.scale_rewards,
        beta=train.kl_coef,
        epsilon_high=0.28,
        max_completion_length=environment.limits.max_episode_tokens,
        disable_dropout=True,
        gradient_checkpointing=train.gradient_checkpointing,
        use_cpu=use_cpu,
        bf16=not use_cpu and policy.dtype != "float32",
        save_strategy="steps",
        save_steps=train.checkpoint_steps,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # at every forward pass, of which one process may make more than another
        ddp_timeout=PATIENCE_S,
        use_vllm=vllm.mode != "off",
        vllm_mode="colocate" if vllm.mode == "off" else vllm.mode,
        vllm_server_base_url=vllm.base_url if vllm.mode == "server" else None,
        vllm_gpu_memory_utilization=vllm.gpu_memory_frac,
    )


def make_adapter_config(lora: LoraSection) -> LoraConfig:
    """Translate the adapter's settings into PEFT's."""
    return LoraConfig(task_type="CAUSAL_LM", r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules)
