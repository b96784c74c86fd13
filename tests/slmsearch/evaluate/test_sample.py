"""The sample of episodes kept as traces."""

from slmsearch.evaluate.metrics import sample_rows
from tests.slmsearch.evaluate.builders import fail, make

ROWS = [make(f"r{i}") for i in range(90)] + [make(f"w{i}", False, kind="two_hop") for i in range(8)] + [fail("f0"), fail("f1")]


def test_every_stratum_is_shown_and_the_limit_holds() -> None:
    chosen = sample_rows(ROWS, 9, 0)
    assert len(chosen) == 9
    assert chosen == sorted(set(chosen))
    strata = [(ROWS[i].correct, ROWS[i].kind, ROWS[i].stop_reason) for i in chosen]
    counts = {stratum: strata.count(stratum) for stratum in strata}
    assert counts.pop((0.0, "one_hop", "failed")) == 2  # all there are; the rest is shared
    assert sorted(counts.values()) == [3, 4]
    assert set(counts) == {(1.0, "one_hop", "answered"), (0.0, "two_hop", "answered")}


def test_seeded() -> None:
    assert sample_rows(ROWS, 9, 1) == sample_rows(ROWS, 9, 1)
    assert sample_rows(ROWS, 9, 1) != sample_rows(ROWS, 9, 2)


def test_edges() -> None:
    assert sample_rows(ROWS, 0, 0) == []
    assert sample_rows([], 5, 0) == []
    assert sample_rows(ROWS, 1000, 0) == list(range(100))
    assert {sample_rows(ROWS, 1, seed)[0] >= 90 for seed in range(20)} == {True, False}  # no stratum is always first
