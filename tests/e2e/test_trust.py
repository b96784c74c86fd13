"""`slmsearch evaluate --twins --withdraw --samples`: a policy that reads, and one that answers by heart, in real processes."""

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slmsearch.environments.searcher.parsing import render_answer
from tests.e2e.small_world import PATIENCE_SECONDS, SmallWorld, small_world
from tests.loopback import listening

pytestmark = pytest.mark.timeout(4 * PATIENCE_SECONDS)


class ByHeart(BaseHTTPRequestHandler):
    """An OpenAI-compatible model that knows all questions, and reads nothing."""

    answers: dict[str, str]
    seen: ClassVar[list[list[dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": "heart", "object": "model", "created": 0, "owned_by": "test"}]})

    def do_POST(self) -> None:
        self.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"])
        asked = self.seen[-1][-1]["content"]
        message = {"role": "assistant", "content": render_answer(self.answers.get(asked, "Norwick"))}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8}
        self.reply({"id": "1", "object": "chat.completion", "created": 0, "model": "heart", "choices": [choice], "usage": usage})

    def reply(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallWorld]:
    with small_world(tmp_path_factory.mktemp("trust"), forked=True) as made:
        yield made


def evaluate(world: SmallWorld, *words: str, limit: int = 60) -> dict[str, Any]:
    process = world.start(
        "evaluate", "--split", "all", "--limit", str(limit), "--json", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = process.communicate(timeout=2 * PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_policy_that_reads(world: SmallWorld, tmp_path: Path) -> None:
    found = evaluate(world, "--policy", "untrained", "--twins", "--withdraw", "--samples", "3", limit=30)
    assert found["twins"]["n"] > 30 and set(found["twins"]) >= {"both_right", "unknown_right"}
    for share in (found["twins"]["both_right"], found["grounded_frac"], found["pass_at_k"], found["majority_at_k"]):
        assert set(share) == {"value", "low", "high"} and 0 <= share["low"] <= share["value"] <= share["high"] <= 1
    assert found["grounded_frac"]["value"] > 0.6, "tiny-searcher reads"
    assert found["pass_at_k"]["value"] >= found["majority_at_k"]["value"]
    again = evaluate(world, "--policy", "untrained", "--twins", "--withdraw", "--samples", "3", limit=30)
    assert {name: again[name] for name in ("key", "trust")} == {name: found[name] for name in ("key", "trust")}
    plain = evaluate(world, "--policy", "untrained", limit=30)
    assert plain["key"] == found["key"] and "twins" not in plain


def test_a_policy_that_answers_by_heart_is_found_out(world: SmallWorld) -> None:
    ByHeart.answers = {question.question: question.answer for split in world.indexed.questions.values() for question in split}
    with listening(ByHeart) as address:
        found = evaluate(world, "--policy", f"openai:heart@{address}/v1", "--twins", "--withdraw")
    assert found["metrics"]["answer/exact_match"] == 1.0
    assert found["grounded_frac"]["value"] <= 0.05 and found["twins"]["both_right"]["value"] <= 0.05


def test_a_model_is_shown_worked_examples_of_training_questions(world: SmallWorld) -> None:
    known = {question.question: question for split in world.indexed.questions.values() for question in split}
    ByHeart.answers = {text: question.answer for text, question in known.items()}
    with listening(ByHeart) as address:
        plain, shown = (evaluate(world, "--policy", f"openai:heart@{address}/v1", "--shots", shots) for shots in ("0", "2"))
    assert plain["key"] != shown["key"] and shown["metrics"]["answer/exact_match"] == 1.0
    talks = [talk for talk in ByHeart.seen if len(talk) > 2]
    asked = {talk[-1]["content"] for talk in talks}
    ((first, second),) = {tuple(message["content"] for message in talk[:-1] if message["role"] == "user") for talk in talks}
    assert len(asked) >= 50 and not {first, second} & asked
    assert {first, second} <= {question.question for question in world.indexed.questions["train"]}
    assert (known[first].hops, known[second].hops) == (2, 1)
    answered = [message["content"] for message in talks[0] if message["content"].startswith("<answer>")]
    assert answered == [render_answer(known[text].answer) for text in (first, second)]
    assert any(message["role"] == "tool" for message in talks[0])
