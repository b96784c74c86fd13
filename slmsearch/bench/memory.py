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

from slmsearch.bench.result import Say
from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher import SearcherEnvironment
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.context import longest_prompt
from slmsearch.generate.load import load_tokenizer, make_sampler
from slmsearch.generate.sampler import SampledTurn, Sampler, Sampling
from slmsearch.judge import make_judge
from slmsearch.learn.best_weights import BestWeights
from slmsearch.learn.child import Child, release_memory
from slmsearch.learn.grpo import make_arguments, make_trainer
from slmsearch.learn.memory import EVALUATION, GIB, HELD_OUT, PREFLIGHT, SAMPLING, UPDATE, measure_available, plan_memory
from slmsearch.learn.phase_timer import PhaseTimer
from slmsearch.learn.preflight import play_in_batches
from slmsearch.learn.rollout_bridge import RolloutBridge
from slmsearch.learn.shape import measure_shape
from slmsearch.learn.trainer_samplers import open_torch_sampler
from slmsearch.learn.training import load_trainable
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.parsing import render_call
from slmsearch.searcher.prompt import make_prompt
from slmsearch.searcher.tools import READ

WORDS = ("mill", "river", "tower", "of", "the", "old", "north", "gate", "stone", "field", "in", "a", "bridge", "was", "built", "by")


