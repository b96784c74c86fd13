"""Sources of problems - the generator, GSM8K on the Hub, or files in its form - and checks of them.

A problem becomes an ordinary `Question`: gold is the number, `hops` the number of operations, `kind` the source. Problems are stored as a
corpus without pages (`corpus/store.py`), so that digest, splits and all later steps are those of the searcher.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slmsearch.config import PlannerConfig
from slmsearch.corpus.data_report import DataFinding, DataReport, Severity
from slmsearch.corpus.hub import HUB_PREFIX, parse_hub_name
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import read_rows
from slmsearch.corpus.splits import SPLIT_SEED
from slmsearch.environments.planner.numbers import extract_answer, find_numbers, parse_number
from slmsearch.environments.planner.problems import MAX_PROBLEMS, generate_problems
from slmsearch.errors import CorpusError
from slmsearch.keys import file_key

GENERATED = 6000
"""Number of generated problems where `planner.limit` is not set: somewhat fewer than GSM8K has."""
PROBLEMS_VERSION = 2
"""Part of every generated problem set's key; raise it when the generator or the reader changes."""
MAX_SAMPLES = 20
"""Number of ids that a finding names."""
MIN_PER_SPLIT = 30
"""Smallest number of test problems with a meaningful result."""


def problems_parts(config: PlannerConfig) -> dict[str, object] | None:
    """Collect everything that decides the problems of a source; None where that cannot be known."""
    shared = {"version": PROBLEMS_VERSION, "limit": config.limit, "split_seed": SPLIT_SEED}
    if config.problems is None:
        return {"kind": "generated problems", "count": config.limit or GENERATED, "seed": config.seed, **shared, "limit": 0}
    if config.problems.startswith(HUB_PREFIX):
        hub = parse_hub_name(config.problems)
        commit = hub.find_commit()
        split = {"split": hub.split} if hub.split else {}
        return {"kind": "problems", "hub": hub.name, "subset": hub.subset, "commit": commit, **split, **shared} if commit else None
    path = Path(config.problems)
    return {"kind": "problems", "file": file_key(path), "suffix": path.suffix, **shared} if path.is_file() else None


def load_problems(config: PlannerConfig) -> list[Question]:
    """Load problems as configured.

    Raises:
        CorpusError: the source is missing, empty or broken; the message names the row.
    """
    if config.problems is None:
        if config.limit > MAX_PROBLEMS:
            raise CorpusError(f"planner.limit is {config.limit}, and there are only {MAX_PROBLEMS} different problems; set a smaller limit")
        found = list(_generated(config.seed, config.limit or GENERATED))
    else:
        rows = read_rows(config.problems, "planner.problems")
        found = [parse_problem(row, where, number) for number, (row, where) in enumerate(rows)]
    if not found:
        raise CorpusError(f"{config.problems} holds no problem; give rows of question and answer (ending in `#### N`)")
    problems = found[: config.limit or None]
    if len({problem.id for problem in problems}) < len(problems):
        raise CorpusError(f"{config.problems}: two problems have the same id; give each its own, or leave ids out")
    return problems


def parse_problem(row: Mapping[str, Any], where: str, number: int = 0) -> Question:
    """Read a problem in GSM8K's form; the gold answer is extracted from the worked solution.

    Args:
        row: `question`, `answer`, and optionally `id`, `split`, and `final_answer`, which only checks the extracted answer.
        where: file and line, for messages.
        number: the row's number, for an id if it has none.

    Raises:
        CorpusError: a field is missing, the solution has no `#### N`, or `final_answer` differs from it.
    """
    question, worked = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(worked, str) or not question.strip():
        found = ", ".join(f"{name} ({type(row[name]).__name__})" for name in sorted(row, key=str))
        raise CorpusError(f"{where}: a problem needs the texts `question` and `answer`; it holds {found}")
    answer = extract_answer(worked)
    gold = parse_number(answer)
    if answer is None or gold is None:
        raise CorpusError(f"{where}: the answer does not end in `#### N`, N being a number; fix or remove the row")
    stated = row.get("final_answer")
    if stated is not None and parse_number(str(stated)) != gold:
        raise CorpusError(f"{where}: final_answer {stated!r} is not what the solution ends in ({answer}); fix or remove the row")
    steps = worked.count("<<")
    name, split = str(row.get("id") or f"problem-{number}"), row.get("split")
    return Question(id=name, question=question.strip(), answer=answer, hops=steps, kind="gsm8k", split=split)


def _generated(seed: int, count: int) -> Iterator[Question]:
    for number, problem in enumerate(generate_problems(seed, count)):
        yield Question(
            id=f"g{seed}-{number:05d}",
            question=problem.text,
            answer=str(problem.answer),
            hops=problem.operations,
            kind="generated",
            entities=(problem.signature,),
        )


def check_problems(digest: str, problems: Mapping[str, Sequence[Question]]) -> DataReport:
    """Check problems by split."""
    splits_of: defaultdict[str, set[str]] = defaultdict(set)
    for split, members in problems.items():
        for problem in members:
            splits_of[_normalise(problem)].add(split)
    every = [problem for members in problems.values() for problem in members]
    in_two = [p.id for p in every if len(splits_of[_normalise(p)]) > 1]
    num_tests = len(problems.get("test", ()))
    checks: list[tuple[Severity, str, str, str, list[str]]] = [
        ("critical", "the gold answer is no number", "is_number", "answer", [p.id for p in every if parse_number(p.answer) is None]),
        ("critical", "the same problem lies in two splits", "in_one_split", "question", in_two),
        ("warning", "the problem names no number", "names_a_number", "question", [p.id for p in every if not find_numbers(p.question)]),
        ("warning", f"only {num_tests} test problems", "enough", "split", ["test"] if num_tests < MIN_PER_SPLIT else []),
    ]
    found = tuple(
        DataFinding(expectation, "problems", column, severity, len(ids), tuple(ids[:MAX_SAMPLES]), message)
        for severity, message, expectation, column, ids in checks
        if ids
    )
    return DataReport(digest, len(checks), {"problems": len(every)}, found)


def _normalise(problem: Question) -> str:
    return " ".join(problem.question.casefold().split())
