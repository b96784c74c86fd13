"""Preflight rollouts: a few groups played before training, and the checks that say whether it could learn from them.

Each check finds one way in which runs fail without a word: a parser that reads nothing, an inverted mask, a cap that cuts every
episode off, a judge that is down, rewards that are all equal, an index that answers with noise.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import mean

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Check, Environment
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import JudgeError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.judge import Judge
from slmsearch.judge.qualify import REMEDY, read_state
from slmsearch.searcher.episode import Episode, StopReason

MAX_FAILED_FRAC = 0.5
"""Share of failed episodes, before training or in a step of it, above which it stops with the cause: what is left is no sample any more."""
MAX_TRUNCATED = 0.5
"""Share of preflight episodes that may be cut off by a token limit."""
MAX_MALFORMED = 0.9
"""Share that may end malformed: the format can be learnt, but not from nothing."""
NONSENSE = "zzqx vrrk"
"""An answer that no judge may call right."""


def check_judge(judge: Judge, questions: Sequence[Question]) -> Check:
    """Ask about gold answers and about nonsense."""
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


def check_qualified(config: RunConfig) -> list[Check]:
    """Say whether a language model judge has passed its qualification; the exact judge needs none."""
    if config.judge.kind == "exact":
        return []
    try:
        state = read_state(config.judge, config.paths.data_dir)
        passed, found = state.passed, state.found
    except JudgeError as error:
        passed, found = False, str(error)
    if not passed and not config.judge.require_qualified:
        passed, found = True, f"{found}; judge.require_qualified is off"
    return [Check("judge qualified", passed, found, REMEDY)]


def check_mask(episodes: Sequence[Episode], ids: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], renderer: ChatRenderer) -> Check:
    """Decode what will be trained on: it must be what the policy wrote, and nothing else.

    Args:
        episodes: played episodes.
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
        # A turn that was cut off in the middle of a character decodes otherwise alone than with what follows.
        wrong += sampled_text.replace("\ufffd", "") != "".join(turn.text for turn in episode.turns).replace("\ufffd", "")
        sampled += sum(mask)
        context += len(mask) - sum(mask)
    found = f"{sampled} tokens written, {context} tokens shown"
    if wrong:
        found += f"; in {wrong} of {len(episodes)} episodes the trained tokens are not what the policy wrote"
    return Check("mask", not wrong and sampled > 0, found, "sampled ids and mask have come apart: report it, do not train")


def check_episodes(rows: Sequence[EpisodeRow], environment: Environment) -> list[Check]:
    """Look at how the preflight's episodes ended and whether their rewards differ inside any group."""
    size = environment.config.train.group_size
    failed = [row.failure for row in rows if row.failed]
    truncated = mean(row.stop_reason == StopReason.MAX_TOKENS for row in rows)
    malformed = mean(row.stop_reason == StopReason.MALFORMED for row in rows)
    groups = [{row.reward for row in rows[i : i + size] if not row.failed} for i in range(0, len(rows), size)]
    equal = mean(len(group) < 2 for group in groups)
    return [
        Check(
            "services",
            len(failed) <= MAX_FAILED_FRAC * len(rows),
            f"{len(failed)} of {len(rows)} episodes failed" + (f" ({failed[0]})" if failed else ""),
            "fix the service that failed",
        ),
        Check(
            "truncated",
            truncated <= MAX_TRUNCATED,
            f"{truncated:.0%} of {len(rows)} episodes cut off",
            f"raise {' and '.join(environment.limits.settings)}",
        ),
        Check(
            "malformed",
            malformed <= MAX_MALFORMED,
            f"{malformed:.0%} of {len(rows)} episodes malformed",
            "the model does not know the format: train it with `slmsearch sft` first, or take another model",
        ),
        *environment.check_rows(rows),
        Check(
            "equal rewards",
            equal < 1.0,
            f"{equal:.0%} of {len(groups)} groups have no two different rewards",
            "nothing can be learnt from equal rewards: check reward and judge, raise train.temperature, or take other questions",
        ),
    ]


def colour_episode(episode: Episode, renderer: ChatRenderer, paint: Callable[[str, bool], str]) -> str:
    """Print an episode token by token as training sees it.

    Args:
        episode: a played episode.
        renderer: decodes.
        paint: takes a text and whether it is trained on.
    """
    parts = []
    for token, mask in zip(episode.completion_ids, episode.sampled_mask, strict=True):
        parts.append(paint(renderer.tokenizer.decode([token]), bool(mask)))
    return "".join(parts)
