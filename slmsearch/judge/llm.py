"""Judge by a language model, asked only if the rules cannot decide.

The rules are: typed match; an empty answer, an abstention, and any other answer to an unanswerable question or to one whose right answer is
a passage are wrong without one. For other answers the cache is read first; new ones are sent concurrently at temperature 0. After an
outage the judge retries with exponential backoff and full jitter; a reply without a verdict is not retried, since it would be the same. A
remaining failure is a verdict without `correct`.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_random_exponential,
)

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question, is_passage
from slmsearch.errors import JudgeError
from slmsearch.judge.cache import FILE, StoredVerdict, VerdictCache
from slmsearch.judge.clients import JudgeClient, make_client
from slmsearch.judge.exact import ExactJudge, Judge, Verdict, is_abstention, is_unanswerable, typed_match
from slmsearch.judge.prompt import as_read, prompt_key, render_prompt
from slmsearch.judge.reply import parse_reply
from slmsearch.keys import content_key

R = TypeVar("R")

CACHE_VERSION = 2
"""Version of the cache, part of every verdict's key; raise it if the same model and prompt may judge the same question differently."""
OUTAGES_IN_A_ROW = 4
"""Number of consecutive failures, each after all retries, per slot of `judge.concurrency`. After it the server counts as down or its model
as unable, and the rest of the batch fails without requests."""

logger = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """Inputs of a verdict besides model and prompt."""

    question: str
    answers: tuple[str, ...]
    answer: str


def make_judge(config: JudgeConfig, data_dir: str | Path | None = None) -> Judge:
    """Create the configured judge without connecting; verdicts of language models are cached under `data_dir`."""
    return ExactJudge() if config.kind == "exact" else LlmJudge.of(config, data_dir)


