"""Which episodes a page carries, and that their texts come through whole."""

import json
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.foreign import visible
from slmsearch.report.page.browse import Texts, choose_episodes, name_groups, pack_episodes, pair_sides, shorten, to_script_json
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from tests.slmsearch.report.page.synthetic import make_run, without_training

ANY = st.text(st.characters(exclude_categories=()), max_size=60)


@settings(deadline=None)
@given(ANY)
def test_json_in_a_script_says_the_same_and_ends_nothing(text: str) -> None:
    packed = to_script_json({"text": visible(text)})
    assert not re.search("[<>&\u2028\u2029]", packed)
    assert json.loads(packed) == {"text": visible(text)}
    packed.encode()


@settings(deadline=None)
@given(ANY)
def test_what_hides_is_shown_and_what_is_plain_stays(text: str) -> None:
    shown = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert visible(shown) == shown
    plain = "Żółw, naïve 東京 \n\t 👩‍🚀"
    assert visible(plain) == plain


@settings(deadline=None)
@given(ANY, st.integers(0, 80))
def test_a_cut_text_says_how_much_is_missing(text: str, limit: int) -> None:
    cut = shorten(text, limit)
    if len(text) <= limit:
        assert cut == text
    else:
        assert cut == f"{text[:limit]} … {len(text) - limit} characters more"


def test_a_text_is_kept_once() -> None:
    texts = Texts(10)
    assert [texts.add("a"), texts.add("b"), texts.add("a"), texts.add(None)] == [0, 1, 0, -1]
    assert texts.kept == ["a", "b"]


def right_of(run: RunResults, policy: str) -> dict[str, float]:
    return {row.question_id: row.correct for row in run.evaluations[policy].rows}


def test_lost_questions_come_first_and_with_the_other_side() -> None:
    run = make_run(200)
    before, after = right_of(run, BEFORE), right_of(run, AFTER)
    lost = {question for question in before if before[question] > after[question]}
    chosen = choose_episodes([run], 100)
    assert len(chosen) == 100
    first = chosen[: 2 * min(len(lost), 10)]
    assert {one.row.question_id for one in first} <= lost
    for old, new in zip(chosen[::2], chosen[1::2], strict=True):
        assert (old.policy, new.policy) == (BEFORE, AFTER)
        assert old.row.question_id == new.row.question_id


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True), min_size=1, max_size=4), st.integers(0, 120))
def test_of_a_question_every_run_that_was_asked_it_is_there(asked: list[list[int]], limit: int) -> None:
    """Whatever each run was asked, and whoever has answered: only the last question may be cut, and no episode comes twice."""
    runs = [only(make_run(31, 1), set(numbers)) for numbers in asked]
    chosen = choose_episodes(runs, limit)
    assert len(chosen) == min(limit, 2 * sum(map(len, asked)))
    names = [(one.run, one.policy, one.row.question_id) for one in chosen]
    assert len(set(names)) == len(names)
    whole = list(dict.fromkeys(question for _, _, question in names))[:-1]
    for question in whole:
        expected = {i for i, numbers in enumerate(asked) if int(question[1:]) in numbers}
        assert {(run, policy) for run, policy, one in names if one == question} == {(i, side) for i in expected for side in (BEFORE, AFTER)}


def only(run: RunResults, numbers: set[int]) -> RunResults:
    """Leave some questions of a run."""
    kept = sorted(numbers)
    evaluations = {
        name: replace(found, rows=tuple(found.rows[i] for i in kept), episodes=tuple(found.episodes[i] for i in kept))
        for name, found in run.evaluations.items()
    }
    return replace(run, evaluations=evaluations)


def test_runs_are_compared_with_the_first_and_each_policy_with_its_runs_trained_one() -> None:
    run = make_run(3)
    control = replace(run, evaluations={"random": run.evaluations[BEFORE], **run.evaluations})
    assert pair_sides([control, without_training(run), replace(run, evaluations={})]) == [
        ((0, AFTER), (1, "evaluate")),
        ((0, BEFORE), (0, AFTER)),
        ((0, "random"), (0, AFTER)),
    ]
    chosen = choose_episodes([control], 100)
    assert [one.policy for one in chosen] == [BEFORE, AFTER] * 3 + ["random"] * 3, "what nothing is decided by takes the room that is left"


def test_best_and_worst_are_the_ends_of_the_order() -> None:
    run = make_run(200)
    groups_of, rows = name_groups(run), run.evaluations[AFTER].rows
    named = {group: [rows[i].reward for (policy, i), groups in groups_of.items() if group in groups] for group in ("best", "worst")}
    rewards = sorted(row.reward for row in rows)
    assert sorted(named["worst"]) == rewards[:25]
    assert sorted(named["best"]) == rewards[-25:]


def test_all_episodes_come_where_there_is_room_and_none_twice() -> None:
    chosen = choose_episodes([make_run(20)])
    assert len(chosen) == len({(one.policy, one.row.question_id) for one in chosen}) == 40


def test_a_reward_of_minus_one_is_a_reward() -> None:
    (one, *_) = choose_episodes([make_run(1)])
    packed, _, _ = pack_episodes([replace(one, row=replace(one.row, reward=-1.0))])
    assert json.loads(packed)["episodes"][0]["reward"] == -1.0
