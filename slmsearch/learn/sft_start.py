"""`slmsearch sft`: teach a model to play before it is trained by reward.

Three kinds of examples. Demonstrations of generated questions, and those of a source of the environment's (gold sections, a set of
plans), are for a model that does not know the format. The model's own right episodes (rejection sampling) are for one that does.
Small models need one of them: reward teaches nothing where no episode is ever right.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment, select_questions
from slmsearch.environments.registry import environment_of
from slmsearch.errors import TrainingError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.sampler import Sampler, Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.judge.qualify import require_qualified
from slmsearch.learn.encoding import Encoded, encode_demonstration, encode_episode, fits
from slmsearch.learn.sft import demonstrated, repeated, within_context
from slmsearch.learn.teach import Lesson, load_student, teach
from slmsearch.searcher.episode import Episode

DEMONSTRATIONS, OWN = "demonstrations", "own"
FACTS = "sft.json"
Say = Callable[[str], None]


def train_start(
    config: RunConfig,
    source: str,
    out: Path,
    say: Say = lambda text: None,
    on_log: Callable[[int, dict[str, float]], None] | None = None,
    once: bool = False,
) -> dict[str, Any]:
    """Train `config.policy.model` by supervision and write the model that results.

    Args:
        config: `sft` says how, `train.limit` how many questions of one's own data.
        source: `demonstrations`, `own`, or a source that the environment knows.
        out: model directory, replaced as a whole when everything is done.
        say: told what is being done.
        on_log: progress, as in `train_sft`.
        once: return a finished directory as it is.

    Returns:
        Source, episodes (None: without end), what was left out for which reason, start, steps and seconds, as `sft.json` says them.

    Raises:
        TrainingError: no episode of the model's own was right, or no example fits.
        CorpusError: a set of examples is missing or has other columns.
        ModelError: an example is longer than the model's context.
        PreflightError: the judge that would say which are right has not passed its qualification.
    """

    def prepare() -> Lesson:
        environment = environment_of(config)
        if source == OWN:
            require_qualified(config.judge, config.paths.data_dir)
        model, tokenizer = load_student(config)
        renderer = ChatRenderer(tokenizer, config.searcher.tool_role)
        facts: dict[str, Any] = {"source": source, "episodes": None, "start": config.policy.model}
        if source == DEMONSTRATIONS:
            fresh = config.sft.model_copy(update={"seed": config.sft.seed + environment.start_seed})
            even = environment.weighs_evenly(config)
            return Lesson(model, tokenizer, config.sft, lambda: demonstrated(renderer, config, fresh), facts, even)
        if source == OWN:
            found, left_out = _own_episodes(config, TorchSampler(model.eval(), tokenizer, config.searcher.tool_role), say), Counter[str]()
        else:
            shown, left_out = environment.examples(config, source)
            found = [encode_demonstration(demonstration, renderer, config) for demonstration in shown]
        kept = _keep_fitting(config, found, left_out, source, say)
        kept = list(within_context(model, kept))
        facts |= {"episodes": len(kept), "left_out": dict(+left_out)}
        settings = environment.sft_settings(config, len(kept))
        return Lesson(
            model, tokenizer, settings, lambda: repeated(kept, config.sft.seed), facts, environment.weighs_evenly(config)
        )  # fmt: skip

    return teach(config, out, FACTS, prepare, on_log, once)


def _keep_fitting(config: RunConfig, found: Sequence[Encoded], left_out: Counter[str], source: str, say: Say) -> list[Encoded]:
    environment = environment_of(config)
    limits = environment.limits_of(config)
    as_written = source == OWN and limits.max_example_tokens is None  # the policy's own episodes end within its limits
    kept = [encoded for encoded in found if as_written or fits(encoded, limits)]
    left_out["too long"] = len(found) - len(kept)
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common() if count) or "none"
    say(f"{len(kept)} examples; left out: {reasons}")
    if not kept:
        raise environment.no_examples(config, reasons)
    return kept


def _own_episodes(config: RunConfig, sampler: TorchSampler, say: Say) -> list[Encoded]:
    corpora_dir = config.paths.corpora
    digest = environment_of(config).build_data(config, corpora_dir)
    asked = load_questions(corpora_dir, digest).get(config.train.split, [])
    questions = select_questions(asked, config.train.limit or config.sft.own_questions)
    environment = environment_of(config).open(config, digest)
    environment.sample_base_with(lambda: nullcontext(sampler))
    kept = sample_own(questions, environment, sampler)
    say(f"{len(kept)} right episodes on {len({episode.question_id for episode in kept})} of {len(questions)} questions")
    if not kept:
        raise TrainingError(
            "no episode of the model's own was right: begin with `slmsearch sft --from demonstrations` (planner.sft.source generated)"
        )
    return [encode_episode(episode, sampler.renderer.end_id) for episode in kept]


def sample_own(questions: Sequence[Question], environment: Environment, sampler: Sampler) -> list[Episode]:
    """Play questions several times and keep right episodes that no reward-hacking filter refuses, best reward first.

    Args:
        questions: to play.
        environment: plays and grades. Its settings say the rest: `SftConfig.own_tries` episodes a question, of which at most `own_kept`
            different ones are kept.
        sampler: the policy.

    Returns:
        Kept episodes, question by question.
    """
    config, kept = environment.config, list[Episode]()
    tries = config.sft.own_tries
    per_batch = max(1, config.evaluate.batch_size // tries)
    for start in range(0, len(questions), per_batch):
        batch = [question for question in questions[start : start + per_batch] for _ in range(tries)]
        sampling = Sampling(config.train.temperature, config.sft.seed + start, environment.limits.max_turn_tokens)
        episodes = environment.complete(batch, environment.play(batch, sampler, sampling))
        rows = environment.grade(batch, episodes)
        for first in range(0, len(batch), tries):
            tried = range(first, first + tries)
            right = [k for k in tried if not rows[k].failed and rows[k].correct and not rows[k].reward_parts.get("hacked")]
            different = {tuple(episodes[k].completion_ids): k for k in reversed(right)}
            best = sorted(different.values(), key=lambda k: (-rows[k].reward, k))
            kept += [episodes[k] for k in best[: config.sft.own_kept]]
    return kept
