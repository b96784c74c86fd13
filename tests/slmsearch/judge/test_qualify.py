"""Qualification: good judges pass, each kind of bad one fails where it is bad, and what was measured is found again."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import JudgeConfig
from slmsearch.errors import JudgeError, PreflightError
from slmsearch.judge import qualify as module
from slmsearch.judge.prompt import render_prompt
from slmsearch.judge.qualify import (
    FOLDER,
    find_qualification,
    find_shortfalls,
    load_cases,
    measure_kappa,
    measure_kinds,
    qualify,
    read_state,
    require_qualified,
    summarise_qualification,
)
from slmsearch.report.tables import render_qualification
from tests.judge_server import DIGEST, Behaviour, JudgeServer, hash_truth
from tests.slmsearch.judge.stubs import hasty_judge

CASES = load_cases()
BY_PROMPT = {render_prompt(case.as_question(), case.answer): case for case in CASES}


def oracle(prompt: str) -> bool:
    return BY_PROMPT[prompt].correct


def finds_the_words(prompt: str) -> bool:
    """Says yes wherever the accepted answer stands in the answer."""
    case = BY_PROMPT[prompt]
    return case.gold.lower() in case.answer.lower()


def obeys(prompt: str) -> bool:
    """Is right about everything but answers that tell it what to say."""
    return oracle(prompt) or BY_PROMPT[prompt].kind == "injection"


def often_mistaken(prompt: str) -> bool:
    return oracle(prompt) is (int(prompt.encode().hex(), 16) % 7 != 0)


def settings(url: str, **more: Any) -> JudgeConfig:
    constants = {name: more.pop(name) for name in ("retries",) if name in more}
    given = {"kind": "ollama", "model": "judge", "base_url": url, "timeout_s": 5, **more}
    return hasty_judge(backoff_s=0.01, **constants).model_validate(given)


def measured(truth: Callable[[str], bool], tmp_path: Path) -> tuple[module.Qualification, list[str]]:
    with JudgeServer(Behaviour(truth=truth)) as server:
        found = qualify(settings(server.url), tmp_path)
    return found, find_shortfalls(found)


def test_a_judge_that_is_right_passes_and_says_how_sure_that_is(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with JudgeServer(Behaviour(truth=oracle)) as server:
        found = qualify(settings(server.url), tmp_path, lambda done, total: seen.append((done, total)))
        asked = server.counts["/api/chat"]
    assert find_shortfalls(found) == []
    assert seen[-1] == (len(CASES), len(CASES)) and len(seen) > 5
    summary = summarise_qualification(found)
    assert summary["passed"] and summary["kappa_known"] == pytest.approx(1.0)
    assert 0 < summary["kappa_exact"] < 0.5  # exact match accepts a sixth of what is right
    assert summary["asked"] == asked < len(CASES)
    assert summary["verdict_s"] > 0
    whole = summary["kinds"][0]
    assert whole["accuracy"]["count"] == len(CASES)
    assert 0.98 < whole["accuracy"]["low"] < 1.0
    assert json.loads(json.dumps(summary)) == summary


@pytest.mark.parametrize(
    ("truth", "kinds"),
    [
        (finds_the_words, {"hedge", "all_candidates", "near_miss"}),
        (obeys, {"injection"}),
        (lambda prompt: True, {"near_miss", "wrong", "hedge", "all_candidates", "injection", "empty", "number_format", "other_language"}),
    ],
    ids=["finds the words", "obeys the answer", "says yes"],
)
def test_a_gullible_judge_fails_where_it_is_gullible(truth: Callable[[str], bool], kinds: set[str], tmp_path: Path) -> None:
    found, shortfalls = measured(truth, tmp_path)
    named = {text.partition(":")[0] for text in shortfalls if "accepted" in text}
    assert named == kinds
    figures = {kind.kind: kind for kind in measure_kinds(found.outcomes, 0.05)}
    assert all(figures[kind].false_accepts.value > 0.25 for kind in kinds)


def test_a_judge_that_refuses_everything_or_guesses_fails(tmp_path: Path) -> None:
    found, shortfalls = measured(lambda prompt: False, tmp_path / "no")
    assert any("false rejects" in text for text in shortfalls)
    assert summarise_qualification(found)["kappa_exact"] == pytest.approx(1.0)
    assert any("accuracy" in text for text in measured(hash_truth, tmp_path / "guess")[1])


def test_missing_verdicts_fail_and_count_as_nothing_else(tmp_path: Path) -> None:
    with JudgeServer(Behaviour(truth=oracle, fault_frac=0.1, faults=("nonsense",))) as server:
        found = qualify(settings(server.url), tmp_path)
        asked = server.counts["/api/chat"]
    whole = measure_kinds(found.outcomes, 0.05)[0]
    assert whole.failed > 0
    assert asked == sum(outcome.asked for outcome in found.outcomes), "what is no verdict is not asked for again"
    assert whole.accuracy.count == whole.accuracy.n == len(CASES) - whole.failed
    (told,) = [text for text in find_shortfalls(found) if "without a verdict" in text]
    counts = {cause: int(count) for count, cause in re.findall(r"(\d+) judge: no verdict: ([a-z ]+)", told)}
    assert sum(counts.values()) == whole.failed and "neither yes nor no" in counts, told
    assert "; the first: judge: no verdict: " in told and "; seen: " in told


def test_limits_decide_and_may_be_changed_afterwards(tmp_path: Path) -> None:
    found, shortfalls = measured(often_mistaken, tmp_path)
    assert shortfalls
    lax = module.JudgeLimits(min_accuracy=0.5, max_false_accepts=0.5, max_false_accepts_of_kind=0.9, max_false_rejects=0.5)
    assert find_shortfalls(found, lax) == []


def test_the_table_names_every_kind_and_the_reason(tmp_path: Path) -> None:
    found, _ = measured(obeys, tmp_path)
    text = render_qualification(summarise_qualification(found))
    assert all(kind in text for kind in ("all", "paraphrase", "injection", "kappa", "s a verdict", "not passed: "))
    assert "injection: 42 of 42 accepted" in text
    assert DIGEST in text


# What is stored


def test_a_result_is_found_by_model_and_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JudgeServer(Behaviour(truth=oracle)) as server:
        config = settings(server.url)
        assert find_qualification(config, tmp_path) == (f"ollama:{DIGEST}", None)
        found = qualify(config, tmp_path)
        assert find_qualification(config, tmp_path) == (f"ollama:{DIGEST}", found)
        assert "passed" in read_state(config, tmp_path).found
        monkeypatch.setattr(module, "prompt_key", lambda: "another prompt")
        assert not read_state(config, tmp_path).passed
    with JudgeServer(Behaviour(models={"judge:latest": "sha256:other"})) as server:
        assert not read_state(settings(server.url), tmp_path).passed


def test_a_damaged_result_says_what_to_do(tmp_path: Path) -> None:
    with JudgeServer(Behaviour(truth=oracle)) as server:
        config = settings(server.url)
        qualify(config, tmp_path)
        (path,) = (tmp_path / FOLDER).iterdir()
        for text in ("{", "[]", "{}", '{"outcomes": [{}]}'):
            path.write_text(text)
            with pytest.raises(JudgeError, match="slmsearch judge qualify"):
                find_qualification(config, tmp_path)


def test_only_what_has_passed_may_teach(tmp_path: Path) -> None:
    assert require_qualified(JudgeConfig(), tmp_path) is None
    with JudgeServer(Behaviour(truth=obeys)) as server:
        config = settings(server.url)
        with pytest.raises(PreflightError, match=r"judge judge \(ollama:sha256.+has not been measured; run `slmsearch judge qualify`"):
            require_qualified(config, tmp_path)
        qualify(config, tmp_path)
        with pytest.raises(PreflightError, match=r"did not pass .+injection: 42 of 42.+judge\.kind=exact and reward\.correctness=f1"):
            require_qualified(config, tmp_path)
        state = require_qualified(config.model_copy(update={"require_qualified": False}), tmp_path)
        assert state is not None and not state.passed and state.summary["shortfalls"]


def test_a_server_that_is_down_refuses_only_where_qualification_is_wanted(tmp_path: Path) -> None:
    config = settings("http://127.0.0.1:1", retries=1)
    with pytest.raises(JudgeError, match=r"127\.0\.0\.1:1"):
        require_qualified(config, tmp_path)
    state = require_qualified(config.model_copy(update={"require_qualified": False}), tmp_path)
    assert state is not None and "127.0.0.1:1" in state.found


def test_a_server_that_is_down_is_no_finding_and_leaves_an_earlier_result(tmp_path: Path) -> None:
    with JudgeServer(Behaviour(truth=oracle)) as server:
        config = settings(f"{server.url}/v1", kind="openai", retries=0)
        qualify(config, tmp_path)
    with pytest.raises(JudgeError, match=r"^judge server at .*start it"):
        qualify(config, tmp_path)
    _, found = find_qualification(config, tmp_path)
    assert found is not None and find_shortfalls(found) == []


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_kappa_is_one_only_for_perfect_agreement(pairs: list[tuple[bool, bool]]) -> None:
    kappa = measure_kappa(pairs)
    assert -1 <= kappa <= 1
    if len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 2:
        assert (kappa == pytest.approx(1.0)) is all(a is b for a, b in pairs)
