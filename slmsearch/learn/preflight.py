"""Pre-flight: what is checked before the first update, so that a doomed run ends in seconds instead of hours.

`slmsearch preflight` runs it by itself; every training run that starts from its beginning runs it first. The plan of disk and
memory comes before anything is loaded, the preflight plays a few groups with the untrained policy.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Check, Environment
from slmsearch.environments.registry import environment_of
from slmsearch.errors import PreflightError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.context import longest_prompt
from slmsearch.generate.sampler import Sampler, Sampling
from slmsearch.learn.checkpoints import KEPT_CHECKPOINTS
from slmsearch.learn.memory import GIB, count_trained, measure_available, plan_memory
from slmsearch.learn.preflight_checks import check_episodes, check_judge, check_mask, check_qualified, colour_episode
from slmsearch.learn.rollout_bridge import to_tokens
from slmsearch.learn.shape import Shape, measure_shape
from slmsearch.searcher.episode import Episode

MAX_PREFLIGHT_QUESTIONS = 16
"""Groups played before training, at most: enough to tell a share of a tenth from a half."""
MEMORY_FRAC = 0.95
"""Share of the free memory that a plan may use."""
DISK_RESERVE = 200e6
"""Bytes beside the checkpoints: log, reports, adapter."""
UPDATE_FACTOR = 2.5
"""Whole steps over rollouts, about, for the time estimate."""


def check_resources(config: RunConfig, prompt_tokens: int) -> Iterator[Check]:
    """Plan disk and memory of a training run; no weights are loaded.

    Args:
        config: the run.
        prompt_tokens: of the longest opening.
    """
    shape = measure_shape(config)
    plan = plan_memory(config, shape, measure_available(), prompt_tokens)
    fits = plan.peak <= MEMORY_FRAC * plan.available
    most = f"in {plan.worst}, most of it {plan.largest.name}"
    found = f"{plan.peak / GIB:.2f} of {plan.available / GIB:.2f} GiB on {plan.device} {most}\n{plan.render()}"
    yield Check("memory", fits, found, f"change {plan.largest.setting} ({plan.largest.name}: {plan.largest.num_bytes / GIB:.2f} GiB)")
    yield check_disk(config, shape)
    yield from check_extras(config)


def check_extras(config: RunConfig) -> Iterator[Check]:
    """Check that what a setting needs beyond the ordinary dependencies is installed."""
    needs = {
        "vllm": ("train.vllm.mode", config.train.vllm.mode != "off"),
        "bitsandbytes": ("policy.load_in_4bit", config.policy.load_in_4bit),
    }
    for package, (setting, needed) in needs.items():
        if needed:
            there = find_spec(package) is not None
            found = f"{setting} needs {package}, which is {'' if there else 'not '}installed"
            yield Check(package, there, found, f"install the extra: uv pip install -e '.[gpu]', or unset {setting}")


def check_disk(config: RunConfig, shape: Shape) -> Check:
    """Compare the checkpoints' size with the free space of the data directory."""
    needed = DISK_RESERVE + (KEPT_CHECKPOINTS + 2) * count_trained(config, shape) * 12
    place = Path(config.paths.data_dir)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{needed / GIB:.2f} GiB of {free / GIB:.1f} GiB free at {place}"
    return Check("disk", needed <= free, found, "free some space, or set paths.data_dir")


