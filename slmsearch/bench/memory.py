"""What each phase of a training run really takes, beside what the memory plan says.

Episodes are as long as the limits allow: every turn is sampled to its limit and answered by a result of some length, whatever the
model would have written. So a model that knows no tool call can be measured, and the worst case rather than a usual one.
On the CPU a phase's figure is the largest resident memory of this process, so measure in a process of its own.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import TrainerCallback

from slmsearch.bench.result import Result, Say, tabulate
from slmsearch.bench.shapes import WORDS
from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher import SearcherEnvironment
from slmsearch.generate.chat_renderer import ChatRenderer, longest_prompt
from slmsearch.generate.load import load_model, load_tokenizer
from slmsearch.generate.sampler import SampledTurn, Sampler, Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.judge import make_judge
from slmsearch.learn.best_weights import BestWeights
from slmsearch.learn.child import Child, release_memory
from slmsearch.learn.grpo import make_arguments, make_trainer
from slmsearch.learn.memory import EVALUATION, GIB, HELD_OUT, PREFLIGHT, SAMPLING, UPDATE, measure_available, measure_shape, plan_memory
from slmsearch.learn.phase_timer import PhaseTimer
from slmsearch.learn.preflight import play_in_batches
from slmsearch.learn.rollout_bridge import RolloutBridge
from slmsearch.learn.trainer_samplers import sampling_mode
from slmsearch.learn.training import load_trainable
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.parsing import render_call
from slmsearch.searcher.prompt import make_prompt
from slmsearch.searcher.tools import READ

COLUMNS = {"phase": "{phase}", "planned, GiB": "{planned_gib:.2f}", "measured, GiB": "{measured_gib:.2f}", "ratio": "{ratio:.2f}"}


class LongTurns(TorchSampler):
    """A sampler whose turns all reach their limit and call a tool, whatever the model writes."""

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        call, limit = render_call(ToolCall(READ, "mill:gate")), self._sampling.max_new_tokens
        return [replace(turn, text=call, ended=len(turn.sampled_ids) == limit) for turn in super().sample(rows, results, room)]

    def _ends(self, sampled: list[int]) -> bool:
        return False


class LongResults:
    """Answers every call with as many characters as a section may have."""

    programs = None

    def __init__(self, chars: int) -> None:
        """Take the length."""
        self._chars = chars

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """See `Toolbox.serve`."""
        texts = (" ".join(random.Random(i).choices(WORDS, k=self._chars // 4)) for i in range(len(calls)))
        return [ToolResult(text[: self._chars], True) for text in texts]


class Scales(PhaseTimer):
    """Measures the largest memory of phases: allocated on the GPU where the run uses one, resident in this process elsewhere."""

    def __init__(self, config: RunConfig) -> None:
        """Look where the run computes."""
        super().__init__()
        self.on_cpu = config.policy.device == "cpu" or not torch.cuda.is_available()
        self.peaks: dict[str, float] = {}

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Measure a phase; of several of one name the largest counts. What comes after it is measured until `note`."""
        self._reset()
        with super().on(purpose):
            yield
        self.note(purpose)
        self._reset()

    def _reset(self) -> None:
        """Forget the largest so far, and what earlier phases have freed and the allocator kept."""
        if self.on_cpu:
            release_memory()
            Path("/proc/self/clear_refs").write_text("5")
        else:
            torch.cuda.reset_peak_memory_stats()

    def note(self, phase: str) -> None:
        """Note the largest since the last phase ended as that of a phase."""
        if self.on_cpu:
            status = Path("/proc/self/status").read_text()
            peak = float(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
        else:
            peak = float(torch.cuda.max_memory_allocated())
        self.peaks[phase] = max(self.peaks.get(phase, 0.0), peak)


def run_memory(config: RunConfig, say: Say) -> Result:
    """Measure each phase of a run in processes of their own, beside its plan.

    Args:
        config: run; a searcher's, without vLLM.
        say: told of each phase that is over.
    """
    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    prompt_tokens = longest_prompt((make_prompt(question.question, config.searcher) for question in make_questions(99)), renderer)
    plan = plan_memory(config, measure_shape(config), measure_available(), prompt_tokens)
    peaks: dict[str, float] = {}
    for measure in (measure_evaluation, measure_training):
        with Child() as child:
            found = child.call(measure, config)
        for phase, peak in found.items():
            say(f"{phase}: {peak / GIB:.2f} GiB")
        peaks |= found
    planned = {phase: plan.needs(phase) for phase in peaks}
    phases = {
        phase: {"planned_gib": planned[phase] / GIB, "measured_gib": peak / GIB, "ratio": planned[phase] / peak}
        for phase, peak in peaks.items()
    }
    values = {"device": plan.device, "prompt_tokens": prompt_tokens, "phases": phases, "plan": plan.render()}
    return Result(values, (tabulate(COLUMNS, ({"phase": name, **of} for name, of in phases.items())),))


def measure_training(config: RunConfig) -> dict[str, float]:
    """Play and train as a run does, with episodes as long as they may be; return the largest bytes of each phase."""
    config = config.model_copy(update={"reward": config.reward.model_copy(update={"kind": "random"})})
    environment, scales = _environment(config), Scales(config)
    questions = make_questions(max(config.train.questions_per_step, config.evaluate.batch_size))
    if config.train.cpu_threads:
        torch.set_num_threads(config.train.cpu_threads)
    model, tokenizer = load_trainable(config.policy)

    @contextmanager
    def open_sampler(trainer: Any) -> Iterator[Sampler]:
        with sampling_mode(trainer) as trained:
            yield LongTurns(trained, tokenizer, config.searcher.tool_role)

    bridge = RolloutBridge(questions, environment, open_sampler, tokenizer.eos_token_id, scales)
    with TemporaryDirectory() as folder:
        arguments = make_arguments(config, Path(folder), 1, scales.on_cpu)
    trainer = make_trainer(model, tokenizer, bridge, arguments, TrainerCallback())
    rows, size = config.evaluate.batch_size, config.train.group_size
    group = [question for question in questions[: -(-rows // size)] for _ in range(size)][:rows]
    with scales.on(PREFLIGHT), open_sampler(trainer) as sampler:
        play_in_batches(group, environment, sampler, Sampling(config.train.temperature, 0, environment.limits.max_turn_tokens), rows)
    best_weights = BestWeights(trainer.accelerator.unwrap_model(trainer.model), list)
    bridge.score(questions[:rows], trainer)
    trainer.train()
    scales.note(UPDATE)
    best_weights.restore()
    return {phase: scales.peaks[phase] for phase in (PREFLIGHT, HELD_OUT, SAMPLING, UPDATE)}


def measure_evaluation(config: RunConfig) -> dict[str, float]:
    """Play a batch as an evaluation does; return the largest bytes."""
    environment, scales = _environment(config), Scales(config)
    model, tokenizer = load_model(config.policy)
    sampler = LongTurns(model.eval(), tokenizer, config.searcher.tool_role)
    with scales.on(EVALUATION):
        questions = make_questions(config.evaluate.batch_size)
        environment.play(questions, sampler, Sampling(0.0, 0, environment.limits.max_turn_tokens))
    return scales.peaks


def _environment(config: RunConfig) -> SearcherEnvironment:
    toolbox: Any = LongResults(config.searcher.max_section_chars)
    return SearcherEnvironment(toolbox, make_judge(config.judge, config.paths.data_dir), config)


def make_questions(number: int) -> list[Question]:
    """Make questions, all of about the same length."""
    return [
        Question(f"q{i}", f"Who built the {WORDS[i % 16]} number {i} that stands beside the old bridge of Norwick?", "nobody")
        for i in range(number)
    ]
