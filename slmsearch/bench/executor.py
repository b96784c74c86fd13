"""`slmsearch bench executor`: do independent subproblems wait for each other? Wall time of k of them beside that of one."""

import platform
import statistics
import sys
import time
from typing import Any

from slmsearch.planner.executor import execute_plans
from slmsearch.planner.plan import Plan, Subproblem
from slmsearch.planner.worker import ConcurrentWorker, Solution, Task

LATENCY_S = 0.05
"""Of the worker: what a server on the same machine may take."""
MAX_RATIO = 1.5
SIZES = (1, 2, 4, 8)


def run_executor(runs: int) -> dict[str, Any]:
    """Time plans of k independent subproblems with a worker that takes 50 ms for each and eight at once.

    Args:
        runs: measured runs of each size, in turns.
    """
    worker = ConcurrentWorker("waiting", _wait, max(SIZES))
    seconds: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(runs + 1):
        for size in SIZES:
            started = time.perf_counter()
            execute_plans([("a problem", _wide(size))], worker)
            seconds[size].append(time.perf_counter() - started)
    measured = {size: values[1:] for size, values in seconds.items()}  # the first run warms up
    one = statistics.median(measured[1])
    sizes = [
        {
            "subproblems": size,
            "median_s": statistics.median(values),
            "low_s": min(values),
            "high_s": max(values),
            "ratio": statistics.median(values) / one,
        }
        for size, values in measured.items()
    ]
    machine = {"processor": platform.processor() or platform.machine(), "python": sys.version.split()[0]}
    return {"latency_s": LATENCY_S, "runs": runs, "limit": MAX_RATIO, "sizes": sizes, "machine": machine}


def render_executor(result: dict[str, Any]) -> str:
    """Write the result as a table."""
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    lines = [f"{machine}; worker of {1000 * result['latency_s']:.0f} ms; median of {result['runs']} runs, spread"]
    lines += ["| independent subproblems | ms | beside one |", "|---|---|---|"]
    for row in result["sizes"]:
        spread = f"{1000 * row['median_s']:.1f} ({1000 * row['low_s']:.1f}-{1000 * row['high_s']:.1f})"
        lines.append(f"| {row['subproblems']} | {spread} | {row['ratio']:.2f} |")
    return "\n".join([*lines, f"limit {result['limit']}"])


def _wait(task: Task) -> Solution:
    time.sleep(LATENCY_S)
    return Solution("1", 1)


def _wide(size: int) -> Plan:
    parts = tuple(Subproblem(id=str(i + 1), question=f"{i} plus 1?", depends_on=()) for i in range(size))
    return Plan(should_decompose=True, subproblems=parts, combine="#1")
