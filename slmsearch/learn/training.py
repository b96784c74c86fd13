"""A training run from job to adapter, inside the training process.

It knows no tracker: reports, checkpoints, adapter and manifest are files in the job's directory. The manifest is written last;
what has one is finished. Everything heavy is imported from here on; `launch.py` starts it in a process of its own.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from peft import PeftModel

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.artifacts.files import replace_json
from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment, select_questions
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.context import longest_prompt, require_context
from slmsearch.generate.load import load_adapter, load_model, load_tokenizer
from slmsearch.judge.qualify import require_qualified
from slmsearch.learn.best_weights import BestWeights
from slmsearch.learn.callbacks import StepCallback
from slmsearch.learn.checkpoints import checkpoint_step
from slmsearch.learn.examples import EXAMPLES, append_examples
from slmsearch.learn.files import ADAPTER, CHECKPOINTS, JOB, JUDGE, PREFLIGHT, STEPS, STOP
from slmsearch.learn.grpo import make_arguments, make_trainer, num_steps
from slmsearch.learn.job import TrainJob
from slmsearch.learn.phase_timer import BEFORE, PhaseTimer
from slmsearch.learn.preflight import check_learning, check_resources, require
from slmsearch.learn.reports import StepReport, append_report, read_reports
from slmsearch.learn.result import write_manifest
from slmsearch.learn.rollout_bridge import RolloutBridge
from slmsearch.learn.trainer_samplers import open_base_sampler, open_torch_sampler, open_vllm_sampler
from slmsearch.models.known import split_commit

ONE_FILE = "1TB"
"""Size above which a model would be written in several files."""


def run_job(job: TrainJob, checkpoint: Path | None = None) -> None:
    """Train as the job says, and leave adapter and manifest in its directory.

    Args:
        job: what to train on what.
        checkpoint: a complete checkpoint of the same job to go on from.

    Raises:
        TrainingError: training ended before its last step.
    """
    if job.config.train.cpu_threads:
        torch.set_num_threads(job.config.train.cpu_threads)
    environment = environment_of(job.config).open(job.config, job.corpus_digest, job.index_key)
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
        environment: plays and grades.
        questions: to train on.
        job: the job.
        checkpoint: complete checkpoint of the same job to go on from.
        held_out: questions by which weights are scored; without any, the last step's weights are kept.
    """
    started, config = time.monotonic(), job.config
    judge_state = require_qualified(config.judge, config.paths.data_dir)
    begun = job.directory / JOB
    timer = PhaseTimer(begun.stat().st_mtime if begun.exists() else None)
    pass_on = require if config.train.preflight == "require" else list
    earlier = sum(report.metrics.get("time/step_s", 0.0) for report in read_reports(job.directory / STEPS))
    questions = select_questions(questions, config.train.limit)
    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    opening = longest_prompt((environment.prompt(question) for question in [*questions, *held_out]), renderer)
    checks = [] if checkpoint else pass_on(check_resources(config, opening))
    max_steps = num_steps(config.train, len(questions))
    use_cpu = config.policy.device == "cpu" or not torch.cuda.is_available()
    arguments = make_arguments(config, job.directory / CHECKPOINTS, max_steps, use_cpu, config.train.num_processes)
    if arguments.world_size != config.train.num_processes:  # each would take its share of the episodes, and nobody the rest
        raise ConfigError(f"{arguments.world_size} training processes instead of {config.train.num_processes}: fix accelerate launch")
    model, tokenizer = load_trainable(config)
    whole = arguments.vllm_max_model_length = opening + environment.limits.max_episode_tokens
    require_context(model, whole, "the longest prompt with a whole episode", f"lower {environment.limits.settings[0]}")

    open_sampler = (open_torch_sampler if config.train.vllm.mode == "off" else open_vllm_sampler)(tokenizer, config.searcher.tool_role)
    bridge = RolloutBridge(questions, environment, config, open_sampler, tokenizer.eos_token_id, timer)

    def on_step(report: StepReport) -> None:
        append_report(job.directory / STEPS, report)
        if environment.keeps_examples:
            append_examples(job.directory / EXAMPLES, report.step, bridge.rows, bridge.episodes)

    callback = StepCallback(
        bridge,
        on_step=on_step,
        should_stop=agree_on((job.directory / STOP).exists),
        config=config.train,
        timer=timer,
    )
    trainer = make_trainer(model, tokenizer, questions, environment, bridge, arguments, config, callback)
    if environment.shares_base:
        open_base = open_base_sampler(tokenizer, environment.limits.tool_role)
        environment.sample_base_with(lambda: open_base(trainer))
    if judge_state is not None and trainer.is_world_process_zero():
        replace_json(job.directory / JUDGE, asdict(judge_state))
    if not checkpoint and trainer.is_world_process_zero():
        with timer.on(BEFORE):
            checks += pass_on(check_learning(questions, environment, config, lambda: open_sampler(trainer), renderer))
        replace_json(job.directory / PREFLIGHT, [asdict(check) for check in checks])
    if config.train.monitor.held_out and held_out:
        spread = held_out[:: max(1, len(held_out) // config.train.monitor.held_out)][: config.train.monitor.held_out]
        best_weights = BestWeights(trainer.accelerator.unwrap_model(trainer.model), lambda: bridge.score(spread, trainer))
        callback.watch(best_weights, read_reports(job.directory / STEPS), checkpoint)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.state.global_step < max_steps:
        raise TrainingError(f"stopped at step {trainer.state.global_step} of {max_steps}; run the same command to go on")
    if callback.best_weights is not None:
        callback.best_weights.consider(max_steps)
        callback.best_weights.restore()
    if trainer.is_world_process_zero():
        save_trained(
            trainer.accelerator.unwrap_model(trainer.model), tokenizer, split_commit(config.policy.model)[0], job.directory / ADAPTER
        )
        resumed_from = checkpoint_step(checkpoint) if checkpoint else 0
        write_manifest(job, max_steps, earlier + time.monotonic() - started, resumed_from, timer.read())


def load_trainable(config: RunConfig) -> tuple[Any, Any]:
    """Load model and tokenizer; a configured adapter is loaded to be trained further.

    Raises:
        ModelError: model or adapter cannot be loaded.
    """
    # On the CPU, whence the trainer moves it to the device of its process; 4-bit weights are made where they stay.
    on_device = config.policy.load_in_4bit and PartialState().device.type == "cuda"
    model, tokenizer = load_model(config.policy.model_copy(update={"adapter": None, "device": "cuda" if on_device else "cpu"}))
    if config.policy.adapter:
        model = load_adapter(model, config.policy.adapter, trainable=True)
    return model, tokenizer


def agree_on(ask: Callable[[], bool]) -> Callable[[], bool]:
    """Make a yes of any training process a yes of all, so that they stop at the same step."""
    return lambda: any(gather_object([ask()]))


def save_trained(model: Any, tokenizer: Any, base_model: str, directory: Path) -> None:
    """Write what was trained (safetensors) as a whole: the adapter, or the model where all weights learnt.

    Args:
        model: the trained model, wrappers off.
        tokenizer: goes with a whole model.
        base_model: name of the base as configured, which goes into `adapter_config.json`.
        directory: replaced if it is there.
    """
    with replaced_directory(directory) as staging:
        if isinstance(model, PeftModel):
            _save_adapter(model, base_model, staging)
        else:
            model.save_pretrained(staging, max_shard_size=ONE_FILE)
            tokenizer.save_pretrained(staging)


def _save_adapter(model: Any, base_model: str, directory: Path) -> None:
    model.peft_config["default"].base_model_name_or_path = base_model
    model.save_pretrained(directory, selected_adapters=["default"])
    settings = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
    if isinstance(settings["target_modules"], list):  # a set to PEFT, written in an order that changes from process to process
        settings["target_modules"].sort()
    replace_json(directory / "adapter_config.json", settings)
