"""A model's own episodes as examples: it plays training questions, and learns from the right ones."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import open_environment
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import TrainingError
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.encoding import Encoded, encode_episode
from slmsearch.training.sft import OnPhase, tell_nobody


def make_own_episodes(
    environment: Environment, digest: str | None, sampler: TorchSampler, say: Callable[[str], None], on_phase: OnPhase
) -> tuple[list[Encoded], dict[str, Episode]]:
    """Play training questions, see `sample_own`; return the right episodes, and one episode of each other question by its text."""
    config = environment.config
    digest = digest or environment.data(config).build(config.paths.corpora)
    environment, asked = open_environment(config, digest), load_questions(config.paths.corpora, digest).get(config.train.split, [])
    asked = environment.teaching(config).training_questions(environment, asked)
    questions = asked[: config.train.limit or config.sft.own_questions]
    if environment.base_user is not None:
        environment.base_user.sample_with(lambda: nullcontext(sampler))
    kept, others = sample_own(questions, environment, sampler, on_phase)
    right = {episode.question_id for episode in kept}
    say(f"{len(kept)} right episodes on {len(right)} of {len(questions)} questions")
    if not kept:
        raise TrainingError(
            "no episode of the model's own was right: begin with `slmsearch sft --from demonstrations` (planner.sft.source generated)"
        )
    texts = {question.id: question.question for question in questions}
    wrong = {texts[episode.question_id]: episode for episode in others}
    return [encode_episode(episode, sampler.renderer.end_id) for episode in kept], wrong


def sample_own(
    questions: Sequence[Question], environment: Environment, sampler: Sampler, on_phase: OnPhase = tell_nobody
) -> tuple[list[Episode], list[Episode]]:
    """Play questions several times and keep right episodes that no reward-hacking filter rejects, best reward first.

    Each question is played `SftConfig.own_tries` times, and at most `own_kept` different episodes are kept. The second list holds an
    episode of each question without a right one. `on_phase` receives the number of questions played.
    """
    config, kept, others = environment.config, list[Episode](), list[Episode]()
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
            others += [] if right else [episodes[first]]
        on_phase("own episodes", "questions", min(start + per_batch, len(questions)), len(questions))
    return kept, others
