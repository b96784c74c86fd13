"""What one question of a batch cannot do to the others."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ContextError
from slmsearch.serving.api import playing
from tests.slmsearch.serving.api.fakes import Control, script
from tests.slmsearch.serving.api.test_service import Client, Make, control, counted, make, run, until

__all__ = ["control", "make"]


class ShortContext(ScriptedSampler):
    def open(self, prompts: Sequence[Any], sampling: Sampling) -> list[tuple[int, ...]]:
        if any("long" in prompt[-1]["content"] for prompt in prompts):
            raise ContextError("the longest prompt has 2000 tokens, and the model's context ends at 1024")
        return super().open(prompts, sampling)


def test_a_question_too_long_for_the_model_is_answered_and_fails_no_other(
    make: Make, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "make_policy_sampler", lambda *_: ShortContext(script))
    control.free = False
    asked = make()

    async def talk() -> list[Any]:
        client = Client(asked)
        flying = [asyncio.create_task(client.ask("Alba?"))]
        await until(lambda: not control.batches.empty())
        flying += [asyncio.create_task(client.ask(text)) for text in ("Brixa?", "a long one?")]
        await until(lambda: len(asked.waiting) == 2)
        control.go.release(2)
        return [reply.json()["slmsearch"] for reply in await asyncio.gather(*flying)]

    answers = [(own["answer"], own["stop_reason"]) for own in run(talk())]
    assert answers == [("1500", "answered"), ("1501", "answered"), (None, "max_tokens")]
    assert len(control.next_batch()) == 1 and len(control.next_batch()) == 2, "they were played together"
    assert counted(asked, "model_restarts_total") == 0
