"""`slmsearch planner sft`: teach a model to plan before it is trained by reward.

Three sources of plans: gold plans of the generator; the model's own right plans, by rejection sampling; and a set of prompts and
plans from a file or the Hub.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig, SftConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import read_rows
from slmsearch.errors import CorpusError, TrainingError
from slmsearch.evaluate.environments import PlannerEnvironment, make_planner
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.sampler import Message, Sampler, Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.learn.encoding import Encoded, encode_episode, encode_turns
from slmsearch.learn.planner_start import planned
from slmsearch.learn.sft import repeated
from slmsearch.learn.teach import load_student, teach
from slmsearch.searcher.episode import Episode

FACTS = "sft.json"


def train_plan_sft(
    config: RunConfig,
    questions: Sequence[Question],
    out: Path,
    say: Callable[[str], None] = lambda text: None,
    on_log: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Train `config.policy.model` on plans and write the model that results; a finished directory is returned as it is.

    Args:
        config: `planner.sft` and `sft` say how.
        questions: problems for the model's own plans.
        out: model directory, complete or absent.
        say: told what is being done.
        on_log: progress, as in `train_sft`.

    Returns:
        What `sft.json` in the directory says: source, examples, left out, steps, seconds.

    Raises:
        CorpusError: the set of plans is missing or has other columns.
        TrainingError: no plan of the model's own was right, or every example is too long.
    """
    if (out / FACTS).is_file():
        facts: dict[str, Any] = json.loads((out / FACTS).read_text())
        return facts
    model, tokenizer = load_student(config.model_copy(update={"policy": config.policy.model_copy(update={"adapter": None})}))
    renderer, source = ChatRenderer(tokenizer, config.searcher.tool_role), config.planner.sft.source
    stream, examples, left_out = _plans(config, questions, renderer, TorchSampler(model.eval(), tokenizer, config.searcher.tool_role))
    say(f"{examples or 'endless'} examples, {left_out} too long and left out")
    settings = _settings(config, examples)
    facts = {"source": source, "examples": examples, "left_out": left_out}
    return teach(config, settings, (model, tokenizer), stream, out, FACTS, facts, on_log, even=not settings.batch_size)


def _settings(config: RunConfig, examples: int) -> SftConfig:
    """Return the settings of training: where the set ends and `epochs` is set, as many steps as those take."""
    epochs, batch_size = config.planner.sft.epochs, config.sft.batch_size
    if not epochs or not examples or not batch_size:
        return config.sft
    return config.sft.model_copy(update={"steps": max(1, round(epochs * examples / batch_size))})


def _plans(
    config: RunConfig, questions: Sequence[Question], renderer: ChatRenderer, sampler: Sampler
) -> tuple[Callable[[], Iterator[Encoded]], int, int]:
    """Return what begins an endless stream of plans, how many there are (0: no end), and how many were too long."""
    source, limit = config.planner.sft.source, config.planner.sft.max_tokens
    if source == "generated":
        return (lambda: planned(renderer, config.sft.recipe, config.sft.seed + 100, config.planner)), 0, 0
    if source == "own":
        system = make_planner(config)
        if hasattr(system.worker, "sample_with"):
            from contextlib import nullcontext

            system.worker.sample_with(lambda: nullcontext(sampler))
        found = [encode_episode(episode, renderer.end_id) for episode in sample_own_plans(questions, system, config, sampler)]
        if not found:
            raise TrainingError("no plan of the model's own was right: begin with planner.sft.source generated")
    else:
        found = list(read_plans(config, renderer))
    kept = [encoded for encoded in found if len(encoded.ids) <= limit]
    if not kept:
        raise TrainingError(f"all {len(found)} examples are longer than {limit} tokens: raise planner.sft.max_tokens")
    return (lambda: repeated(kept, config.sft.seed)), len(kept), len(found) - len(kept)


def read_plans(config: RunConfig, renderer: ChatRenderer) -> Iterator[Encoded]:
    """Read prompts and plans from a file or the Hub.

    Raises:
        CorpusError: a row lacks a column.
    """
    plans = config.planner.sft
    for row, where in read_rows(plans.source):
        wanted = (plans.prompt_column, plans.completion_column)
        if any(not isinstance(row.get(column), str) for column in wanted):
            has = ", ".join(sorted(map(str, row)))
            raise CorpusError(f"{where}: columns {' and '.join(wanted)} must be texts; it holds {has}: name them so")
        prompt: list[Message] = [{"role": "user", "content": row[plans.prompt_column]}]
        if isinstance(system := row.get(plans.environment_column), str) and system:
            prompt.insert(0, {"role": "system", "content": system})
        yield encode_turns(prompt, [(row[plans.completion_column], "")], renderer)


def sample_own_plans(questions: Sequence[Question], system: PlannerEnvironment, config: RunConfig, sampler: Sampler) -> list[Episode]:
    """Plan problems several times and keep right plans that no filter refuses and that gain, best reward first.

    Args:
        questions: problems.
        environment: plays and grades.
        config: `train.limit` says how many questions; the rest as in training.
        sampler: the policy.
    """
    kept: list[Episode] = []
    tries = config.sft.own_tries
    chosen = list(questions)[: config.train.limit or config.sft.own_questions]
    per_batch = max(1, config.evaluate.batch_size // tries)
    for start in range(0, len(chosen), per_batch):
        batch = [question for question in chosen[start : start + per_batch] for _ in range(tries)]
        sampling = Sampling(config.train.temperature, config.sft.seed + start, system.limits.max_turn_tokens)
        episodes = system.complete(batch, system.play(batch, sampler, sampling))
        rows = system.grade(batch, episodes)
        for first in range(0, len(batch), tries):
            right = [k for k in range(first, first + tries) if not rows[k].failed and rows[k].reward_parts["correct"] > 0]
            different = {tuple(episodes[k].completion_ids): k for k in reversed(right)}
            best = sorted(different.values(), key=lambda k: (-rows[k].reward, k))
            kept += [episodes[k] for k in best[: config.sft.own_kept]]
    return kept
