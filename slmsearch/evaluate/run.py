"""Evaluation of one policy: its questions and its key; questions are played and graded batch by batch.

Storage is in `evaluate/store.py`; this module knows no tracker.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from slmsearch.config import EvaluateConfig, PolicyConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.twins import TWINS_VERSION
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.playable import without_token_limits
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import ConfigError, CorpusError, EvaluationError, GenerationError
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.policies import PolicySpec, describe_policy
from slmsearch.evaluate.store import Evaluation, load_evaluation
from slmsearch.evaluate.worked_examples import EXAMPLES_VERSION, FewShotSampler
from slmsearch.http_client import list_models
from slmsearch.keys import content_key
from slmsearch.sampling import load_sampler

EVALUATION_VERSION = 10
"""Part of every evaluation key; raise it when playing, grading or the rows' fields change."""

Progress = Callable[[int, int], None]
"""Callback with the number of questions done, and their total."""


def select_questions(questions: dict[str, list[Question]], config: EvaluateConfig) -> list[Question]:
    """Select the questions to evaluate: a split, or a seeded sample of it (part of any larger sample), in corpus order.

    Raises:
        CorpusError: the split has no questions.
    """
    splits = list(questions) if config.split == "all" else [config.split]
    found = [question for split in splits for question in questions.get(split, [])]
    if not found:
        raise CorpusError(f"split {config.split!r} holds no question; set corpus.questions, or choose another evaluate.split")
    if not config.limit or config.limit >= len(found):
        return found
    chosen = random.Random(config.seed).sample(range(len(found)), len(found))[: config.limit]
    return [found[i] for i in sorted(chosen)]


def eval_sources(questions: Sequence[Question], index_key: str, spec: PolicySpec, config: RunConfig, digest: str) -> dict[str, object]:
    """Collect everything that decides the result of an evaluation, except the machine.

    Args:
        questions: selected ones, before twins or repetitions.
        index_key: content key of the index version.
        spec: the policy.
        config: settings of the run.
        digest: digest of the corpus, which decides the worked examples.
    """
    environment, shots = environment_of(config), config.evaluate.shots if spec.policy else 0
    base = replace(spec, policy=config.policy.model_copy(update={"adapter": None}))
    return {
        "version": EVALUATION_VERSION,
        "questions": content_key(questions=[question.row() for question in questions]),
        "policy": describe_policy(spec, config.evaluate),
        # Batching decides padding, and with it the last bits of logits.
        "batch_size": config.evaluate.batch_size,
        "environment": environment.name,
        **environment.key_parts(index_key),
        # Only for a shared base, a night, twins, sampling and worked examples, so that other keys do not change.
        **({"base": describe_policy(base, config.evaluate)} if spec.policy is None and environment.base_user else {}),
        **({"view": [config.evaluate.views[0], TWINS_VERSION]} if config.evaluate.views[0] != "whole" else {}),
        **({"samples": config.evaluate.samples} if config.evaluate.samples > 1 else {}),
        **({"night": spec.night} if spec.night else {}),
        **({"shots": [shots, EXAMPLES_VERSION, digest, config.train.split]} if shots else {}),
    }


def eval_key(questions: Sequence[Question], index_key: str, spec: PolicySpec, config: RunConfig, digest: str) -> str:
    """Return the key of an evaluation, a hash of its `eval_sources`; the same inputs give the same key, under any name of the policy."""
    return content_key(**eval_sources(questions, index_key, spec, config, digest))


def questions_to_play(questions: Sequence[Question], environment: Environment) -> list[Question]:
    """Return the questions to play: the selected ones or their twins, as the first of `evaluate.views` sets, repeated if sampled.

    Raises:
        ConfigError: the environment has no twins.
    """
    view, samples = environment.config.evaluate.views[0], environment.config.evaluate.samples
    seen = list(questions) if view == "whole" else environment.controls(environment.config).twins(environment, questions, view)
    return [question for question in seen for _ in range(samples)]


