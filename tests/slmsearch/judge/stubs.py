"""A judge's model as a function, for tests that are about the judge and not about servers."""

from collections.abc import Callable
from typing import Any, cast

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge.cache import VerdictCache
from slmsearch.judge.llm import LlmJudge
from slmsearch.judge.reply import Reply

QUESTION = Question("q1", "Who wrote it?", "Ada Lovelace", ("A. Lovelace",))


def hasty_judge(retries: int = 5, backoff_s: float = 0.001, max_backoff_s: float = 30.0) -> type[JudgeConfig]:
    """Make a class of a judge's settings that gives up after other waits."""
    constants = {"retries": retries, "backoff_s": backoff_s, "max_backoff_s": max_backoff_s}
    return cast(type[JudgeConfig], type("HastyJudge", (JudgeConfig,), constants))


class StubClient:
    """Answers as told and counts."""

    def __init__(self, reply: Callable[[str], str], digest: str = "digest") -> None:
        self.reply, self.digest = reply, digest
        self.asked: list[str] = []
        self.released = 0

    def ask(self, prompt: str) -> Reply:
        self.asked.append(prompt)
        return Reply(self.reply(prompt))

    def identify(self) -> str:
        return self.digest

    def release(self) -> None:
        self.released += 1


def make_llm(
    client: StubClient, cache: VerdictCache | None = None, sleep: Callable[[float], None] | None = lambda seconds: None, **settings: Any
) -> LlmJudge:
    constants = {name: settings.pop(name) for name in ("retries", "backoff_s", "max_backoff_s") if name in settings}
    return LlmJudge(client, hasty_judge(**{"backoff_s": 1.0, **constants})(kind="ollama", model="m", **settings), cache, sleep)
