"""Tables from rows: what stands in the cells."""

from slmsearch.config import DecisionConfig
from slmsearch.evaluate.compare import compare
from slmsearch.report.tables import (
    Table,
    comparison_table,
    describe_comparison,
    escape_markdown,
    failure_mode_table,
    results_table,
    slices_table,
    trust_table,
)
from tests.slmsearch.evaluate.builders import fail, make

BEFORE = [make(f"q{i}", i < 8, kind="one_hop" if i < 30 else "two_hop", hops=1 if i < 30 else 2) for i in range(40)]
AFTER = [make(f"q{i}", i < 36, kind=row.kind, hops=row.hops) for i, row in enumerate(BEFORE)]


def test_results_table() -> None:
    (record,) = results_table({"untrained": [*BEFORE, fail("x")]}).to_records()
    assert (record["policy"], record["n"], record["failed"]) == ("untrained", "40", "1")
    assert (record["typed match"], record["95 % interval"]) == ("20.0", "10.5-34.8")  # Wilson, 8 of 40
    assert record["exact match"] == "20.0"
    assert (record["calls"], record["malformed"], record["sections read"]) == ("2.0", "0.0", "100.0")


def test_results_table_without_anything_graded() -> None:
    (record,) = results_table({"down": [fail("x")]}).to_records()
    assert (record["n"], record["typed match"], record["95 % interval"], record["failed"]) == ("0", "-", "-", "1")
    assert len(results_table({"none": []}).rows) == 1


def test_slices_table() -> None:
    table = slices_table({"before": BEFORE, "after": AFTER})
    assert table.headers == ("slice", "n", "before", "before (exact)", "after", "after (exact)")
    cells = {row[0]: row for row in table.rows}
    assert list(cells) == ["all", "hops=1", "hops=2", "kind=one_hop", "kind=two_hop"]
    assert cells["kind=two_hop"][:3] == ("kind=two_hop", "10", "0.0 (0.0-27.8)")
    assert cells["all"][4].startswith("90.0 (")


def test_slices_that_only_one_policy_has() -> None:
    table = slices_table({"a": [make("q", kind="x", hops=0)], "b": [make("q", kind="y", hops=0)]})
    assert [row[2:] for row in table.rows][1:] == [("100.0 (20.7-100.0)", "100.0", "-", "-"), ("-", "-", "100.0 (20.7-100.0)", "100.0")]


def test_failure_mode_table() -> None:
    rows = [make("a", False, failure_mode="misread"), make("b", False, failure_mode="no_search", kind="two_hop"), make("c"), fail("d")]
    rows += [make("e", False, failure_mode="no_search")]
    assert failure_mode_table(rows) == Table(
        ("broke at", "all", "one_hop", "two_hop"), (("no_search", "2", "1", "1"), ("misread", "1", "1", "0"), ("all", "3", "2", "1"))
    )
    assert failure_mode_table([]).rows == (("all", "0"),)


def test_comparison_in_words_and_as_a_table() -> None:
    found = compare(BEFORE, AFTER, DecisionConfig(min_questions=30))
    table = comparison_table(found)
    assert table.rows[0][:5] == ("all", "40", "0.200", "0.900", "+0.700")
    by_name = {row[0]: row for row in table.rows}
    assert by_name["kind=two_hop"][-3:] == ("-", "", "0.000 -> 0.600")  # ten questions: no veto, so no corrected p-value
    assert by_name["kind=one_hop"][-3] != "-"
    text = describe_comparison(found)
    assert text.startswith("promote: answer/typed_match rose by 0.700")
    assert "28 questions gained, 0 lost" in text
    assert "left out" not in text


def test_both_figures_stand_in_every_table() -> None:
    """Exact match of 5 percent for 5 % is wrong, of 35 for 3.5 right; the verdict goes the other way."""
    before = [make(f"q{i}", True, typed_match=float(i % 4 == 0), correct=float(i % 4 == 0)) for i in range(40)]
    after = [make(f"q{i}", True, exact_match=float(i % 2 == 0)) for i in range(40)]
    first, second = results_table({"a": before, "b": after}).to_records()
    assert [(one["typed match"], one["exact match"]) for one in (first, second)] == [("25.0", "100.0"), ("100.0", "50.0")]
    sliced = slices_table({"a": before, "b": after}).to_records()[0]
    assert (sliced["a"][:4], sliced["a (exact)"], sliced["b"][:5], sliced["b (exact)"]) == ("25.0", "100.0", "100.0", "50.0")
    found = compare(before, after, DecisionConfig(min_questions=30))
    assert (found.decision, found.metric, found.before, found.after) == ("promote", "answer/typed_match", 0.25, 1.0)
    assert (found.exact_before, found.exact_after) == (1.0, 0.5), "by exact match it would be rejected"
    assert {row[-1] for row in comparison_table(found).rows} == {"1.000 -> 0.500"}
    assert "exact match, which decides nothing: 1.000 -> 0.500" in describe_comparison(found)


def test_rouge_l_stands_beside_exact_match_where_gold_answers_are_long() -> None:
    before = [make(f"q{i}", False, source="nq" if i else "", rouge_l=0.25 if i < 2 else None) for i in range(40)]
    after = [make(f"q{i}", False, source="nq" if i else "", rouge_l=0.75 if i < 2 else None) for i in range(40)]
    assert [one["ROUGE-L"] for one in results_table({"a": before, "b": after}).to_records()] == ["25.0", "75.0"]
    table = slices_table({"a": before, "b": after})
    assert table.headers == ("slice", "n", "a", "a (exact)", "a (ROUGE-L)", "b", "b (exact)", "b (ROUGE-L)")
    assert {row[0]: row[7] for row in table.rows} == {"all": "75.0", "hops=1": "75.0", "kind=one_hop": "75.0", "source=nq": "75.0"}
    found = compare(before, after, DecisionConfig(min_questions=30))
    compared = comparison_table(found)
    assert compared.headers[-2:] == ("exact match", "ROUGE-L") and {row[-1] for row in compared.rows} == {"0.250 -> 0.750"}
    assert "ROUGE-L of long answers, which decides nothing: 0.250 -> 0.750." in describe_comparison(found)
    assert "ROUGE-L" not in describe_comparison(compare(BEFORE, AFTER, DecisionConfig(min_questions=30)))


def test_text_lines_up() -> None:
    assert Table(("a", "long"), (("xyz", "1"), ("q", ""))).to_text() == "a    long\n---  ----\nxyz     1\nq"


def test_markdown_is_escaped() -> None:
    table = Table(("policy",), (("a|b\n[x](http://y) <img> `c` two_hop",),))
    assert table.to_markdown().splitlines()[2] == r"| a\|b \[x\](http://y) \<img\> \`c\` two\_hop |"
    assert len(table.to_markdown().splitlines()) == 3
    assert escape_markdown("plain (text), 1.5") == "plain (text), 1.5"


def test_policies_measured_on_other_numbers_have_each_its_own() -> None:
    def part(n: int) -> dict[str, float]:
        return {"value": 0.5, "low": 0.4, "high": 0.6, "n": n}

    told = trust_table({name: {"twins/both_right": {"all": part(475)}, "answer/grounded_frac": {"all": part(n)}} for name, n in
                        (("before", 238), ("after", 475))})  # fmt: skip
    assert [row[1] for row in told.rows] == ["475", "238, 475"]