def evaluate_policy(
    questions: Sequence[Question],
    environment: Environment,
    spec: PolicySpec,
    progress: Progress | None = None,
    total: int | None = None,
    sampler: Sampler | None = None,
    first: int = 0,
) -> Evaluation:
    """Play every question once, greedily, and grade it; at temperature 1 where each is given several times (`evaluate.samples`).

    Args:
        questions: in the order of the rows.
        environment: its settings have the batch size and the tolerated failures.
        spec: the policy.
        progress: called after each batch.
        total: number of questions of the whole evaluation, if these are a shard of it.
        sampler: the policy's sampler; None loads it.
        first: number of the first question among those of the whole evaluation.

    Raises:
        ModelError: the policy cannot be loaded.
        EvaluationError: more episodes failed than `DecisionConfig.max_failed_frac` allows; the message names a cause. Raised as soon as
            that is certain, so that an outage costs one batch and is never stored.
    """
    config = environment.config
    sampler = sampler or make_policy_sampler(spec, environment, questions)
    started = time.perf_counter()
    if spec.policy is None:
        # Policies without a model count bytes, not tokens: a limit for tokens would cut them off while reading.
        environment = without_token_limits(environment)
    temperature = float(config.evaluate.samples > 1)
    sampling = Sampling(temperature=temperature, seed=config.evaluate.seed, max_new_tokens=environment.limits.max_turn_tokens)
    episodes: list[Episode] = []
    rows: list[EpisodeRow] = []
    for start in range(0, len(questions), config.evaluate.batch_size):
        batch = questions[start : start + config.evaluate.batch_size]
        played = environment.complete(batch, environment.play(batch, sampler, replace(sampling, first_row=first + start)))
        if spec.policy is None:
            played = [without_tokens(episode) for episode in played]
        episodes += played
        rows += environment.grade(batch, played)
        check_failures(rows, total or len(questions), config.decision.max_failed_frac)
        if progress is not None:
            progress(len(rows), len(questions))
    seconds = time.perf_counter() - started
    return Evaluation(tuple(rows), tuple(episodes), summarise(rows), summarise_slices(rows), seconds)


def make_policy_sampler(spec: PolicySpec, environment: Environment, questions: Sequence[Question]) -> Sampler:
    """Load the policy, or make the baseline for these questions, and return its sampler.

    A component that samples from the policy's base shares the loaded weights. A model gets the worked examples of the environment.

    Args:
        spec: the policy.
        environment: plays the questions.
        questions: to be played.

    Raises:
        ModelError: the model or adapter cannot be loaded.
        ConfigError: the baseline does not exist, or a served policy has no base that could be shared.
        EvaluationError: the evaluation that a control is made from is missing.
    """
    config, policy = environment.config, spec.policy
    sampler: Sampler | None = None
    if environment.base_user is not None:
        if policy is not None and policy.base_url:
            raise ConfigError(
                f"environment {config.environment} samples from the base of the policy: load one here, or set planner.worker.kind"
            )
        # A baseline has no model, but a component that samples from the base still needs the configured one.
        base = policy or config.policy.model_copy(update={"adapter": None})
        sampler, open_base = load_sampler.load_with_base(base, config.searcher.tool_role)
        environment.base_user.sample_with(open_base)
    if policy is None:
        stored = load_evaluation(config.paths.evals, spec.made_of).episodes if spec.made_of else ()
        written = {episode.question_id: episode.turns[0].text if episode.turns else "" for episode in stored}
        return environment.controls(config).sampler(environment, spec.name, questions, written)
    sampler = sampler or load_sampler.make_sampler(policy, config.searcher.tool_role)
    return FewShotSampler(sampler, environment) if environment.examples else sampler


def without_tokens(episode: Episode) -> Episode:
    """Return the episode of a policy without a model, whose ids are bytes, without them."""
    turns = tuple(replace(turn, context_ids=(), sampled_ids=(), sampled_logprobs=()) for turn in episode.turns)
    return replace(episode, turns=turns, prompt_ids=(), sampled_tokens=0)


def check_failures(rows: Sequence[EpisodeRow], total: int, max_failed_frac: float) -> None:
    """Check that the failed rows are not too many of the total.

    Args:
        rows: graded so far.
        total: number of questions of the whole evaluation.
        max_failed_frac: largest share of them that may fail, 0 to 1.

    Raises:
        EvaluationError: more rows failed.
    """
    failures = [row.failure for row in rows if row.failed]
    if len(failures) > max_failed_frac * total:
        raise EvaluationError(
            f"{len(failures)} of {len(rows)} episodes failed, more than {max_failed_frac:.0%} of {total} (first: {failures[0]}); "
            "fix that service and evaluate again"
        )


def find_model(base_url: str, api_key: str = "none") -> str:
    """Return the model that a server serves; of several the first.

    Raises:
        GenerationError: the server does not answer, or serves no model.
    """
    names = list_models(base_url, api_key, 10.0, elsewhere=True)
    if names is None:
        raise GenerationError(f"no server answers at {base_url}; start it, or give --base-url")
    if not names:
        raise GenerationError(f"{base_url} lists no model; give --model")
    return names[0]


def ask_served(questions: Sequence[str], environment: Environment, policy: PolicyConfig, temperature: float = 0.0) -> list[Episode]:
    """Play questions with a policy on its server, and return the episodes.

    Args:
        questions: texts.
        environment: open.
        policy: model with a server.
        temperature: 0 is greedy.

    Raises:
        GenerationError: the server did not answer.
    """
    asked = [Question(f"q{i}", text, "") for i, text in enumerate(questions)]
    sampler = make_policy_sampler(PolicySpec(policy.model, policy), environment, asked)
    sampling = Sampling(temperature, EvaluateConfig.seed, environment.limits.max_turn_tokens)
    episodes = environment.complete(asked, environment.play(asked, sampler, sampling))
    broken = next((episode.failure for episode in episodes if episode.failure), "")
    if broken:
        raise GenerationError(f"{broken}; check --base-url and --model")
    return episodes
