"""What can be wrong with a set of problems, found before anything is played; same form of report as a corpus's validation."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from slmsearch.corpus.expectations import Finding, Severity
from slmsearch.corpus.questions import Question
from slmsearch.planner.numbers import find_numbers, parse_number

MAX_SAMPLES = 20
"""Ids named of one finding."""
MIN_PER_SPLIT = 30
"""Fewer test problems say next to nothing."""


def check_problems(problems: Mapping[str, Sequence[Question]]) -> dict[str, object]:
    """Check problems by split; return `ok` and findings, each with ids."""
    splits_of: defaultdict[str, set[str]] = defaultdict(set)
    for split, members in problems.items():
        for problem in members:
            splits_of[_normalise(problem)].add(split)
    every = [problem for members in problems.values() for problem in members]
    num_tests = len(problems.get("test", ()))
    checks: list[tuple[Severity, str, str, str, list[str]]] = [
        ("critical", "the gold answer is no number", "is_number", "answer", [p.id for p in every if parse_number(p.answer) is None]),
        (
            "critical",
            "the same problem lies in two splits",
            "in_one_split",
            "question",
            [p.id for p in every if len(splits_of[_normalise(p)]) > 1],
        ),
        ("warning", "the problem names no number", "names_a_number", "question", [p.id for p in every if not find_numbers(p.question)]),
        ("warning", f"only {num_tests} test problems", "enough", "split", ["test"] if num_tests < MIN_PER_SPLIT else []),
    ]
    found = [
        Finding(expectation, "problems", column, severity, len(ids), tuple(ids[:MAX_SAMPLES]), message)
        for severity, message, expectation, column, ids in checks
        if ids
    ]
    ok = all(finding.severity != "critical" for finding in found)
    return {"ok": ok, "findings": [asdict(finding) for finding in found], "problems": len(every)}


def _normalise(problem: Question) -> str:
    return " ".join(problem.question.casefold().split())