class LlmJudge:
    """Judge that asks a language model whether an answer states the same fact as an accepted one."""

    def __init__(
        self,
        client: JudgeClient,
        config: JudgeConfig,
        cache: VerdictCache | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """Wrap a client; `cache` stores verdicts, `sleep` waits between tries (None: a wait that ends when the batch is dropped)."""
        self._client, self._config, self._cache, self._sleep = client, config, cache, sleep
        self._lock = threading.Lock()
        self._digest = ""
        self._unidentified: JudgeError | None = None
        self._begun: dict[_Asked, Future[Verdict]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._dropped = threading.Event()
        self._in_a_row = 0

    @classmethod
    def of(cls, config: JudgeConfig, data_dir: str | Path | None = None) -> Self:
        """Create the configured judge; verdicts are cached under `data_dir`."""
        return cls(make_client(config), config, VerdictCache(Path(data_dir) / FILE) if data_dir is not None else None)

    def begin(self, question: Question, answer: str | None) -> None:
        """Implement `EagerJudge.begin`; does nothing if `judge.loaded` is `after`."""
        if self._config.loaded != "after" and judge_by_rule(question, answer) is None:
            self._submit(_asked(question, answer), question, look_up=True)

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """Implement `Judge.judge`; equal questions with equal answers are asked once."""
        verdicts = [judge_by_rule(question, answer) for question, answer in items]
        waiting = {i: _asked(*items[i]) for i, verdict in enumerate(verdicts) if verdict is None}
        try:
            found = self._look_up([asked for asked in dict.fromkeys(waiting.values()) if asked not in self._begun])
            for i, asked in waiting.items():
                if asked not in found:
                    self._submit(asked, items[i][0], look_up=False)
            found |= {asked: self._begun[asked].result() for asked in waiting.values() if asked not in found}
        finally:
            self.forget()
        return [found[waiting[i]] if verdict is None else verdict for i, verdict in enumerate(verdicts)]

    def forget(self) -> None:
        """Implement `EagerJudge.forget`."""
        self._dropped.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool, self._begun, self._dropped = None, {}, threading.Event()
        # State of the server is kept for one batch: it may return with another model under the same name.
        self._digest, self._unidentified, self._in_a_row = "", None, 0

    def release(self) -> None:
        """Implement `EagerJudge.release`; a failure is only logged, since the server unloads the model later by itself."""
        try:
            self._client.release()
        except JudgeError as error:
            logger.warning("the judge's model stays loaded: %s", error)

    def identify(self) -> str:
        """Return the name of the model on which its verdicts depend; requested once per batch.

        Raises:
            JudgeError: the server does not answer, or lacks the model.
        """
        with self._lock:
            if self._unidentified is not None:
                raise self._unidentified
            try:
                self._digest = self._digest or self._retry(self._client.identify, self._dropped)
            except JudgeError as error:
                self._unidentified = error
                raise
            return self._digest

    def _submit(self, asked: _Asked, question: Question, look_up: bool) -> None:
        if asked in self._begun:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._config.concurrency, thread_name_prefix="judge")
        self._begun[asked] = self._pool.submit(self._find, asked, question, look_up, self._dropped)

    def _look_up(self, wanted: Sequence[_Asked]) -> dict[_Asked, Verdict]:
        """Return the stored verdicts; after an outage, a failure for all."""
        if self._cache is None or not wanted:
            return {}
        try:
            keys = {self._key(asked): asked for asked in wanted}
            return {keys[key]: Verdict(correct, "judge") for key, correct in self._cache.find(list(keys)).items()}
        except JudgeError as error:
            return dict.fromkeys(wanted, _failed(error))

    def _find(self, asked: _Asked, question: Question, look_up: bool, dropped: threading.Event) -> Verdict:
        """Return one verdict, from the cache or the model; runs in its own thread."""
        if look_up and (known := self._look_up([asked])):
            return known[asked]
        try:
            correct = self._persist(lambda: parse_reply(self._client.ask(render_prompt(question, asked.answer))), dropped)
            if self._cache is not None:
                answers = json.dumps(asked.answers, ensure_ascii=False)
                key, judge = self._key(asked), self.identify()
                self._cache.store([StoredVerdict(key, correct, judge, asked.question, answers, asked.answer)])
            return Verdict(correct, "judge")
        except JudgeError as error:
            return _failed(error)

    def _key(self, asked: _Asked) -> str:
        return content_key(version=CACHE_VERSION, judge=self.identify(), prompt=prompt_key(), **asked._asdict())

    def _persist(self, ask: Callable[[], bool], dropped: threading.Event) -> bool:
        """Ask until there is a reply, unless the server counts as down or its model as unable."""
        if self._in_a_row >= OUTAGES_IN_A_ROW * self._config.concurrency:
            raise JudgeError(f"not asked: the judge gave no verdict on {self._in_a_row} questions in a row")
        try:
            correct = self._retry(ask, dropped)
        except JudgeError:
            self._in_a_row += 1
            raise
        self._in_a_row = 0
        return correct

    def _retry(self, work: Callable[[], R], dropped: threading.Event) -> R:
        return Retrying(
            stop=stop_after_attempt(self._config.retries + 1) | stop_when_event_set(dropped),
            wait=self._wait,
            retry=retry_if_exception(lambda error: getattr(error, "passing", False)),
            sleep=self._sleep or sleep_using_event(dropped),
            reraise=True,
        )(work)

    def _wait(self, state: RetryCallState) -> float:
        """Draw the delay before the next try; it honours the server's `Retry-After`."""
        error = state.outcome.exception() if state.outcome else None
        longest = self._config.max_backoff_s
        drawn = wait_random_exponential(multiplier=self._config.backoff_s, max=longest)(state)
        return max(drawn, min(longest, getattr(error, "retry_after_s", 0.0)))


def judge_by_rule(question: Question, answer: str | None) -> Verdict | None:
    """Decide without a model; None if one must be asked."""
    if typed_match(answer, question.answers):
        return Verdict(True)
    if answer is None or not answer.strip() or is_abstention(answer) or is_unanswerable(question.answers) or is_passage(question.answer):
        return Verdict(False)
    return None


def _asked(question: Question, answer: str | None) -> _Asked:
    return _Asked(*as_read(question, answer))


def _failed(error: JudgeError) -> Verdict:
    return Verdict(None, "judge", f"{error.boundary}: {error}")
