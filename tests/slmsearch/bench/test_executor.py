"""The bench counts every size and prints one table; how fast it is no test says."""

from slmsearch.bench.executor import SIZES, render_executor, run_executor


def test_every_size_is_measured_and_shown():
    result = run_executor(1)
    assert [row["subproblems"] for row in result["sizes"]] == list(SIZES)
    assert all(row["low_s"] >= result["latency_s"] for row in result["sizes"])
    text = render_executor(result)
    assert len(text.splitlines()) == len(SIZES) + 4 and "spread" in text
