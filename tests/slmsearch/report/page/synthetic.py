"""Made-up runs: as many episodes as a test wants, with texts that try to break a page."""

import random
from dataclasses import replace

from slmsearch.config import DecisionConfig
from slmsearch.environments.searcher.tools import READ, SEARCH
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.compare import compare
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.store import Evaluation
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.training.reports import Collapse, StepReport
from slmsearch.training.samples import SAMPLED_STEPS, SampledEpisode, SampleKind
from tests.slmsearch.evaluate.builders import make

NASTY = (
    "<script>alert(1)</script>",
    '</script><img src="https://example.org/x.png" onerror="alert(2)">',
    "<!-- <script> --> ]]> &lt;b&gt; {{ 7 * 7 }} ${x}",
    "line\u2028separator\u2029paragraph",
    "turned \u202eafter\u202c and \u2067isolated\u2069 \u200f\u05d0\u05d1",
    "lone \ud800 surrogate, nul \x00, bell \x07",
    "x" * 30_000,
)
"""What models and corpora may hold."""
REASONS = (StopReason.ANSWERED, StopReason.ANSWERED, StopReason.ANSWERED, StopReason.MAX_TURNS, StopReason.MALFORMED)


def make_evaluation(n: int, right_frac: float, seed: int, section_chars: int = 1500) -> Evaluation:
    """Make an evaluation of `n` questions, whose sections differ from each other; the first ones hold the nasty texts."""
    chance = random.Random(seed)
    pairs = [_play(i, chance, right_frac, section_chars) for i in range(n)]
    rows = tuple(row for row, _ in pairs)
    return Evaluation(rows, tuple(episode for _, episode in pairs), summarise(rows), summarise_slices(rows), 1.0)


def _play(i: int, chance: random.Random, right_frac: float, section_chars: int) -> tuple[EpisodeRow, Episode]:
    right = chance.random() < right_frac
    nasty = NASTY[i] if i < len(NASTY) else ""
    reason = StopReason.ANSWERED if right else chance.choice(REASONS)
    answer = (f"{1500 + i}" if right else f"wrong {nasty}") if reason is StopReason.ANSWERED else None
    section = f"{nasty} section {i} " + "".join(chance.choices("abcdefghij klmnop", k=section_chars))
    turns = (
        Turn(f'<tool>search_pages("town {i}{nasty}")</tool>', ToolCall(SEARCH, f"town {i}{nasty}"), None,
             ToolResult(f"p{i}: Town {nasty}\n" + "".join(f"p{j}: Town\n" for j in range(9)), True, (f"p{i}",))),
        Turn(f'<tool>read_section("p{i}:history")</tool>', ToolCall(READ, f"p{i}:history"), None,
             ToolResult(section, True, (f"p{i}",), (f"p{i}:history",))),
        Turn(f"<answer>{answer}</answer>" if answer else nasty or "hm", answer=answer),
    )  # fmt: skip
    asked = {
        "kind": ("one_hop", "two_hop")[i % 2],
        "hops": 1 + i % 2,
        "question": f"When was Town {i} founded? {nasty}",
        "gold": f"{1500 + i}",
    }
    measured = {"answer/logprob": -float(i % 5 if right else 3 + i % 5)} if answer else {}
    row = make(f"q{i}", right, **asked, answer=answer, reward=chance.random() + right, stop_reason=reason.value, measured=measured)
    return row, Episode(f"q{i}", turns, reason, (), 0.5, "", 40)


def make_run(n: int = 40, steps: int = 30, name: str = "clever-otter", run_id: str = "a" * 32) -> RunResults:
    """Make a run of a searcher with `n` questions, before and after, and a training with a collapse in its middle."""
    before, after = make_evaluation(n, 0.3, 1), make_evaluation(n, 0.7, 2)
    return RunResults(
        run_id=run_id,
        name=name,
        environment="searcher",
        status="FINISHED",
        started="2026-01-01T00:00:00+00:00",
        evaluations={BEFORE: before, AFTER: after},
        comparisons={BEFORE: compare(before.rows, after.rows, DecisionConfig())},
        decision="promote",
        reason="It rose.",
        steps=[_step(i, steps) for i in range(1, steps + 1)],
        lineage={"train_key": "k" * 20},
    )


def _step(i: int, steps: int) -> StepReport:
    metrics = {
        "reward/mean": i / steps, "answer/correct": i / steps, "loss": 1 / i, "episode/tool_calls": 2 + i / steps,
        "stop/answered": i / steps, "stop/malformed": 1 - i / steps, "stop/failed": 0.0,
    }  # fmt: skip
    collapse = Collapse("entropy", 3.0, 1.5, 1, 1e-4) if i == steps // 2 else None
    pairs = [_play(i - 1, random.Random(i), float(kind is SampleKind.BEST), 1500) for kind in SampleKind]
    samples = tuple(SampledEpisode(kind, *pair) for kind, pair in zip(SampleKind, pairs, strict=True))
    return StepReport(i, metrics, float(i), collapse, samples if i <= SAMPLED_STEPS else ())


def without_training(run: RunResults) -> RunResults:
    """Leave only the first evaluation, as the flow `evaluate` does."""
    return replace(run, evaluations={"evaluate": run.evaluations[BEFORE]}, comparisons={}, steps=(), decision="", reason="")
