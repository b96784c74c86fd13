"""Models that think judge through Ollama's API: a program that has it stands in, as a process of its own; no such model was run."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slmsearch.config import JudgeConfig
from slmsearch.judge.prompt import MAX_REPLY_TOKENS, THOUGHT_TOKENS, render_prompt
from slmsearch.judge.qualify import Qualification, find_shortfalls, load_cases, qualify
from slmsearch.processes.ports import free_port
from slmsearch.serving.engines.ollama import Ollama
from slmsearch.serving.engines.request import ServeRequest
from slmsearch.serving.engines.supervisor import SupervisorContext, supervise
from tests.slmsearch.judge.stubs import hasty_judge

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the program that stands in for Ollama is a script with a #! line")
CASES = load_cases()
CONCURRENCY = 4
RIGHT = {render_prompt(case.as_question(), case.answer): case.correct for case in CASES}
Measure = Callable[..., tuple[Qualification, int]]


@pytest.fixture
def measure(programs: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Serve a model that replies so and qualify it; return what was found, and how often the model was asked."""
    programs("ollama", "ollama.py")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("FAKE_LIBRARY", "judge:8b=1000")
    monkeypatch.setenv("FAKE_VERDICTS", str(tmp_path / "verdicts.json"))

    def run(thinking: str, replies: dict[str, str], version: str = "0.12.6") -> tuple[Qualification, int]:
        monkeypatch.setenv("FAKE_THINKING", f"judge:8b={thinking}" if thinking else "")
        monkeypatch.setenv("FAKE_VERSION", version)
        (tmp_path / "verdicts.json").write_text(json.dumps(replies), encoding="utf-8")
        request = ServeRequest("judge", "judge:8b", "judge:8b", free_port())
        config: JudgeConfig = hasty_judge(retries=0)(kind="ollama", model="judge:8b", base_url=request.origin, concurrency=CONCURRENCY)
        stop, found = threading.Event(), []

        def use(_endpoint: object) -> None:
            try:
                found.append(qualify(config, tmp_path / "data"))
            finally:
                stop.set()

        supervise(Ollama(), request, SupervisorContext(tmp_path / "serve", lambda line: None, start_s=30), stop, use)
        logs = [path.read_text(errors="replace") for path in (tmp_path / "serve").rglob("*log*") if path.is_file()]
        return found[0], sum(log.count("POST /api/chat") for log in logs)

    return run


def replies(write: Callable[[bool], str], judge: Callable[[bool], bool] = lambda right: right) -> dict[str, str]:
    return {prompt: write(judge(right)) for prompt, right in RIGHT.items()}


def as_asked(right: bool) -> str:
    return json.dumps({"correct": "yes" if right else "no"})


def verdicts(found: Qualification) -> int:
    return sum(outcome.asked for outcome in found.outcomes)


@pytest.mark.parametrize(
    ("thinking", "version", "twice"),
    [("3000", "0.12.6", 0), ("600!", "0.12.6", CONCURRENCY), ("600!", "0.8.0", CONCURRENCY), ("100!", "0.12.6", 0), ("", "0.12.6", 0),
     ("", "0.12.4", CONCURRENCY)],
    ids=["told not to think", "thinks all the same", "server knows no think", "thinks briefly", "does not think", "refuses think: false"],
)  # fmt: skip
def test_a_judge_that_is_right_qualifies_whether_it_thinks_or_not(measure: Measure, thinking: str, version: str, twice: int) -> None:
    found, requests = measure(thinking, replies(as_asked), version)
    assert find_shortfalls(found) == []
    assert verdicts(found) + min(twice, 1) <= requests <= verdicts(found) + twice, "one way of asking is found out once"


@pytest.mark.parametrize(
    "write",
    [
        lambda right: "**Yes**" if right else "**No**",
        lambda right: json.dumps({"correct": right, "reason": "It names the same, not another."}),
        lambda right: f"They were compared.\n\n```json\n{as_asked(right)}\n```",
    ],
    ids=["bold", "boolean and reason", "fenced after a reason"],
)
def test_a_judge_whose_format_is_not_enforced_qualifies_by_what_it_says(measure: Measure, write: Callable[[bool], str]) -> None:
    assert find_shortfalls(measure("600", replies(write))[0]) == []


def test_a_judge_that_thinks_and_is_wrong_is_refused_for_its_verdicts(measure: Measure) -> None:
    shortfalls = find_shortfalls(measure("600!", replies(as_asked, lambda right: True))[0])
    assert "false accepts 98.3% [95.8%, 99.4%] may be above 10%" in shortfalls
    assert not any("without a verdict" in text for text in shortfalls)


def test_a_judge_that_never_stops_thinking_is_reported_with_what_was_seen(measure: Measure) -> None:
    found, requests = measure("9000!", replies(as_asked))
    cause = f"judge: no verdict: cut off after {MAX_REPLY_TOKENS + THOUGHT_TOKENS} tokens inside its thoughts"
    told = find_shortfalls(found)[0]
    assert told.startswith(f"{verdicts(found)} cases without a verdict (") and f"the first: {cause}; seen: 'hm hm" in told
    in_thoughts = sum(outcome.failure.startswith(cause) for outcome in found.outcomes)
    assert f"{in_thoughts} {cause}" in told
    assert in_thoughts + 1 <= requests <= in_thoughts + CONCURRENCY, "each is asked for once, but for those that found it out"
