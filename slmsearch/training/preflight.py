"""Preflight: checks before the first update, so that a run that cannot work ends in seconds instead of hours.

`slmsearch preflight` runs them alone; every training run that starts from its beginning runs them first. The plan of disk and memory
comes before anything is loaded; then the untrained policy plays a few groups. Each check finds one silent failure: a parser that reads
nothing, an inverted mask, a limit that cuts every episode off, a judge that is down, rewards that are all equal, an index that returns
noise.
"""

import os
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import mean

from slmsearch.config import JudgeConfig, PathsConfig, PolicyConfig, RunConfig, TrainConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import environment_of, open_environment
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.playable import Check
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.episodes.teaching import select_questions
from slmsearch.errors import JudgeError, PreflightError
from slmsearch.evaluate.forecast import UPDATE_FACTOR
from slmsearch.evaluate.worked_examples import longest_prompt
from slmsearch.judge import Judge
from slmsearch.judge.qualify import REMEDY, read_state
from slmsearch.models.load import load_tokenizer
from slmsearch.sampling.load_sampler import load_with_base
from slmsearch.training.files import KEPT_CHECKPOINTS
from slmsearch.training.memory import GIB, MEMORY_FRAC, ModelShape, count_trained, measure_available, measure_shape, plan_memory
from slmsearch.training.rollout_bridge import MAX_FAILED_FRAC, to_tokens

MAX_PREFLIGHT_QUESTIONS = 16
"""Largest number of groups played before training: enough to tell a share of a tenth from a half."""
DISK_RESERVE = 200e6
"""Bytes beside the checkpoints: log, reports, adapter."""
MAX_TRUNCATED = 0.5
"""Share of preflight episodes that may be cut off by a token limit."""
MAX_MALFORMED = 0.9
"""Share that may end malformed: the format can be learnt, but only from some right episodes."""
NONSENSE = "zzqx vrrk"
"""An answer that every judge must reject."""

ShowEpisode = Callable[[Iterable[tuple[str, bool]]], None]
"""Callback with an episode in the form that training uses: the text of each token, and whether it is trained on."""


def check_resources(config: RunConfig, prompt_tokens: int) -> Iterator[Check]:
    """Plan disk and memory of a training run whose longest opening has `prompt_tokens` tokens; no weights are loaded."""
    shape = measure_shape(config)
    plan = plan_memory(config, shape, measure_available(), prompt_tokens)
    fits = plan.peak <= MEMORY_FRAC * plan.available
    most = f"in {plan.worst}, most of it {plan.largest.name}"
    found = f"{plan.peak / GIB:.2f} of {plan.available / GIB:.2f} GiB on {plan.device} {most}\n{plan.render()}"
    yield Check("memory", fits, found, f"change {plan.largest.setting} ({plan.largest.name}: {plan.largest.num_bytes / GIB:.2f} GiB)")
    yield check_disk(config.paths, config.train, shape)
    yield from check_extras(config.policy, config.train)


def check_extras(policy: PolicyConfig, train: TrainConfig) -> Iterator[Check]:
    """Check that the packages that a setting needs beyond the ordinary dependencies are installed, and on a card a compiler."""
    import torch

    needs = {
        "vllm": ("train.vllm.mode", train.vllm.mode != "off"),
        "bitsandbytes": ("policy.load_in_4bit", policy.load_in_4bit),
    }
    if policy.device != "cpu" and torch.cuda.is_available():
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
        headers = Path(sysconfig.get_path("include")) / "Python.h"
        missing = [name for name, there in (("C compiler", compiler), (str(headers), headers.is_file())) if not there]
        told = "Triton compiles what starts its kernels with " + (f"what is missing: {', '.join(missing)}" if missing else str(compiler))
        yield Check("compiler", not missing, told, "install gcc, libc6-dev and the headers of this Python (python3-dev), or set CC")
    for package, (setting, needed) in needs.items():
        if needed:
            there = find_spec(package) is not None
            found = f"{setting} needs {package}, which is {'' if there else 'not '}installed"
            yield Check(package, there, found, f"install the extra: uv pip install -e '.[gpu]', or unset {setting}")


def check_disk(paths: PathsConfig, train: TrainConfig, shape: ModelShape) -> Check:
    """Compare the checkpoints' size with the free space of the data directory."""
    needed = DISK_RESERVE + (KEPT_CHECKPOINTS + 2) * count_trained(train, shape) * 12
    place = Path(paths.data_dir)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{needed / GIB:.2f} GiB of {free / GIB:.1f} GiB free at {place}"
    return Check("disk", needed <= free, found, "free some space, or set paths.data_dir")


