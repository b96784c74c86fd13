"""Play episodes of one message: a question, and the policy's reply."""

import time
from collections.abc import Callable, Sequence

from slmsearch.corpus.questions import Question
from slmsearch.episodes.episode import Episode, StopReason, Turn
from slmsearch.episodes.sampler import Message, SampledTurn, Sampler, Sampling

Read = Callable[[str], tuple[str | None, bool]]
"""Message -> its answer, if it holds one by itself, and whether it is well-formed."""


def play_one_turn(
    questions: Sequence[Question], prompts: Sequence[Sequence[Message]], sampler: Sampler, sampling: Sampling, max_tokens: int, read: Read
) -> list[Episode]:
    """Let the policy write one message of at most `max_tokens` for each question; `read` reads a message that ended.

    The sampler's rows are closed at the end.
    """
    started, count = time.perf_counter(), len(questions)
    try:
        opened = sampler.open(prompts, sampling)
        turns = sampler.sample(range(count), [None] * count, [max_tokens] * count)
    finally:
        sampler.close()
    seconds = time.perf_counter() - started
    return [_ended(*row, seconds, read) for row in zip(questions, opened, turns, strict=True)]


def _ended(question: Question, prompt: tuple[int, ...], turn: SampledTurn, seconds: float, read: Read) -> Episode:
    answer, reason = None, StopReason.FAILED
    if not turn.failure:
        answer, is_valid = read(turn.text) if turn.ended else (None, False)
        reason = StopReason.ANSWERED if is_valid else StopReason.MALFORMED if turn.ended else StopReason.MAX_TOKENS
    turns: tuple[Turn, ...] = ()
    if turn.sampled_ids or turn.text:
        turns = (Turn(turn.text, None, answer, None, turn.context_ids, turn.sampled_ids, turn.sampled_logprobs),)
    return Episode(question.id, turns, reason, prompt, seconds, turn.failure, max(len(turn.sampled_ids), turn.num_tokens))
