"""Which episodes a page carries, and that their texts come through whole."""

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.foreign import visible
from slmsearch.report.page.browse import Texts, choose_episodes, name_groups, shorten, to_script_json
from slmsearch.report.page.results import AFTER, BEFORE
from tests.slmsearch.report.page.synthetic import make_run

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


def test_flipped_questions_are_in_their_groups_and_come_with_the_other_side() -> None:
    run = make_run(60)
    named = name_groups(run)
    before = {row.question_id: row.correct for row in run.evaluations[BEFORE].rows}
    gained = {i for i, row in enumerate(run.evaluations[AFTER].rows) if row.correct > before[row.question_id]}
    assert gained == {i for (policy, i), groups in named.items() if policy == AFTER and "gained" in groups}
    chosen = choose_episodes([run], 30)
    assert len(chosen) == 30
    for trained, untrained in (chosen[:2], chosen[2:4]):
        assert (trained.policy, untrained.policy) == (AFTER, BEFORE)
        assert trained.row.question_id == untrained.row.question_id
        assert trained.groups


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