def check_learning(
    questions: Sequence[Question],
    environment: Environment,
    config: RunConfig,
    open_sampler: Callable[[], AbstractContextManager[Sampler]],
    renderer: ChatRenderer,
    show: Callable[[str], None] = lambda text: None,
    paint: Callable[[str, bool], str] = lambda text, trained: text,
) -> Iterator[Check]:
    """Check whether a run could learn; plays as many groups as two updates have, `MAX_PREFLIGHT_QUESTIONS` at most.

    Args:
        questions: questions that will be trained on.
        environment: plays and grades.
        config: the run.
        open_sampler: opens a sampler of the policy before training.
        renderer: encodes for its model.
        show: takes one episode, printed token by token.
        paint: see `colour_episode`.
    """
    yield from environment.checks(renderer)
    yield check_judge(environment.judge, questions)
    yield from check_qualified(config)
    played = min(MAX_PREFLIGHT_QUESTIONS, 2 * config.train.questions_per_step)
    chosen = questions[:: max(1, len(questions) // played)][:played]
    group = [question for question in chosen for _ in range(config.train.group_size)]
    sampling = Sampling(config.train.temperature, config.train.seed, environment.limits.max_turn_tokens)
    started = time.perf_counter()
    with open_sampler() as sampler:
        episodes = play_in_batches(group, environment, sampler, sampling, config.evaluate.batch_size)
    episodes = environment.complete(group, episodes)
    seconds = time.perf_counter() - started
    layout = to_tokens(episodes, renderer.end_id)
    yield check_mask(episodes, layout["completion_ids"], layout["env_mask"], renderer)
    if longest := max(episodes, key=lambda episode: len(episode.turns), default=None):
        show(colour_episode(longest, renderer, paint))
    rows = environment.grade(group, episodes, None, [i % 7 / 7 for i in range(len(group))])
    yield from check_episodes(rows, environment)
    per_step = seconds / len(group) * config.train.questions_per_step * config.train.group_size * UPDATE_FACTOR
    steps = config.train.steps or len(questions) * config.train.epochs / config.train.questions_per_step
    found = f"about {steps * per_step / 60:.0f} minutes for {steps:.0f} steps ({len(group) / seconds:.0f} episodes a second)"
    yield Check("time", True, found)


def play_in_batches(
    questions: Sequence[Question], environment: Environment, sampler: Sampler, sampling: Sampling, batch_size: int
) -> list[Episode]:
    """Play questions, so many at a time, each with the draws that it would have if all were played together."""
    episodes: list[Episode] = []
    for first in range(0, len(questions), batch_size):
        own = replace(sampling, first_row=sampling.first_row + first)
        episodes += environment.play(questions[first : first + batch_size], sampler, own)
    return episodes


def require(checks: Iterable[Check]) -> list[Check]:
    """Go through checks until one has not passed; return them all.

    Raises:
        PreflightError: cause and remedy of the first that has not passed.
    """
    passed = []
    for check in checks:
        if not check.passed:
            raise PreflightError(f"pre-flight check {check.name!r} failed: {check.found.splitlines()[0]}; {check.remedy}")
        passed.append(check)
    return passed


def preflight_here(config: RunConfig, tell: Callable[[Check], None], show: Callable[[str], None], paint: Any) -> list[Check]:
    """Run all checks in this process; corpus and index are built or looked up.

    Args:
        config: the run.
        tell: told the outcome of each check.
        show: takes one episode, printed token by token.
        paint: see `colour_episode`.
    """
    from slmsearch.environments.environment import select_questions
    from slmsearch.generate.load import load_tokenizer, load_with_base

    checks: list[Check] = []

    def told(more: Iterable[Check]) -> bool:
        for check in more:
            checks.append(check)
            tell(check)
            if not check.passed:
                return False
        return True

    corpora_dir = config.paths.corpora
    digest = environment_of(config).build_data(config, corpora_dir)
    environment, found = environment_of(config).open(config, digest), load_questions(corpora_dir, digest)
    questions = select_questions(found.get(config.train.split, []), config.train.limit)
    asked = [*questions, *found.get("validation", [])]
    opening = longest_prompt(map(environment.prompt, asked), ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role))
    if not told(check_resources(config, opening)):
        return checks
    sampler, open_base = load_with_base(config.policy, config.searcher.tool_role)
    environment.sample_base_with(open_base)
    renderer = sampler.renderer  # type: ignore[attr-defined]
    told(check_learning(questions, environment, config, lambda: nullcontext(sampler), renderer, show, paint))
    return checks
