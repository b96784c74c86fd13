"""A training run from job to adapter, inside the training process.

It knows no tracker: reports, checkpoints, adapter and manifest are files in the job's directory. The manifest is written last; a run with
a manifest is finished. Heavy packages are imported from here on; `launch.py` starts the run in a process of its own.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from peft import PeftModel

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.artifacts.files import replace_json
from slmsearch.config import PolicyConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import open_environment
from slmsearch.episodes.chat_renderer import ChatRenderer, require_context
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.evaluate.worked_examples import longest_prompt
from slmsearch.judge.qualify import require_qualified
from slmsearch.models.known import split_commit
from slmsearch.models.load import load_adapter, load_model, load_tokenizer
from slmsearch.training.callbacks import BestWeights, StepCallback
from slmsearch.training.card import watching_card
from slmsearch.training.files import ADAPTER, CHECKPOINTS, JOB, JUDGE, PREFLIGHT, STEPS, STOP, TREES, checkpoint_step
from slmsearch.training.grpo import SearchTrainer, make_trainer, vllm_takes
from slmsearch.training.grpo_settings import make_arguments, num_steps
from slmsearch.training.job import TrainJob, write_manifest
from slmsearch.training.memory import measure_available, measure_shape, plan_memory
from slmsearch.training.phase_timer import BEFORE, PhaseTimer
from slmsearch.training.preflight import check_learning, check_resources, require
from slmsearch.training.reports import append_report, read_reports
from slmsearch.training.rollout_bridge import RolloutBridge
from slmsearch.training.trainer_samplers import engine_settings, open_base_sampler, open_torch_sampler, open_vllm_sampler

ONE_FILE = "1TB"
"""Size above which a model would be split into several files."""


def run_job(job: TrainJob, checkpoint: Path | None = None) -> None:
    """Train a job, from a complete checkpoint of it if one is given, and leave adapter and manifest in its directory.

    Raises:
        TrainingError: training ended before its last step.
    """
    if job.config.train.cpu_threads:
        torch.set_num_threads(job.config.train.cpu_threads)
    environment = open_environment(job.config, job.corpus_digest, job.index_key)
    questions = load_questions(job.corpora_dir, job.corpus_digest)
    train_environment(environment, questions.get(job.config.train.split, []), job, checkpoint, questions.get("validation", []))


def train_environment(
    environment: Environment,
    questions: Sequence[Question],
    job: TrainJob,
    checkpoint: Path | None = None,
    held_out: Sequence[Question] = (),
) -> None:
    """Train in an environment on questions; see `run_job`.

    Args:
        environment: opened.
        questions: to train on.
        job: settings and directory.
        checkpoint: complete; None starts from the beginning.
        held_out: questions that score the weights; without any, the last step's weights are kept.
    """
    begun = job.directory / JOB
    with watching_card(use_cpu=job.config.policy.device == "cpu") as card:
        timer = PhaseTimer(begun.stat().st_mtime if begun.exists() else None, card)
        _train(environment, questions, job, checkpoint, held_out, timer)


def _train(
    environment: Environment,
    questions: Sequence[Question],
    job: TrainJob,
    checkpoint: Path | None,
    held_out: Sequence[Question],
    timer: PhaseTimer,
) -> None:
    started, config = time.monotonic(), job.config
    judge_state = require_qualified(config.judge, config.paths.data_dir)
    past = read_reports(job.directory / STEPS)
    pass_on = require if config.train.preflight == "require" else list
    questions = environment.teaching(config).training_questions(environment, questions)
    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    opening = longest_prompt((environment.opening(question.question) for question in [*questions, *held_out]), renderer)
    checks = [] if checkpoint else pass_on(check_resources(config, opening))
    trainer, callback, tokenizer = _assemble(environment, questions, job, opening, timer)
    bridge, max_steps, is_main = trainer.bridge, trainer.args.max_steps, trainer.is_world_process_zero()
    if judge_state is not None and is_main:
        replace_json(job.directory / JUDGE, asdict(judge_state))
    if not checkpoint and is_main:
        with timer.on(BEFORE):
            checks += pass_on(check_learning(questions, environment, lambda: bridge.open_sampler(trainer), renderer))
        replace_json(job.directory / PREFLIGHT, [asdict(check) for check in checks])
    model = trainer.accelerator.unwrap_model(trainer.model)
    if config.train.monitor.held_out and held_out:
        spread = held_out[:: max(1, len(held_out) // config.train.monitor.held_out)][: config.train.monitor.held_out]
        callback.watch(BestWeights(model, lambda: bridge.score(spread, trainer)), past, checkpoint)
    else:
        logging.getLogger(__name__).warning("no questions are held out, so no collapse will be noticed, and the last weights are kept")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.state.global_step < max_steps:
        raise TrainingError(f"stopped at step {trainer.state.global_step} of {max_steps}; run the same command to go on")
    if callback.best_weights is not None:
        callback.best_weights.consider(max_steps)
        callback.best_weights.restore()
    if is_main:
        replace_json(job.directory / TREES, trainer.tree_check.as_json() if trainer.tree_check else {})
        save_trained(model, tokenizer, split_commit(config.policy.model)[0], job.directory / ADAPTER)
        seconds = sum(report.metrics.get("time/step_s", 0.0) for report in past) + time.monotonic() - started
        card = timer.card.read() if timer.card is not None else None
        write_manifest(job, max_steps, seconds, checkpoint_step(checkpoint) if checkpoint else 0, timer.read(), card)


def _assemble(
    environment: Environment, questions: Sequence[Question], job: TrainJob, opening: int, timer: PhaseTimer
) -> tuple[SearchTrainer, StepCallback, Any]:
    """Load the policy and make its trainer; `opening` is the longest prompt in tokens.

    Returns:
        Trainer, its callback, and the tokenizer as loaded: TRL changes the one that it gets.
    """
    config, limits = job.config, environment.limits
    use_cpu = config.policy.device == "cpu" or not torch.cuda.is_available()
    arguments = make_arguments(environment, job.directory / CHECKPOINTS, num_steps(config.train, len(questions)), use_cpu)
    if (commit := split_commit(config.policy.model)[1]) and config.train.method == "full" and config.train.kl_coef:
        arguments.model_init_kwargs = {"revision": commit}  # of the reference, which TRL loads by the model's name
    if arguments.world_size != config.train.num_processes:  # each process would take its share of the episodes, and the rest would be lost
        raise ConfigError(f"{arguments.world_size} training processes instead of {config.train.num_processes}: fix accelerate launch")
    model, tokenizer = load_trainable(config.policy)
    whole = arguments.vllm_max_model_length = opening + limits.max_episode_tokens
    require_context(model, whole, "the longest prompt with a whole episode", f"lower {limits.settings[0]}")
    open_sampler = (open_torch_sampler if config.train.vllm.mode == "off" else open_vllm_sampler)(tokenizer, config.searcher.tool_role)
    bridge = RolloutBridge(questions, environment, open_sampler, tokenizer.eos_token_id, timer)

    def should_stop() -> bool:
        return any(gather_object([(job.directory / STOP).exists()]))  # one process suffices, and all stop at the same step

    callback = StepCallback(bridge, partial(append_report, job.directory / STEPS), should_stop, config.train, timer)
    nodes = plan_memory(config, measure_shape(config), measure_available(), opening).part_nodes
    with vllm_takes(**engine_settings(model, config.policy, config.train, use_cpu)):
        trainer = make_trainer(model, tokenizer, bridge, arguments, callback, nodes)
    if environment.base_user is not None:
        open_base = open_base_sampler(tokenizer, limits.tool_role)
        environment.base_user.sample_with(lambda: open_base(trainer))
    return trainer, callback, tokenizer


def load_trainable(policy: PolicyConfig) -> tuple[Any, Any]:
    """Load model and tokenizer; a configured adapter is loaded to be trained further.

    Raises:
        ModelError: model or adapter cannot be loaded.
    """
    # On the CPU: the trainer moves it to the device of its process; 4-bit weights are quantised on their final device.
    on_device = policy.load_in_4bit and PartialState().device.type == "cuda"
    model, tokenizer = load_model(policy.model_copy(update={"adapter": None, "device": "cuda" if on_device else "cpu"}))
    if policy.adapter:
        model = load_adapter(model, policy.adapter, trainable=True)
    return model, tokenizer


def save_trained(model: Any, tokenizer: Any, base_model: str, directory: Path) -> None:
    """Write the trained weights (safetensors) as a whole: the model with its tokenizer where all weights learnt, or else the adapter.

    `base_model` is the configured name of the base, which goes into `adapter_config.json`.
    """
    with replaced_directory(directory) as staging:
        if not isinstance(model, PeftModel):
            model.save_pretrained(staging, max_shard_size=ONE_FILE)
            tokenizer.save_pretrained(staging)
            return
        model.peft_config["default"].base_model_name_or_path = base_model
        model.save_pretrained(str(staging), selected_adapters=["default"])
        settings = json.loads((staging / "adapter_config.json").read_text(encoding="utf-8"))
        if isinstance(settings["target_modules"], list):  # PEFT writes a set, in an order that changes from process to process
            settings["target_modules"].sort()
        replace_json(staging / "adapter_config.json", settings)
