"""A judge's model as a function, for tests that are about the judge and not about servers."""

from collections.abc import Callable

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge.cache import VerdictCache
from slmsearch.judge.llm import LlmJudge

QUESTION = Question("q1", "Who wrote it?", "Ada Lovelace", ("A. Lovelace",))


class StubClient:
    """Answers as told and counts."""

    def __init__(self, reply: Callable[[str], str], digest: str = "digest") -> None:
        self.reply, self.digest = reply, digest
        self.asked: list[str] = []
        self.released = 0

    def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        return self.reply(prompt)

    def identify(self) -> str:
        return self.digest

    def release(self) -> None:
        self.released += 1


def make_llm(
    client: StubClient, cache: VerdictCache | None = None, sleep: Callable[[float], None] | None = lambda seconds: None, **settings: object
) -> LlmJudge:
    return LlmJudge(client, JudgeConfig.model_validate({"kind": "ollama", "model": "m", **settings}), cache, sleep)
