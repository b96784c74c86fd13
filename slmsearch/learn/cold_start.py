"""`slmsearch sft`: teach a model to play before it is trained by reward.

Three sources of episodes. Demonstrations, which a scripted reader plays in fresh random worlds, and demonstrations by the gold sections
of the configured corpus are for a model that does not know the format. The model's own right episodes on that corpus (rejection
sampling) are for one that does. Small models need
one of them: reward teaches nothing where no episode is ever right.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import TrainingError
from slmsearch.evaluate.grade import grade_episodes, judging_ahead
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.sampler import Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.judge import Judge, make_judge
from slmsearch.judge.qualify import require_qualified
from slmsearch.learn.encoding import Encoded, encode_demonstration, encode_episode, fits
from slmsearch.learn.gold import demonstrate_gold
from slmsearch.learn.sft import demonstrated, repeated, within_context
from slmsearch.learn.teach import load_student, teach
from slmsearch.searcher.episode import Episode
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import Toolbox

Source = Literal["demonstrations", "gold", "own"]
FACTS = "sft.json"


def start_cold(
    config: RunConfig,
    source: Source,
    out: Path,
    say: Callable[[str], None],
    on_log: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Train `config.policy.model` by supervision and write the model that results.

    Args:
        config: `sft` says how, `train.limit` how many questions of `gold` and `own`.
        source: whose episodes.
        out: model directory, replaced as a whole when everything is done.
        say: told what is being done.
        on_log: progress, as in `train_sft`.

    Returns:
        Source, episodes, what was left out for which reason (`gold`), steps and seconds, as `sft.json` in the directory says them.

    Raises:
        TrainingError: no episode of the model's own was right, or no question can be demonstrated.
        ModelError: an episode is longer than the model's context.
        PreflightError: the judge that would say which are right has not passed its qualification.
    """
    if source == "own":
        require_qualified(config.judge, config.paths.data_dir)
    model, tokenizer = load_student(config)
    renderer = ChatRenderer(tokenizer, config.searcher.tool_role)
    facts: dict[str, Any] = {"source": source, "episodes": None}
    if source == "demonstrations":
        top_k = config.retrieval.top_k
        return teach(
            config,
            config.sft,
            (model, tokenizer),
            lambda: demonstrated(renderer, config.sft, top_k, config.searcher),
            out,
            FACTS,
            facts,
            on_log,
        )
    if source == "gold":
        found, left_out = _gold_episodes(config, renderer, say)
        facts["left_out"] = dict(left_out)
    else:
        found = _own_episodes(config, TorchSampler(model.eval(), tokenizer, config.searcher.tool_role), say)
    found = list(within_context(model, found))
    facts["episodes"] = len(found)
    return teach(config, config.sft, (model, tokenizer), lambda: repeated(found, config.sft.seed), out, FACTS, facts, on_log)


def _gold_episodes(config: RunConfig, renderer: ChatRenderer, say: Callable[[str], None]) -> tuple[list[Encoded], Counter[str]]:
    from slmsearch.evaluate.indexed_corpus import build_indexed_corpus
    from slmsearch.learn.asked import select_questions

    indexed = build_indexed_corpus(config)
    questions = select_questions(indexed.questions.get(config.train.split, []), config.train.limit)
    played, left_out = demonstrate_gold(questions, indexed.toolbox)
    encoded = [encode_demonstration(demonstration, renderer, config.searcher) for _, demonstration in played]
    kept = [episode for episode in encoded if fits(episode, config.searcher)]
    left_out["too long"] = len(encoded) - len(kept)
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common() if count) or "none"
    say(f"{len(kept)} demonstrations of {len(questions)} questions; left out: {reasons}")
    if not kept:
        raise TrainingError(
            f"no question of the split {config.train.split!r} can be demonstrated ({reasons}): name gold sections in corpus.questions, "
            "raise retrieval.top_k or searcher.max_episode_tokens"
        )
    return kept, +left_out


def _own_episodes(config: RunConfig, sampler: TorchSampler, say: Callable[[str], None]) -> list[Encoded]:
    from slmsearch.evaluate.indexed_corpus import build_indexed_corpus
    from slmsearch.learn.asked import select_questions

    indexed = build_indexed_corpus(config)
    questions = select_questions(indexed.questions.get(config.train.split, []), config.train.limit or config.sft.own_questions)
    kept = sample_own(questions, indexed.toolbox, make_judge(config.judge, config.paths.data_dir), config, sampler)
    say(f"{len(kept)} right episodes on {len({episode.question_id for episode in kept})} of {len(questions)} questions")
    if not kept:
        raise TrainingError("no episode of the model's own was right: begin with `slmsearch sft --from demonstrations`")
    return [encode_episode(episode, sampler.renderer.end_id) for episode in kept]


def sample_own(questions: Sequence[Question], toolbox: Toolbox, judge: Judge, config: RunConfig, sampler: TorchSampler) -> list[Episode]:
    """Play questions several times and keep the right episodes, by reward.

    Args:
        questions: to play.
        toolbox: tools over their corpus.
        judge: decides what is right.
        config: `SftConfig.own_tries` episodes a question, of which at most `own_kept` different ones are kept; the rest as in training.
        sampler: the policy.

    Returns:
        Kept episodes, question by question, best reward first.
    """
    kept: list[Episode] = []
    tries = config.sft.own_tries
    per_batch = max(1, config.evaluate.batch_size // tries)
    for start in range(0, len(questions), per_batch):
        batch = [question for question in questions[start : start + per_batch] for _ in range(tries)]
        sampling = Sampling(config.train.temperature, config.sft.seed + start, config.searcher.max_turn_tokens)
        with judging_ahead(judge) as on_end:
            episodes = play_episodes(batch, sampler, toolbox, config.searcher, sampling, on_end)
        rows = grade_episodes(batch, episodes, judge, config.reward)
        for first in range(0, len(batch), tries):
            right = [k for k in range(first, first + tries) if not rows[k].failed and rows[k].correct]
            different = {tuple(episodes[k].completion_ids): k for k in reversed(right)}
            best = sorted(different.values(), key=lambda k: (-rows[k].reward, k))
            kept += [episodes[k] for k in best[: config.sft.own_kept]]
    return kept
