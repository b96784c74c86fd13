"""`slmsearch bench judge`: what becomes of verdicts through a server that breaks, what the cache saves, what a slow judge costs.

The judge is `judge_server.py`, in a process of its own; it knows the truth, and so does the bench. No language model takes part: how
good one is, `slmsearch judge qualify` measures.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from slmsearch.bench.judge_server import FAULTS, Behaviour, hash_truth, serve_apart
from slmsearch.bench.judge_step import CONCURRENCY, VERDICT_S, measure_grpo, measure_plain
from slmsearch.config import JudgeConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge import make_judge
from slmsearch.judge.cache import FILE, VerdictCache
from slmsearch.judge.prompt import render_prompt
from slmsearch.report.judge import describe_timeline, draw_timeline

PARTS = ("faults", "cache", "plain", "grpo")
GRPO_FACTOR = 24
"""Episodes of a GRPO step over those of the plain one, so that it, too, takes some ten seconds."""
FAULT_FRAC = 0.2
TIMEOUT_S, LATE_S, BACKOFF_S = 0.5, 1.0, 0.02

STEPS = ("plain", "grpo")

Say = Callable[[str], None]


def make_items(count: int) -> list[tuple[Question, str]]:
    """Make answers that no rule decides, each to be judged by itself."""
    return [(Question(f"q{i}", f"Which town has number {i}?", f"Town {i}"), f"the town called {i}") for i in range(count)]


def run_judge(config: RunConfig, parts: Sequence[str], judgements: int, cached: int, episodes: int, runs: int, say: Say) -> dict[str, Any]:
    """Measure the parts asked for.

    Args:
        config: the demo's settings.
        parts: of `PARTS`.
        judgements: put to the server that breaks.
        cached: verdicts looked up.
        episodes: of the plain step; the GRPO step has `GRPO_FACTOR` times as many.
        runs: repetitions of everything that is timed.
        say: told what is being done.
    """
    from slmsearch.bench.rollout import describe_machine

    result: dict[str, Any] = {"machine": describe_machine(config), "runs": runs}
    if "faults" in parts:
        result["faults"] = [measure_faults(kind, retries, judgements, say) for kind, retries in (("ollama", 5), ("openai", 1))]
    if "cache" in parts:
        say(f"cache: {cached} verdicts")
        result["cache"] = measure_cache(cached, runs)
    if "plain" in parts:
        say(f"step: {episodes} episodes, a writer that sleeps")
        result["plain"] = measure_plain(episodes, runs)
    if "grpo" in parts:
        say(f"step: {GRPO_FACTOR * episodes} episodes, GRPO")
        result["grpo"] = measure_grpo(config, GRPO_FACTOR * episodes, runs)
    return result


def measure_faults(kind: str, retries: int, judgements: int, say: Say) -> dict[str, Any]:
    """Judge through a server a fifth of whose replies break, and compare every verdict with what the server knows."""
    say(f"faults: {judgements} judgements, {kind}, {retries} retries")
    items = make_items(judgements)
    with TemporaryDirectory(prefix="slmsearch-bench-") as data_dir, serve_apart(Behaviour(fault_frac=FAULT_FRAC, late_s=LATE_S)) as server:
        config = _served(kind, server.url, retries=retries, backoff_s=BACKOFF_S, timeout_s=TIMEOUT_S)
        started = time.perf_counter()
        verdicts = make_judge(config, data_dir).judge(items)
        seconds = time.perf_counter() - started
        stored, counts = VerdictCache(Path(data_dir) / FILE).count(), server.counts()
    known = [hash_truth(render_prompt(*item)) for item in items]
    failed = sum(verdict.correct is None for verdict in verdicts)
    right = sum(verdict.correct is truth for verdict, truth in zip(verdicts, known, strict=True))
    unexplained = sum(verdict.correct is None and not verdict.failure.startswith("judge: ") for verdict in verdicts)
    return {
        "kind": kind,
        "retries": retries,
        "judgements": judgements,
        "right": right,
        "failed": failed,
        "invented": judgements - right - failed + unexplained,
        "stored": stored,
        "expected_failed": judgements * FAULT_FRAC ** (retries + 1),
        "faults": {name: counts[name] for name in FAULTS},
        "seconds": seconds,
    }


def _served(kind: str, url: str, **settings: Any) -> JudgeConfig:
    given = {"kind": kind, "model": "judge", "base_url": url + ("/v1" if kind == "openai" else ""), "concurrency": CONCURRENCY}
    return JudgeConfig.model_validate({**given, **settings})


def measure_cache(cached: int, runs: int) -> dict[str, Any]:
    """Judge everything once, then again with a judge that knows only the file; the server counts what it is asked."""
    items = make_items(cached)
    with TemporaryDirectory(prefix="slmsearch-bench-") as data_dir, serve_apart(Behaviour()) as server:
        config = _served("ollama", server.url)
        started = time.perf_counter()
        first = make_judge(config, data_dir).judge(items)
        first_s, before = time.perf_counter() - started, server.counts()
        passes, agreed = [], 0
        for _ in range(runs):
            started = time.perf_counter()
            again = make_judge(config, data_dir).judge(items)
            passes.append(time.perf_counter() - started)
            agreed += again == first
        after = server.counts()
    return {
        "verdicts": cached,
        "first_s": first_s,
        "first_calls": before["/api/chat"],
        "second_s": {"median": median(passes), "low": min(passes), "high": max(passes)},
        "second_calls": after["/api/chat"] - before["/api/chat"],
        "second_looks_at_the_model": (after["/api/tags"] - before["/api/tags"]) / runs,
        "same": agreed == runs,
    }


def write_timelines(result: dict[str, Any], directory: Path) -> list[str]:
    """Draw the timelines of a result; return the paths of the figures."""
    from slmsearch.report.figures import write_figures

    shapes = [name for name in STEPS if name in result]
    figures = {f"judge-timeline-{name}": draw_timeline(result[name]["timeline"]["overlapped"], CONCURRENCY) for name in shapes}
    return [str(path) for path in write_figures(directory, figures)] if figures else []


def render_judge(result: dict[str, Any]) -> str:
    """Render the result as Markdown."""
    machine = result["machine"]
    lines = [f"{machine['processor']}, {machine['threads']} threads; " + ", ".join(f"{k} {v}" for k, v in machine["versions"].items())]
    if "faults" in result:
        lines += ["", f"through a server that breaks {FAULT_FRAC:.0%} of its replies, {CONCURRENCY} at a time", ""]
        lines += ["| protocol | retries | judgements | right | failed (expected) | invented | broken replies | seconds |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for row in result["faults"]:
            broken = ", ".join(f"{count} {name}" for name, count in row["faults"].items())
            counts = f"{row['judgements']} | {row['right']} | {row['failed']} ({row['expected_failed']:.1f}) | {row['invented']}"
            lines.append(f"| {row['kind']} | {row['retries']} | {counts} | {broken} | {row['seconds']:.0f} |")
    if "cache" in result:
        row = result["cache"]
        again = row["second_s"]
        lines += ["", f"cache: {row['verdicts']} verdicts, first pass {row['first_calls']} calls in {row['first_s']:.1f} s; second pass"]
        lines += [f"{row['second_calls']} calls in {again['median']:.2f} s ({again['low']:.2f}-{again['high']:.2f}), verdicts the same"]
    if any(name in result for name in STEPS):
        lines += _render_steps(result)
    return "\n".join(lines)


def _render_steps(result: dict[str, Any]) -> list[str]:
    head = f"a judge of {1000 * VERDICT_S:.0f} ms a verdict, {CONCURRENCY} at a time; medians of {result['runs']} (lowest to highest)"
    lines = [
        "",
        head,
        "",
        "| step | episodes | asked | judge | step, s | added | waited for the judge, s |",
        "|---|---|---|---|---|---|---|",
    ]
    measured = {name: result[name] for name in STEPS if name in result}
    for name, row in measured.items():
        for side, seconds in row["step_s"].items():
            if added := row["added_frac"].get(side):
                share = f"{added['median']:+.1%} ({added['low']:+.1%} to {added['high']:+.1%}) | {_spread(row['waited_s'][side])}"
            asked = row["asked"] if added else 0
            lines.append(f"| {name} | {row['episodes']} | {asked} | {side} | {_spread(seconds)} | {share if added else ' | '} |")
    for name in measured:
        lines += ["", f"{name} step, overlapped, turn by turn", "", describe_timeline(result[name]["timeline"]["overlapped"])]
    return lines


def _spread(figure: dict[str, float]) -> str:
    return f"{figure['median']:.2f} ({figure['low']:.2f}-{figure['high']:.2f})"