def check_learning(
    questions: Sequence[Question],
    environment: Environment,
    open_sampler: Callable[[], AbstractContextManager[Sampler]],
    renderer: ChatRenderer,
    show: ShowEpisode = lambda tokens: None,
) -> Iterator[Check]:
    """Check whether a run could learn; plays as many groups as two updates have, `MAX_PREFLIGHT_QUESTIONS` at most.

    Args:
        questions: those that will be trained on.
        environment: plays and grades.
        open_sampler: opens a sampler of the policy before training.
        renderer: encodes for its model.
        show: takes one episode.
    """
    config, train = environment.config, environment.config.train
    yield from environment.checks(renderer)
    yield check_judge(environment.judge, questions)
    yield from check_qualified(config.judge, config.paths.data_dir)
    played = min(MAX_PREFLIGHT_QUESTIONS, 2 * train.questions_per_step)
    chosen = questions[:: max(1, len(questions) // played)][:played]
    group = [question for question in chosen for _ in range(train.group_size)]
    sampling = Sampling(train.temperature, train.seed, environment.limits.max_turn_tokens)
    started = time.perf_counter()
    with open_sampler() as sampler:
        episodes = play_in_batches(group, environment, sampler, sampling, config.evaluate.batch_size)
    episodes = environment.complete(group, episodes)
    seconds = time.perf_counter() - started
    layout = to_tokens(episodes, renderer.end_id)
    yield check_mask(episodes, layout["completion_ids"], layout["env_mask"], renderer)
    if longest := max(episodes, key=lambda episode: len(episode.turns), default=None):
        texts = (renderer.tokenizer.decode([token]) for token in longest.completion_ids)
        show(zip(texts, map(bool, longest.sampled_mask), strict=True))
    rows = environment.grade(group, episodes, None, [i % 7 / 7 for i in range(len(group))])
    yield from check_episodes(rows, environment)
    per_step = seconds / len(group) * train.questions_per_step * train.group_size * UPDATE_FACTOR
    steps = train.steps or len(questions) * train.epochs / train.questions_per_step
    found = f"about {steps * per_step / 60:.0f} minutes for {steps:.0f} steps ({len(group) / seconds:.0f} episodes a second)"
    yield Check("time", True, found)


def check_judge(judge: Judge, questions: Sequence[Question]) -> Check:
    """Ask the judge about gold answers and about nonsense."""
    answerable = [question for question in questions if question.answer][:4]
    verdicts = judge.judge([(q, q.answer) for q in answerable] + [(q, NONSENSE) for q in answerable])
    failures = [verdict.failure for verdict in verdicts if verdict.correct is None]
    if failures:
        return Check("judge", False, f"no verdict: {failures[0]}", "start the judge, or set judge.base_url and judge.model")
    right = [bool(verdict.correct) for verdict in verdicts]
    expected = [True] * len(answerable) + [False] * len(answerable)
    agree = sum(a == b for a, b in zip(right, expected, strict=True))
    found = f"{agree} of {len(expected)} verdicts right on gold answers and nonsense"
    return Check("judge", agree == len(expected), found, "this judge cannot tell gold from nonsense: take another judge.model")


def check_qualified(judge: JudgeConfig, data_dir: str) -> list[Check]:
    """Check that a language model judge has passed its qualification; the exact judge needs none."""
    if judge.kind == "exact":
        return []
    try:
        state = read_state(judge, data_dir)
        passed, found = state.passed, state.found
    except JudgeError as error:
        passed, found = False, str(error)
    if not passed and not judge.require_qualified:
        passed, found = True, f"{found}; judge.require_qualified is off"
    return [Check("judge qualified", passed, found, REMEDY)]


def check_mask(episodes: Sequence[Episode], ids: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], renderer: ChatRenderer) -> Check:
    """Decode the tokens that will be trained on: they must be exactly the policy's text.

    Args:
        episodes: played.
        ids: completion ids of each, as the trainer gets them.
        masks: 1 where a completion id is trained on.
        renderer: decodes.
    """
    sampled = context = wrong = 0
    for episode, completion, mask in zip(episodes, ids, masks, strict=True):
        if episode.stop_reason is StopReason.FAILED:
            continue
        runs = groupby(zip(completion, mask, strict=True), key=lambda pair: pair[1])
        # Turn by turn: some tokenizers drop the space that a text begins with.
        sampled_text = "".join(renderer.decode([i for i, _ in run]) for trained, run in runs if trained)
        # A turn cut off in the middle of a character decodes to another text alone than with its successor.
        wrong += sampled_text.replace("\ufffd", "") != "".join(turn.text for turn in episode.turns).replace("\ufffd", "")
        sampled += sum(mask)
        context += len(mask) - sum(mask)
    found = f"{sampled} tokens written, {context} tokens shown"
    if wrong:
        found += f"; in {wrong} of {len(episodes)} episodes the trained tokens are not what the policy wrote"
    return Check("mask", not wrong and sampled > 0, found, "sampled ids and mask do not match: report it, do not train")


def check_episodes(rows: Sequence[EpisodeRow], environment: Environment) -> Iterator[Check]:
    """Check how the preflight's episodes ended and whether their rewards differ inside any group."""
    size, of_all = environment.config.train.group_size, f"of {len(rows)} episodes"
    failed = [row.failure for row in rows if row.failed]
    found = f"{len(failed)} {of_all} failed" + (f" ({failed[0]})" if failed else "")
    yield Check("services", len(failed) <= MAX_FAILED_FRAC * len(rows), found, "fix the service that failed")
    truncated = mean(row.stop_reason == StopReason.MAX_TOKENS for row in rows)
    remedy = f"raise {' and '.join(environment.limits.settings)}"
    yield Check("truncated", truncated <= MAX_TRUNCATED, f"{truncated:.0%} {of_all} cut off", remedy)
    malformed = mean(row.stop_reason == StopReason.MALFORMED for row in rows)
    remedy = "the model does not know the format: train it with `slmsearch sft` first, or take another model"
    yield Check("malformed", malformed <= MAX_MALFORMED, f"{malformed:.0%} {of_all} malformed", remedy)
    yield from environment.check_rows(rows)
    groups = [{row.reward for row in rows[i : i + size] if not row.failed} for i in range(0, len(rows), size)]
    equal = mean(len(group) < 2 for group in groups)
    remedy = "nothing can be learnt from equal rewards: check reward and judge, raise train.temperature, or take other questions"
    yield Check("equal rewards", equal < 1.0, f"{equal:.0%} of {len(groups)} groups have no two different rewards", remedy)


def play_in_batches(
    questions: Sequence[Question], environment: Environment, sampler: Sampler, sampling: Sampling, batch_size: int
) -> list[Episode]:
    """Play questions in batches, each with the draws that it would have in one large batch.

    Args:
        questions: to be played.
        environment: plays them.
        sampler: plays the policy.
        sampling: temperature and seed of the large batch.
        batch_size: questions of a batch.
    """
    episodes: list[Episode] = []
    for first in range(0, len(questions), batch_size):
        own = replace(sampling, first_row=sampling.first_row + first)
        episodes += environment.play(questions[first : first + batch_size], sampler, own)
    return episodes


def require(checks: Iterable[Check]) -> list[Check]:
    """Run checks until one has not passed; return them all.

    Raises:
        PreflightError: cause and remedy of the first that has not passed.
    """
    passed = []
    for check in checks:
        if not check.passed:
            raise PreflightError(f"pre-flight check {check.name!r} failed: {check.found.splitlines()[0]}; {check.remedy}")
        passed.append(check)
    return passed


def preflight_here(config: RunConfig, tell: Callable[[Check], None], show: ShowEpisode) -> list[Check]:
    """Run the checks in this process up to the first that has not passed, and pass each to `tell`.

    Corpus and index are built or looked up.
    """

    def run_checks() -> Iterator[Check]:
        corpora_dir = config.paths.corpora
        digest = environment_of(config).data(config).build(corpora_dir)
        environment, found = open_environment(config, digest), load_questions(corpora_dir, digest)
        questions = select_questions(found.get(config.train.split, []), config.train.limit)
        asked = [*questions, *found.get("validation", [])]
        renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
        yield from check_resources(config, longest_prompt((environment.opening(question.question) for question in asked), renderer))
        sampler, open_base = load_with_base(config.policy, config.searcher.tool_role)
        if environment.base_user is not None:
            environment.base_user.sample_with(open_base)
        yield from check_learning(questions, environment, lambda: nullcontext(sampler), renderer, show)

    checks: list[Check] = []
    for check in run_checks():
        checks.append(check)
        tell(check)
        if not check.passed:
            break
    return checks
