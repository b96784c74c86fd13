"""Shards of an evaluation: contiguous parts of its questions, played separately and merged into the result of one process.

    <evals_dir>/.shards/<key>/<number>-of-<shards>/     an evaluation of that part, complete or absent

Workers play shards of many batches; one process plays shards of one batch, so that after a kill it continues with the next one.

Shards are cut between batches, because batching decides padding and with it the last bits of logits: the merged rows and metrics are
those of one process, except for measured times. A shard belongs to the content key of the whole, so that the next process finds one that
was played before a kill.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import open_environment
from slmsearch.errors import EvaluationError
from slmsearch.evaluate import run
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import Progress, check_failures, eval_sources, evaluate_policy, questions_to_play, select_questions
from slmsearch.evaluate.store import Evaluation, has_evaluation, load_evaluation, write_evaluation
from slmsearch.evaluate.worked_examples import choose_examples

SHARDS = ".shards"
"""Folder among the evaluations; its name excludes it from every listing of them."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of an evaluation's questions."""

    number: int
    """Number of the shard, from 1."""
    of: int
    start: int
    """Index of its first question."""
    stop: int
    """Index after its last question."""

    @property
    def name(self) -> str:
        """Name of its directory."""
        return f"{self.number}-of-{self.of}"

    def take(self, questions: Sequence[Question]) -> Sequence[Question]:
        """Return its part of the questions of the whole."""
        return questions[self.start : self.stop]


def split_shards(total: int, batch_size: int, wanted: int) -> list[Shard]:
    """Cut an evaluation of `total` questions into shards of whole batches, as equal as possible; fewer than wanted for fewer batches."""
    batches = -(-total // batch_size)
    count = max(1, min(wanted, batches))
    cuts = [min(total, batches * i // count * batch_size) for i in range(count + 1)]
    return [Shard(i + 1, count, cuts[i], cuts[i + 1]) for i in range(count)]


def shards_dir(evals_dir: Path, key: str) -> Path:
    """Return the directory of an evaluation's shards."""
    return evals_dir / SHARDS / key


def has_shard(evals_dir: Path, key: str, shard: Shard) -> bool:
    """Return whether a shard is stored and complete."""
    return has_evaluation(shards_dir(evals_dir, key), shard.name)


def write_shard(evals_dir: Path, key: str, shard: Shard, played: Evaluation, sources: Mapping[str, object], corpus: str) -> None:
    """Store a played shard; arguments as for `write_evaluation`.

    Raises:
        EvaluationError: the shard cannot be written, and no other process has stored the whole meanwhile and removed the shards.
    """
    try:
        write_evaluation(shards_dir(evals_dir, key), shard.name, played, {**sources, "shard": shard.name}, corpus)
    except EvaluationError:
        if not has_evaluation(evals_dir, key):
            raise


def merge_shards(evals_dir: Path, key: str, shards: Sequence[Shard], questions: Sequence[Question], max_failed_frac: float) -> Evaluation:
    """Merge all shards of an evaluation, given in the order of its questions; its seconds are the sum of theirs.

    Raises:
        EvaluationError: a shard is missing, damaged or of other questions, or too many episodes failed.
    """
    parts = [_load_shard(evals_dir, key, shard, questions) for shard in shards]
    found = sum(len(part.rows) for part in parts)
    if found != len(questions):
        raise EvaluationError(f"the shards of evaluation {key} hold {found} of {len(questions)} questions; evaluate again")
    check_failures([row for part in parts for row in part.rows], len(questions), max_failed_frac)
    return _join(parts)


def _load_shard(evals_dir: Path, key: str, shard: Shard, questions: Sequence[Question]) -> Evaluation:
    part = load_evaluation(shards_dir(evals_dir, key), shard.name)
    if [row.question_id for row in part.rows] != [question.id for question in shard.take(questions)]:
        where = shards_dir(evals_dir, key) / shard.name
        raise EvaluationError(f"shard {shard.name} of evaluation {key} holds other questions; delete {where} and evaluate again")
    return part


def _join(parts: Sequence[Evaluation]) -> Evaluation:
    rows = tuple(row for part in parts for row in part.rows)
    episodes = tuple(episode for part in parts for episode in part.episodes)
    return Evaluation(rows, episodes, summarise(rows), summarise_slices(rows), sum(part.seconds for part in parts))


@dataclass(frozen=True, slots=True)
class EvaluationTarget:
    """The place of an evaluation in the store: that of a content key, or of a shard of it."""

    key: str
    shard: Shard | None = None


def play_evaluation(
    target: EvaluationTarget, spec: PolicySpec, digest: str, index_key: str, config: RunConfig, progress: Progress | None = None
) -> None:
    """Play an evaluation, or a shard of it, on the stored corpus and index version, and store it.

    All arguments are keys, paths and settings, so that another process can play it: the caller needs no model.

    Raises:
        ModelError, EvaluationError: as for `evaluate_policy`.
        CorpusError, IndexUnusableError: the corpus or the index is missing or damaged.
        ConfigError: there are fewer worked examples than `evaluate.shots`.
    """
    found = load_questions(config.paths.corpora, digest)
    questions = select_questions(found, config.evaluate)
    environment = open_environment(config, digest, index_key)
    if spec.policy is not None:
        environment.examples = choose_examples(environment, found.get(config.train.split, []), questions)
    sources = eval_sources(questions, index_key, spec, config, digest)
    questions = questions_to_play(questions, environment)
    if target.shard is None:
        nothing = Evaluation((), (), {}, {}, 0.0)  # where no question has a twin
        try:
            played = play_batches(target.key, spec, questions, environment, (sources, digest), progress) if questions else nothing
        except EvaluationError:
            if not has_evaluation(config.paths.evals, target.key):  # else another run was faster, and removed the shards
                raise
            return
        write_evaluation(config.paths.evals, target.key, played, sources, digest)
        remove_shards(config.paths.evals, target.key)
    else:
        played = evaluate_policy(target.shard.take(questions), environment, spec, progress, len(questions), first=target.shard.start)
        write_shard(config.paths.evals, target.key, target.shard, played, sources, digest)


def play_batches(
    key: str,
    spec: PolicySpec,
    questions: Sequence[Question],
    environment: Environment,
    origin: tuple[Mapping[str, object], str],
    progress: Progress | None,
) -> Evaluation:
    """Play the batches that are not stored yet; store each batch of a policy with a model, unless an episode of it failed."""
    config, parts, sampler = environment.config, list[Evaluation](), None
    evals_dir = config.paths.evals
    for shard in split_shards(len(questions), config.evaluate.batch_size, len(questions)):
        if has_shard(evals_dir, key, shard):
            parts.append(_load_shard(evals_dir, key, shard, questions))
        else:
            sampler = sampler or run.make_policy_sampler(spec, environment, questions)
            part = evaluate_policy(shard.take(questions), environment, spec, None, len(questions), sampler, shard.start)
            if spec.policy is not None and not any(row.failed for row in part.rows):
                write_shard(evals_dir, key, shard, part, *origin)
            parts.append(part)
        check_failures([row for part in parts for row in part.rows], len(questions), config.decision.max_failed_frac)
        if progress is not None:
            progress(shard.stop, len(questions))
    return _join(parts)


def remove_shards(evals_dir: Path, key: str) -> None:
    """Delete the shards of what is stored as a whole."""
    shutil.rmtree(shards_dir(evals_dir, key), ignore_errors=True)
