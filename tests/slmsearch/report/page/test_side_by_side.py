"""Several runs together: runs over seeds are one line, differences of settings stand beside those of metrics."""

import re
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, stdev

from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import DecisionConfig
from slmsearch.evaluate.compare import compare
from slmsearch.evaluate.store import Evaluation
from slmsearch.report.page.render import render_page
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.report.page.side_by_side import join_seeds, label, side_by_side
from slmsearch.report.tables import Table
from tests.slmsearch.report.page.synthetic import make_evaluation, make_run
from tests.slmsearch.report.page.test_page import parse

OTHER = {"train.learning_rate": "0.5"}


def trained(name: str, seed: int, settings: Mapping[str, str] | None = None, right_frac: float = 0.7, n: int = 40) -> RunResults:
    """A run of its own seed, whose questions and untrained policy are those of all others."""
    run = make_run(n, 12, name, name * 4)
    before, after = run.evaluations[BEFORE], make_evaluation(n, right_frac, 100 + seed, 20)
    chosen = {**(settings or {}), **({"train.seed": str(seed)} if seed else {})}
    found = {BEFORE: compare(before.rows, after.rows, DecisionConfig())}
    return replace(run, evaluations={BEFORE: before, AFTER: after}, comparisons=found, settings=chosen)


def tables(runs: list[RunResults]) -> list[Table]:
    return [block.table for block in side_by_side(runs).blocks if block.table is not None]


def test_seeds_are_one_line_with_mean_and_standard_deviation() -> None:
    seeds = [trained(name, seed) for seed, name in enumerate(("ann", "bob", "cid"))]
    other = trained("dee", 1, OTHER)
    assert [label(line) for line in join_seeds([seeds[0], other, *seeds[1:]])] == ["ann, 3 seeds", "dee"]
    table = tables([*seeds, other])[0]
    cells, single = (dict(zip(table.headers, row, strict=True)) for row in table.rows)
    after = [fmean(row.exact_match for row in run.evaluations[AFTER].rows) for run in seeds]
    changes = [run.compared.difference.mean for run in seeds if run.compared]
    assert cells["run"] == "ann, bob, cid (seeds 0, 1, 2)"
    assert cells["after"] == f"{fmean(after):.3f} ± {stdev(after):.3f}"
    assert cells["change"] == f"{fmean(changes):+.3f} ± {stdev(changes):.3f}"
    assert cells["decision"] == "3 promote" and cells["n"] == "40"
    low, high = (float(end) for end in cells["interval"].strip("[]").split(", "))
    assert low < fmean(changes) < high
    assert other.compared is not None and single["after"] == f"{other.compared.after:.3f}" and single["decision"] == "promote"


def test_two_of_one_seed_stay_apart_and_so_do_other_data_and_unfinished_runs() -> None:
    ann, bob = trained("ann", 0), trained("bob", 1)
    assert len(join_seeds([ann, bob])) == 1
    assert len(join_seeds([ann, bob, trained("again", 1)])) == 3, "something that is no setting differs"
    assert len(join_seeds([ann, replace(bob, lineage={"data_digest": "other"})])) == 2
    assert len(join_seeds([ann, replace(bob, evaluations={BEFORE: bob.evaluations[BEFORE]}, comparisons={})])) == 2


def test_settings_stand_above_metrics_with_paired_differences() -> None:
    ann, dee = trained("ann", 0, right_frac=0.3), trained("dee", 0, OTHER, right_frac=0.95)
    table = tables([ann, dee])[1]
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.headers == ("setting or metric", "ann", "dee", "difference, 95 % interval")
    assert next(iter(rows)) == "train.learning_rate" and rows["train.learning_rate"][1:] == ("0.5", "")
    assert float(rows["train.learning_rate"][0]) > 0, "the default, where nothing was set"
    then, now, told = rows["answer/exact_match"]
    mean, low, high = map(float, re.findall(r"[+-][\d.]+", told))
    assert abs(mean - (float(now) - float(then))) < 0.0011 and 0 < low < mean < high
    assert "episode/turns" not in rows, "what does not differ is left out"
    assert rows["stop/answered"][2] == "-", "no metric of single questions"


def test_other_questions_have_no_paired_difference() -> None:
    table = tables([trained("ann", 0), trained("dee", 0, OTHER, 0.95, n=30)])[1]
    assert {row[3] for row in table.rows} <= {"", "-"}


def test_runs_of_one_setting_alone_differ_in_nothing_and_are_drawn_behind_their_mean() -> None:
    part = side_by_side([trained("ann", 0), trained("bob", 1)])
    assert len([block for block in part.blocks if block.table]) == 1
    (reward,) = [block for block in part.blocks if block.caption.startswith("Mean reward")]
    assert reward.caption == "Mean reward (mean of 10 steps; thin: single seeds)"
    assert reward.chart.count("faint") == 2 and "<title>ann, 2 seeds</title>" in reward.chart


def test_runs_that_left_little_are_shown_with_what_they_have() -> None:
    bare = replace(trained("ann", 0), evaluations={}, comparisons={}, decision="", status="FAILED")
    empty = replace(trained("bob", 0, OTHER), evaluations={BEFORE: Evaluation((), (), {}, {}, 0.0)}, comparisons={}, steps=())
    table, differing = tables([bare, empty, trained("cid", 0)])
    assert [row[9] for row in table.rows] == ["FAILED", "promote", "promote"]
    assert "train.learning_rate" in [row[0] for row in differing.rows]


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30)), min_size=2, max_size=3))
def test_whatever_runs_settings_and_answers_are_called_stays_text(texts: list[tuple[str, str, str]]) -> None:
    plain, odd = [trained("ann", 0, n=4)] * len(texts), []
    for run, (name, setting, answer) in zip(plain, texts, strict=True):
        found = run.evaluations[AFTER]
        rows = (replace(found.rows[0], answer=f"<b>{answer}", question=f"{answer}</script>"), *found.rows[1:])
        odd.append(replace(run, name=f"<i>{name}", settings={f"<u>{setting}": setting}, evaluations={AFTER: replace(found, rows=rows)}))
    reader = parse(render_page(odd, "today"))
    assert not {tag for tag, _ in reader.elements} & {"b", "i", "u", "img"} and len(reader.inside["script"]) == 3
