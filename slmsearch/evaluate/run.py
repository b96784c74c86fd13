"""Evaluating one policy: which questions, under which key, played and graded batch by batch.

Storage is `evaluate/store.py`; nothing here knows a tracker.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from slmsearch.config import EvaluateConfig, JudgeConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import CorpusError, EvaluationError
from slmsearch.evaluate.environments import Environment, SearcherEnvironment, planner_sources
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.policies import PolicySpec, describe_policy, make_policy_sampler
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.evaluate.store import Evaluation
from slmsearch.generate.sampler import Sampler, Sampling
from slmsearch.judge import make_judge
from slmsearch.keys import content_key
from slmsearch.retrieval.search import describe_ranking
from slmsearch.searcher.episode import Episode
from slmsearch.searcher.prompt import PROMPT_VERSION, describe_searcher
from slmsearch.searcher.tools import Toolbox

EVALUATION_VERSION = 2
"""Part of every evaluation key; raise it when playing, grading or the rows' fields change."""

Progress = Callable[[int, int], None]
"""Called with the questions done and their total."""


def select_questions(questions: dict[str, list[Question]], config: EvaluateConfig) -> list[Question]:
    """Select the questions to evaluate: a split, or a seeded sample of it, in corpus order.

    Args:
        questions: questions by split, as `Corpus.questions` holds them.
        config: split, limit and seed.

    Raises:
        CorpusError: there are none.
    """
    splits = list(questions) if config.split == "all" else [config.split]
    found = [question for split in splits for question in questions.get(split, [])]
    if not found:
        raise CorpusError(f"split {config.split!r} holds no question; set corpus.questions, or choose another evaluate.split")
    if not config.limit or config.limit >= len(found):
        return found
    chosen = random.Random(config.seed).sample(range(len(found)), config.limit)
    return [found[i] for i in sorted(chosen)]


def eval_sources(questions: Sequence[Question], index_key: str, spec: PolicySpec, config: RunConfig) -> dict[str, Any]:
    """Collect everything that decides what an evaluation comes to, except the machine."""
    if config.environment == "planner":
        return {
            "version": EVALUATION_VERSION,
            "questions": content_key(questions=[asdict(question) for question in questions]),
            "policy": describe_policy(spec, config),
            "batch_size": config.evaluate.batch_size,
            **planner_sources(config),
            **_night(spec),
        }
    return {
        "version": EVALUATION_VERSION,
        "prompt_version": PROMPT_VERSION,
        "questions": content_key(questions=[asdict(question) for question in questions]),
        "index_key": index_key,
        "top_k": config.retrieval.top_k,
        **describe_ranking(config.retrieval.ranking),
        "policy": describe_policy(spec, config),
        "searcher": describe_searcher(config.searcher, config.sandbox.limits),
        "judge": _describe_judge(config.judge),
        "reward": config.reward.key_parts(),
        # Batching decides padding, and with it the last bits of logits.
        "batch_size": config.evaluate.batch_size,
        **_night(spec),
    }


def eval_key(questions: Sequence[Question], index_key: str, spec: PolicySpec, config: RunConfig) -> str:
    """Name an evaluation by what it is made from; the same inputs give the same key, whatever the policy is called."""
    return content_key(**eval_sources(questions, index_key, spec, config))


def evaluate_policy(
    questions: Sequence[Question],
    toolbox: Toolbox,
    spec: PolicySpec,
    config: RunConfig,
    progress: Progress | None = None,
    total: int | None = None,
) -> Evaluation:
    """Play every question once, greedily, and grade it.

    Args:
        questions: questions, in the order of the rows.
        toolbox: tools over the corpus and its index.
        spec: the policy.
        config: limits, reward, judge and batch size.
        progress: told after each batch.
        total: questions of the whole evaluation, where these are a shard of it.

    Raises:
        ModelError: the policy cannot be loaded.
        EvaluationError: more episodes failed than `DecisionConfig.max_failed_frac` allows; the message names a cause. Raised as soon as
            that is certain, so that a service that is down costs one batch and its result is never stored.
    """
    sampler = make_policy_sampler(spec, toolbox, config)
    environment = SearcherEnvironment(toolbox, make_judge(config.judge, config.paths.data_dir), config)
    return evaluate_environment(questions, environment, sampler, spec, config, progress, total)


def evaluate_environment(
    questions: Sequence[Question],
    environment: Environment,
    sampler: Sampler,
    spec: PolicySpec,
    config: RunConfig,
    progress: Progress | None = None,
    total: int | None = None,
) -> Evaluation:
    """Play every question once, greedily, and grade it, in whatever environment.

    Args:
        questions: questions, in the order of the rows.
        environment: plays and grades.
        sampler: the policy.
        spec: what the policy is.
        config: batch size and tolerated failures.
        progress: told after each batch.
        total: as for `evaluate_policy`.

    Raises:
        EvaluationError: as for `evaluate_policy`.
    """
    started = time.perf_counter()
    if spec.policy is None:
        # Policies without a model count bytes, not tokens: a limit made for tokens would cut them off in mid-read.
        environment = environment.without_token_limits()
    sampling = Sampling(temperature=0.0, seed=config.evaluate.seed, max_new_tokens=environment.limits.max_turn_tokens)
    episodes: list[Episode] = []
    rows: list[EpisodeRow] = []
    for start in range(0, len(questions), config.evaluate.batch_size):
        batch = questions[start : start + config.evaluate.batch_size]
        played = environment.complete(batch, environment.play(batch, sampler, sampling))
        if spec.policy is None:
            played = [_without_tokens(episode) for episode in played]
        episodes += played
        rows += environment.grade(batch, played)
        check_failures(rows, total or len(questions), config.decision.max_failed_frac)
        if progress is not None:
            progress(len(rows), len(questions))
    seconds = time.perf_counter() - started
    return Evaluation(tuple(rows), tuple(episodes), summarise(rows), summarise_slices(rows), seconds)


def _without_tokens(episode: Episode) -> Episode:
    turns = tuple(replace(turn, context_ids=(), sampled_ids=(), sampled_logprobs=()) for turn in episode.turns)
    return replace(episode, turns=turns, prompt_ids=(), sampled_tokens=0)


def check_failures(rows: Sequence[EpisodeRow], total: int, max_failed_frac: float) -> None:
    """Refuse an evaluation of which too much has failed already.

    Raises:
        EvaluationError: more rows failed than may of the total.
    """
    failures = [row.failure for row in rows if row.failed]
    if len(failures) > max_failed_frac * total:
        raise EvaluationError(
            f"{len(failures)} of {len(rows)} episodes failed, more than {max_failed_frac:.0%} of {total} (first: {failures[0]}); "
            "fix that service and evaluate again"
        )


def _night(spec: PolicySpec) -> dict[str, str]:
    """Return what makes an evaluation one of its night; nothing where it is of none, so that keys made before stay."""
    return {"night": spec.night} if spec.night else {}


def _describe_judge(config: JudgeConfig) -> dict[str, Any]:
    if config.kind == "exact":
        return {"kind": "exact"}
    from slmsearch.judge.prompt import load_prompt

    return {**config.model_dump(mode="json", include={"kind", "model", "base_url"}), "prompt": content_key(text=load_prompt())}
