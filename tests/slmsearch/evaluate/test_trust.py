"""What twins and repeated episodes say: shares by hand, intervals, and that failed rows count nowhere."""

from slmsearch.config import DecisionConfig
from slmsearch.evaluate.trust import SAMPLED, measure_trust
from tests.slmsearch.evaluate.builders import fail, make

CONFIG = DecisionConfig()


def shares(whole, **others):
    found = measure_trust(whole, others, CONFIG)
    return {name: (round(slices["all"].value, 4), slices["all"].n) for name, slices in found.items()}


def of(twin, rights, answers=None):
    answers = answers or ["I don't know" if right == "1" else "x" for right in rights]
    return [
        make(f"q{i}/{twin}", right == "1", kind=twin, answer=answer) for i, (right, answer) in enumerate(zip(rights, answers, strict=True))
    ]


def test_both_right_needs_the_question_and_its_twin():
    whole = [make(f"q{i}", right == "1", answer="1815") for i, right in enumerate("1110")]
    found = shares(whole, withdrawn=of("withdrawn", "1011"), renamed=of("renamed", "1100"))
    assert found["twins/both_right"] == (0.5, 8)
    assert found["twins/unknown_right"] == (0.625, 8)
    assert found["twins/both_right/withdrawn"] == (0.5, 4)
    assert found["twins/both_right/renamed"] == (0.5, 4)
    assert "answer/grounded_frac" not in found


def test_an_answer_is_grounded_where_it_goes_with_the_fact_and_changes_with_it():
    whole = [make(f"q{i}", right == "1", answer="1815") for i, right in enumerate("11110")]
    withdrawn = of("withdrawn", "10010", ["I don't know", "1815", "1900", "I don't know", "x"])
    replaced = of("replaced", "11101", list("abcde"))
    # q0 grounded; q1 remembers; q2 guesses another without the fact, and reads the new one; q3 does not see the new one; q4 was wrong.
    assert shares(whole, withdrawn=withdrawn, replaced=replaced)["answer/grounded_frac"] == (0.5, 4)


def test_a_policy_that_answers_by_heart_is_not_grounded():
    whole = [make(f"q{i}", answer="1815") for i in range(50)]
    by_heart = ["1815"] * 50
    found = measure_trust(whole, {"withdrawn": of("withdrawn", "0" * 50, by_heart), "replaced": of("replaced", "0" * 50, by_heart)}, CONFIG)
    share = found["answer/grounded_frac"]["all"]
    assert share.value == 0 and 0 <= share.low < share.high < 0.1, "the interval is no point where all are alike"


def test_pass_and_majority_at_k():
    said = {"q0": "abb", "q1": "aab", "q2": "abc", "q3": "ccc"}
    rows = [make(name, answer == "a", answer=answer) for name, answers in said.items() for answer in answers]
    found = shares([make(name) for name in said], **{SAMPLED: rows})
    assert found["answer/pass_at_k"] == (0.75, 4)
    assert found["answer/majority_at_k"] == (0.5, 4), "q1, and q2 where the first of equally many counts"


def test_equal_answers_are_those_that_state_the_same():
    said = {"q0": ["3.5", "35", "35"], "q1": ["35", "5 km", "5,000 m"], "q2": ["C", "C++", "c++"]}
    wrong = {"3.5", "C"} | {("q1", "35")}
    rows = [make(name, not {answer, (name, answer)} & wrong, answer=answer) for name, answers in said.items() for answer in answers]
    assert shares([make(name) for name in said], **{SAMPLED: rows})["answer/majority_at_k"] == (1.0, 3)
    whole = [make("q0", answer="3.5"), make("q1", answer="5 %")]
    withdrawn = of("withdrawn", "00", ["35", "5 percent"])
    found = shares(whole, withdrawn=withdrawn, replaced=of("replaced", "11", ["a", "b"]))
    assert found["answer/grounded_frac"] == (0.5, 2), "35 is another answer than 3.5; 5 percent is the same as 5 %"


def test_failed_episodes_count_nowhere_and_slices_stand_beside_all():
    whole = [make("q0", kind="a", hops=1), make("q1", kind="b", hops=2), fail("q2")]
    twins = [make("q0/withdrawn"), fail("q1/withdrawn"), make("q2/withdrawn")]
    found = measure_trust(whole, {"withdrawn": twins, SAMPLED: [make("q0"), fail("q1"), make("q1")]}, CONFIG)
    assert {name: share.n for name, share in found["twins/both_right"].items()} == {"all": 1, "kind=a": 1, "hops=1": 1}
    assert found["answer/pass_at_k"]["all"].n == 1
    assert measure_trust(whole, {"withdrawn": [fail("q0/withdrawn")]}, CONFIG) == {}