class LongTurns:
    """A sampler whose turns all reach their limit and call a tool."""

    def __init__(self, sampler: Any) -> None:
        """Wrap a torch sampler; nothing that it samples ends its turns."""
        self._sampler = sampler
        sampler._ends = lambda sampled: False
        self._limit = 0

    def open(self, prompts: Sequence[Any], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`."""
        self._limit = sampling.max_new_tokens
        ids: list[tuple[int, ...]] = self._sampler.open(prompts, sampling)
        return ids

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        turns = self._sampler.sample(rows, results, room)
        call = render_call(ToolCall(READ, "mill:gate"))
        return [replace(turn, text=call, ended=len(turn.sampled_ids) == self._limit) for turn in turns]

    def close(self) -> None:
        """See `Sampler.close`."""
        self._sampler.close()


class LongResults:
    """Answers every call with as many characters as a section may have."""

    programs = None

    def __init__(self, chars: int) -> None:
        """Take the length."""
        self._chars = chars

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """See `Toolbox.serve`."""
        return [ToolResult(self._text(i), True) for i in range(len(calls))]

    def _text(self, number: int) -> str:
        return " ".join(random.Random(number).choices(WORDS, k=self._chars // 4))[: self._chars]


class Scales:
    """Measures the largest memory of phases: allocated on the GPU where the run uses one, resident in this process elsewhere."""

    def __init__(self, device: str) -> None:
        """Take `cpu` or `cuda`."""
        self._device = device
        self.peaks: dict[str, float] = {}

    @contextmanager
    def on(self, phase: str) -> Iterator[None]:
        """Measure a phase; of several of one name the largest counts."""
        self.begin()
        try:
            yield
        finally:
            self.end(phase)

    def begin(self) -> None:
        """Forget the largest so far, and what earlier phases have freed and the allocator kept."""
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            release_memory()
            Path("/proc/self/clear_refs").write_text("5")

    def end(self, phase: str) -> None:
        """Note the largest since `begin`."""
        self.peaks[phase] = max(self.peaks.get(phase, 0.0), self._read())

    def _read(self) -> float:
        if self._device == "cuda":
            return float(torch.cuda.max_memory_allocated())
        status = Path("/proc/self/status").read_text()
        return float(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


class _Watched(PhaseTimer):
    """Tells the scales where sampling ends and the update begins."""

    def __init__(self, scales: Scales) -> None:
        super().__init__()
        self._scales = scales

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        self._scales.begin()
        with super().on(purpose):
            yield
        self._scales.end(purpose)
        self._scales.begin()


class _AtStepEnd(TrainerCallback):
    """Ends the update."""

    def __init__(self, scales: Scales) -> None:
        self._scales = scales

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See `TrainerCallback`."""
        self._scales.end(UPDATE)


def run_memory(config: RunConfig, say: Say) -> dict[str, Any]:
    """Measure each phase of a run in processes of their own, beside its plan.

    Args:
        config: run; a searcher's, without vLLM.
        say: told of each phase that is over.

    Returns:
        `device`, and by phase the GiB planned and measured and their ratio.
    """
    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    prompt_tokens = longest_prompt((make_prompt(question.question, config.searcher) for question in make_questions(99)), renderer)
    plan = plan_memory(config, measure_shape(config), measure_available(), prompt_tokens)
    peaks: dict[str, float] = {}
    for measure in (measure_evaluation, measure_training):
        with Child() as child:
            peaks |= child.call(measure, config, say=say)
    phases = {
        phase: {"planned_gib": plan.needs(phase) / GIB, "measured_gib": peak / GIB, "ratio": plan.needs(phase) / peak}
        for phase, peak in peaks.items()
    }
    return {"device": plan.device, "prompt_tokens": prompt_tokens, "phases": phases, "plan": plan.render()}


def render_memory(result: dict[str, Any]) -> str:
    """Write the result as a table."""
    rows = [f"{'phase':<12} {'planned':>9} {'measured':>9}  ratio"]
    rows += [
        f"{name:<12} {of['planned_gib']:>5.2f} GiB {of['measured_gib']:>5.2f} GiB  {of['ratio']:.2f}"
        for name, of in result["phases"].items()
    ]
    return "\n".join(rows)


def measure_training(config: RunConfig, say: Say) -> dict[str, float]:
    """Play and train as a run does, with episodes as long as they may be; return the largest bytes of each phase.

    Args:
        config: run; a searcher's, without vLLM.
        say: told of each phase that is over.
    """
    config = config.model_copy(update={"reward": config.reward.model_copy(update={"kind": "random"})})
    toolbox: Any = LongResults(config.searcher.max_section_chars)
    environment = SearcherEnvironment(toolbox, make_judge(config.judge, config.paths.data_dir), config)
    questions = make_questions(max(config.train.questions_per_step, config.evaluate.batch_size))
    if config.train.cpu_threads:
        torch.set_num_threads(config.train.cpu_threads)
    on_cpu = config.policy.device == "cpu" or not torch.cuda.is_available()
    scales = Scales("cpu" if on_cpu else "cuda")
    model, tokenizer = load_trainable(config)
    open_unwatched = open_torch_sampler(tokenizer, config.searcher.tool_role)

    @contextmanager
    def open_sampler(trainer: Any) -> Iterator[Sampler]:
        with open_unwatched(trainer) as sampler:
            yield LongTurns(sampler)

    bridge = RolloutBridge(questions, environment, config, open_sampler, tokenizer.eos_token_id, _Watched(scales))
    with TemporaryDirectory() as folder:
        arguments = make_arguments(config, Path(folder), 1, on_cpu)
    trainer = make_trainer(model, tokenizer, questions, environment, bridge, arguments, config, _AtStepEnd(scales))
    rows, size = config.evaluate.batch_size, config.train.group_size
    group = [question for question in questions[: -(-rows // size)] for _ in range(size)][:rows]
    with scales.on(PREFLIGHT), open_sampler(trainer) as sampler:
        play_in_batches(group, environment, sampler, Sampling(config.train.temperature, 0, environment.limits.max_turn_tokens), rows)
    say(f"{PREFLIGHT}: {scales.peaks[PREFLIGHT] / GIB:.2f} GiB")
    best_weights = BestWeights(trainer.accelerator.unwrap_model(trainer.model), list)
    bridge.score(questions[:rows], trainer)
    say(f"{HELD_OUT}: {scales.peaks[HELD_OUT] / GIB:.2f} GiB")
    trainer.train()
    best_weights.restore()
    for phase in (SAMPLING, UPDATE):
        say(f"{phase}: {scales.peaks[phase] / GIB:.2f} GiB")
    return {phase: scales.peaks[phase] for phase in (PREFLIGHT, HELD_OUT, SAMPLING, UPDATE)}


def measure_evaluation(config: RunConfig, say: Say) -> dict[str, float]:
    """Play a batch as an evaluation does; return the largest bytes."""
    toolbox: Any = LongResults(config.searcher.max_section_chars)
    environment = SearcherEnvironment(toolbox, make_judge(config.judge, config.paths.data_dir), config)
    on_cpu = config.policy.device == "cpu" or not torch.cuda.is_available()
    scales = Scales("cpu" if on_cpu else "cuda")
    sampler = LongTurns(make_sampler(config.policy, config.searcher.tool_role))
    with scales.on(EVALUATION):
        questions = make_questions(config.evaluate.batch_size)
        environment.play(questions, sampler, Sampling(0.0, 0, environment.limits.max_turn_tokens))
    say(f"{EVALUATION}: {scales.peaks[EVALUATION] / GIB:.2f} GiB")
    return scales.peaks


def make_questions(number: int) -> list[Question]:
    """Make questions, all of about the same length."""
    return [
        Question(f"q{i}", f"Who built the {WORDS[i % 16]} number {i} that stands beside the old bridge of Norwick?", "nobody")
        for i in range(number)
    ]
