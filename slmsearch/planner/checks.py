"""What can be wrong with a set of problems, found before anything is played; same form of report as a corpus's validation."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from slmsearch.corpus.questions import Question
from slmsearch.planner.numbers import find_numbers, parse_number

MAX_SAMPLES = 20
"""Ids named of one finding."""
MIN_PER_SPLIT = 30
"""Fewer test problems say next to nothing."""


def check_problems(problems: Mapping[str, Sequence[Question]]) -> dict[str, Any]:
    """Check problems by split; return `ok` and findings, each with ids.

    Args:
        problems: by split.
    """
    every = [problem for members in problems.values() for problem in members]
    splits_of: defaultdict[str, set[str]] = defaultdict(set)
    for split, members in problems.items():
        for problem in members:
            splits_of[" ".join(problem.question.casefold().split())].add(split)
    no_gold = [p.id for p in every if parse_number(p.answer) is None]
    no_number = [p.id for p in every if not find_numbers(p.question)]
    shared = [p.id for p in every if len(splits_of[" ".join(p.question.casefold().split())]) > 1]
    findings = [
        _finding("critical", "the gold answer is no number", "is_number", "answer", no_gold),
        _finding("critical", "the same problem lies in two splits", "in_one_split", "question", shared),
        _finding("warning", "the problem names no number", "names_a_number", "question", no_number),
    ]
    if len(problems.get("test", ())) < MIN_PER_SPLIT:
        count = len(problems.get("test", ()))
        findings.append({**_finding("warning", f"only {count} test problems", "enough", "split", ["test"]), "failed": 1})
    found = [finding for finding in findings if finding["failed"]]
    return {"ok": all(finding["severity"] != "critical" for finding in found), "findings": found, "problems": len(every)}


def _finding(severity: str, message: str, expectation: str, column: str, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "severity": severity,
        "table": "problems",
        "message": message,
        "expectation": expectation,
        "column": column,
        "failed": len(ids),
        "sample_ids": list(ids[:MAX_SAMPLES]),
    }
