"""Parts of a page that only some runs have."""

from dataclasses import asdict, replace

from slmsearch.environments.searcher.tools import TOOL_NAMES
from slmsearch.episodes.episode import ToolCall
from slmsearch.evaluate.store import Evaluation
from slmsearch.judge.qualify import JudgeOutcome, JudgeState, Qualification, summarise_qualification
from slmsearch.report.page.results import AFTER
from slmsearch.report.page.sections import ReportPart, run_parts
from tests.slmsearch.evaluate.builders import fail, make
from tests.slmsearch.report.page.synthetic import make_run


def part(run, name: str) -> ReportPart:  # type: ignore[no-untyped-def]
    return next(one for one in run_parts(run) if one.id == name)


def test_a_judge_is_shown_with_its_calibration_and_beside_the_rules() -> None:
    outcomes = tuple(JudgeOutcome(f"c{i}", "alias", i % 2 == 0, i % 2 == 0 or i == 1, False, True) for i in range(20))
    measured = Qualification("sha", "judge-8b", "3", "k", "2026-01-01", outcomes, 0.2, 5.0, 4)
    state = JudgeState(True, "judge-8b passed", summarise_qualification(measured))
    run = make_run(20)
    lenient = replace(run.evaluations[AFTER].rows[0], correct=1.0, exact_match=0.0, typed_match=0.0)
    rows = (lenient, *run.evaluations[AFTER].rows[1:])
    run = replace(run, judge=asdict(state), evaluations={AFTER: replace(run.evaluations[AFTER], rows=rows)})
    calibration, agreement = part(run, "judge").blocks
    assert calibration.table is not None and agreement.table is not None
    assert calibration.caption == "On the calibration set: judge-8b passed"
    assert calibration.table.rows[0][:4] == ("all", "20", "95.0 (76.4-99.1)", "10.0 (1.8-40.4)")
    by_rule = [row[1:5] for row in agreement.table.rows]
    assert by_rule == [(f"{rule} match", "11", "8", "1") for rule in ("typed", "exact")], "one right by verdict alone"


def test_a_judge_that_was_never_measured_says_so() -> None:
    run = replace(make_run(5), judge={"passed": False, "found": "judge-8b has not been measured", "summary": {}})
    assert part(run, "judge").blocks[0].table.rows == (("judge-8b has not been measured",),)  # type: ignore[union-attr]


def test_the_surest_answers_of_every_policy_are_drawn_and_tabulated() -> None:
    chart, table = part(make_run(40), "surest").blocks
    assert "Wrong among the surest answers" in chart.chart and chart.chart.count('<path class="line s') == 2
    assert table.table is not None and [row[0] for row in table.table.rows] == ["before", "after"]
    unranked = {
        name: replace(evaluation, rows=tuple(replace(row, measured={}) for row in evaluation.rows))
        for name, evaluation in make_run(5).evaluations.items()
    }
    assert "surest" not in [one.id for one in run_parts(replace(make_run(5), evaluations=unranked))]


def test_suspects_are_counted_by_policy_and_none_is_said() -> None:
    honest = make_run(5)
    rows = tuple(make(f"q{i}", i > 2, reward=float(i > 2)) for i in range(5))
    evaluations = {name: replace(evaluation, rows=rows) for name, evaluation in honest.evaluations.items()}
    assert part(replace(honest, evaluations=evaluations), "suspects").blocks[0].table.rows[0][0] == "none"  # type: ignore[union-attr]
    paid = (replace(rows[0], reward=0.9), *rows[1:])
    evaluations[AFTER] = replace(evaluations[AFTER], rows=paid)
    table = part(replace(honest, evaluations=evaluations), "suspects").blocks[0].table
    assert table is not None
    assert (table.headers[2:], table.rows[0][2:]) == (("before", "after"), ("0", "1 (20.0 %)"))


def test_names_that_are_no_tool_are_one_column() -> None:
    run = make_run()
    evaluation = run.evaluations[AFTER]
    episodes = [
        replace(episode, turns=(replace(episode.turns[0], call=ToolCall(f"invented_{i}_{'x' * 500}", "a")), *episode.turns[1:]))
        for i, episode in enumerate(evaluation.episodes)
    ]
    shown = replace(run, evaluations={**run.evaluations, AFTER: replace(evaluation, episodes=tuple(episodes))})
    (table,) = (block.table for block in part(shown, "calls").blocks if block.caption == "Calls per episode by tool")
    assert table is not None
    assert set(table.headers) <= {"policy", *TOOL_NAMES, "(no tool)", "of all, unserved"}


def test_where_every_episode_failed_nothing_is_divided_by_nothing() -> None:
    rows = (fail("q1"), fail("q2"))
    run = make_run(2)
    broken = Evaluation(rows, run.evaluations[AFTER].episodes, {}, {}, 0.0)
    shown = run_parts(replace(run, evaluations={AFTER: broken}, comparisons={}))
    assert {"stops", "judge", "suspects"} <= {one.id for one in shown}
