"""The parser takes what is a plan, names what is wrong with anything else, and never raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.planner.plan import DIRECT, MAX_SUBPROBLEMS, Fault, Plan, Subproblem, parse_plan, render_plan


def part(name, question="What is 2 plus 3?", depends_on=()):
    return {"id": name, "question": question, "depends_on": list(depends_on)}


def write(parts, combine="#1", decompose=True, **more):
    return json.dumps({"should_decompose": decompose, "subproblems": parts, "combine": combine, **more})


GOOD = write([part(1), part(2, "What is #1 times 4?", [1])], "#2")


def test_a_plan_is_read_and_written_back():
    plan = parse_plan(GOOD).plan
    assert plan == Plan(
        should_decompose=True,
        subproblems=(
            Subproblem(id="1", question="What is 2 plus 3?", depends_on=()),
            Subproblem(id="2", question="What is #1 times 4?", depends_on=("1",)),
        ),
        combine="#2",
    )
    assert parse_plan(render_plan(plan)) == parse_plan(GOOD)
    assert parse_plan(render_plan(DIRECT)).plan == DIRECT
    assert [[p.id for p in wave] for wave in plan.waves()] == [["1"], ["2"]]


def test_prose_around_a_plan_is_counted_and_survived():
    wrapped = f"Sure! Here {{as asked}} is the plan:\n```json\n{GOOD}\n```\nGood luck."
    assert parse_plan(wrapped).plan == parse_plan(GOOD).plan
    assert parse_plan(wrapped).faults == (Fault.PROSE,)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.NO_JSON),
        ("The answer is 42.", Fault.NO_JSON),
        ("{'should_decompose': True}", Fault.BAD_JSON),
        (GOOD[:-1], Fault.BAD_JSON),
        ('{"should_decompose": NaN, "subproblems": [], "combine": ""}', Fault.BAD_JSON),
        ('{"should_decompose": ' + "9" * 9000 + ', "subproblems": [], "combine": ""}', Fault.BAD_JSON),
        ("[" * 50_000, Fault.TOO_LONG),
        ('{"a":' * 3000 + "1" + "}" * 3000, Fault.TOO_DEEP),
        ('{"a":' * 12 + "1" + "}" * 12, Fault.TOO_DEEP),
        (GOOD.replace('"combine"', '"combine": "#1", "combine"'), Fault.DUPLICATE_KEY),
        ("{}", Fault.MISSING_FIELD),
        (write([part(1)], answer=42), Fault.UNKNOWN_FIELD),
        (write([{**part(1), "answer": 5}]), Fault.UNKNOWN_FIELD),
        (write([part(1)], decompose="yes"), Fault.WRONG_TYPE),
        (write([part(1)], combine=7), Fault.WRONG_TYPE),
        (write([part(True)]), Fault.WRONG_TYPE),
        (write([part("a b")]), Fault.WRONG_TYPE),
        (write({"1": part(1)}), Fault.WRONG_TYPE),
        (write([]), Fault.EMPTY),
        (write([part(1, "")]), Fault.EMPTY),
        (write([part(1, "  ")]), Fault.EMPTY),
        (write([part(1)], combine=" "), Fault.EMPTY),
        (write([part(i) for i in range(MAX_SUBPROBLEMS + 1)]), Fault.TOO_MANY),
        (write([part(i) for i in range(200)]), Fault.TOO_MANY),
        (write([part(1, "x" * 601)]), Fault.TOO_LONG),
        (write([part(1), part("1")]), Fault.DUPLICATE_ID),
        (write([part(1, depends_on=[3])]), Fault.UNKNOWN_ID),
        (write([part(1)], combine="#4"), Fault.UNKNOWN_ID),
        (write([part(1), part(2, "What is #1 plus 1?")]), Fault.UNDECLARED),
        (write([part(1), part(2, "4#1 plus 3?", [1])]), Fault.GLUED),
        (write([part(1), part(2), part(3, "#1,#2 plus 5", [1, 2])]), Fault.GLUED),
        (write([part("a"), part("b")], combine="#a#b plus 5"), Fault.GLUED),
        (write([part(1)], combine="#1.5 plus 3"), Fault.GLUED),
        (write([part(1, depends_on=[1])]), Fault.CYCLE),
        (write([part(1, depends_on=[2]), part(2, depends_on=[1])]), Fault.CYCLE),
        (write([part(1)], decompose=False), Fault.CONTRADICTION),
    ],
)
def test_every_fault_is_named_and_leaves_no_plan(text, fault):
    parsed = parse_plan(text)
    assert parsed.plan is None
    assert fault in parsed.faults


def test_a_reference_may_touch_marks_that_join_no_number():
    assert parse_plan(write([part(1), part(2)], "($#1)/#2, or #1-#2. #1.")).faults == ()


@given(st.text() | st.text(alphabet='{}[]",:#0123456789abcdeu\\ \n', max_size=400))
def test_no_text_raises(text):
    parsed = parse_plan(text)
    assert parsed.plan is not None or parsed.faults


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "question", "depends_on", "x"]), inner, max_size=4),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional={"should_decompose": _JSON, "subproblems": _JSON, "combine": _JSON}))
def test_no_json_raises_and_what_is_accepted_can_be_carried_out(values):
    plan = parse_plan(json.dumps(values)).plan
    if plan is not None:
        assert sum(len(wave) for wave in plan.waves()) == len(plan.subproblems)
        assert parse_plan(render_plan(plan)).plan == plan


def test_half_a_surrogate_pair_is_replaced():
    plan = parse_plan(write([part(1, "What is \ud800 plus 1?")])).plan
    assert plan is not None
    plan.subproblems[0].question.encode()
