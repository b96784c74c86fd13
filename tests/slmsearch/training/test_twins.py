"""Twins of questions: what they hide, how they are played, demonstrated, trained on and paid for."""

import re
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import RewardConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question, holds_answer
from slmsearch.corpus.sections import split_sections
from slmsearch.corpus.view import View
from slmsearch.corpus.world import generate_world
from slmsearch.environments.searcher.demonstrations import TitleIndex, demonstrate_gold
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW, Toolbox
from slmsearch.environments.searcher.twins import base_id, find_stating, make_twins, mix_twins
from slmsearch.episodes.episode import ToolCall
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.teaching import select_questions
from slmsearch.errors import ConfigError
from slmsearch.training.rollout_bridge import gate_abstentions
from tests.slmsearch.evaluate.builders import make

WORLD = generate_world(WorldConfig(pages=120, seed=3))
LIBRARY = Library(WORLD.pages)


class HidingIndex(TitleIndex):
    """Does not find pages without a section."""

    def search(self, queries, top_k, *, hidden=()):
        found = super().search(queries, 50)
        gone = [set(names) for names in hidden] or [set()] * len(queries)
        left = [
            [hit for hit in hits if not {section.id for section in LIBRARY.sections(hit.page_id)} <= names]
            for hits, names in zip(found, gone, strict=True)
        ]
        return [hits[:top_k] for hits in left]


TOOLBOX = Toolbox(LIBRARY, HidingIndex(LIBRARY), top_k=3, max_section_chars=1500)
QUESTIONS = list(WORLD.questions)


def everything_seen(question):
    """All that the tools can show of the pages that a question leads through, under its view."""
    pages = dict.fromkeys((*question.page_ids, *(hit.page_id for hit in TOOLBOX.index.search([question.question], 6)[0])))
    sections = [section.id for page_id in pages for section in LIBRARY.sections(page_id)]
    calls = [ToolCall(SEARCH, question.question), *(ToolCall(VIEW, page) for page in pages), *(ToolCall(READ, name) for name in sections)]
    return [result.text for result in TOOLBOX.serve(calls, [question.view] * len(calls))]


def test_where_it_is_withdrawn_no_tool_shows_the_answer():
    twins = make_twins(QUESTIONS, "withdrawn", TOOLBOX)
    of = {question.id: question for question in QUESTIONS}
    assert len(twins) == sum(bool(question.section_ids) and question.answer != UNKNOWN_ANSWER for question in QUESTIONS) > 200
    for twin in twins[:60]:
        original = of[base_id(twin.id)]
        assert twin.answer == UNKNOWN_ANSWER and twin.question == original.question and twin.kind == "withdrawn"
        if original.kind != "count":  # what is counted stands nowhere as a number
            shown = "\n".join(text for text in everything_seen(twin) if not text.startswith("no such"))
            titles = {page.title for page in LIBRARY.pages()}
            assert original.answer in titles or not holds_answer(shown, original.answer), twin.id
        assert TOOLBOX.serve([ToolCall(READ, original.section_ids[-1])], [twin.view])[0].text == "no such section"
        assert TOOLBOX.serve([ToolCall(READ, original.section_ids[-1])])[0].served, "others see the corpus as it is"


def test_where_it_is_replaced_the_tools_show_another_fact():
    twins = make_twins(QUESTIONS, "replaced", TOOLBOX)
    of = {question.id: question for question in QUESTIONS}
    assert len(twins) > 150
    for twin in twins[:60]:
        original, (read,) = of[base_id(twin.id)], TOOLBOX.serve([ToolCall(READ, twin.section_ids[-1])], [twin.view])
        assert holds_answer(read.text, twin.answer) and not holds_answer(read.text, original.answer)
        assert len(twin.answer.split()) == len(original.answer.split())


def test_a_fact_is_replaced_by_another_of_its_kind():
    def kind(text):
        return re.match(r"(?:In )?(?:Which|What) (animal|town|year|prize|company|mountain|colour|instrument)", text)

    of_kind = defaultdict(set)
    for question in QUESTIONS:
        if named := kind(question.question):
            of_kind[named[1]].add(question.answer)
    pairs = [(named[1], twin.answer) for twin in make_twins(QUESTIONS, "replaced", TOOLBOX) if (named := kind(twin.question))]
    assert len(pairs) > 80 and sum(answer in of_kind[name] for name, answer in pairs) > 0.9 * len(pairs)


def test_a_renamed_question_asks_about_a_name_that_stands_nowhere():
    twins = make_twins(QUESTIONS, "renamed", TOOLBOX)
    words = {word.strip(".,'\"()").casefold() for page in WORLD.pages for word in f"{page.title} {page.content}".split()}
    assert len(twins) > 200
    of = {question.id: question for question in QUESTIONS}
    for twin in twins:
        new = set(twin.question.split()) - set(of[base_id(twin.id)].question.split())
        assert len(new) == 1 and new.pop().strip(".,?'s").casefold() not in words


def twin_of(page, question, kind, *others):
    library = Library([page])
    (twin,) = make_twins([question, *others], kind, Toolbox(library, TitleIndex(library), 3, 1500))[:1] or [None]
    return twin, "" if twin is None else "\n".join(section.text for section in twin.view.show(library.sections(page.id)))


@pytest.mark.parametrize(
    ("text", "answer", "others"),
    [
        ("Ann was born in New\nYork.", "New York", ["San Diego"]),
        ("\u65e5\u672c\u306e\u9996\u90fd\u306f\u6771\u4eac\u3067\u3059\u3002", "\u6771\u4eac", ["\u5927\u962a"]),
        ("Ann was born in **New** York.", "New York", ["San Diego"]),
    ],
)
def test_a_replaced_fact_is_replaced_however_it_is_written_or_there_is_no_twin(text, answer, others):
    page = Page("p", "P", f"# P\n\n{text}")
    asked = [
        Question(f"q{n}", "Where was Ann born?", each, page_ids=("p",), section_ids=("p:p",)) for n, each in enumerate([answer, *others])
    ]
    twin, shown = twin_of(page, asked[0], "replaced", *asked[1:])
    assert twin is None if "**" in text else twin.answer == others[0] and others[0] in shown and answer not in shown


def test_what_is_withdrawn_is_not_stated_in_other_words_on_its_page():
    page = Page("c", "Cara", "# Cara\n\nCara Lind (born March 4, 1990) paints.\n\n## Life\n\nBorn on 4 March 1990.\n\n## Work\n\nOils.")
    twin, shown = twin_of(
        page, Question("q", "When was Cara Lind born?", "4 March 1990", page_ids=("c",), section_ids=("c:life",)), "withdrawn"
    )
    assert "1990" not in shown and "Oils." in shown and twin.answer == UNKNOWN_ANSWER


def test_a_hidden_section_is_cut_from_the_section_that_holds_it():
    page = Page("p", "P", "# P\n\nLead.\n\n## Life\n\nOwn.\n\n### Youth\n\nBorn 1823.\n\n## Work\n\nPaints.")
    shown = View(hidden=("p:youth",)).show(split_sections(page))
    assert [section.id for section in shown] == ["p:p", "p:life", "p:work"]
    assert "1823" not in shown[1].text and "Own." in shown[1].text
    assert not View(hidden=tuple(section.id for section in split_sections(page))).show(split_sections(page))


@given(st.text(max_size=40), st.text(min_size=1, max_size=10), st.text(max_size=10))
@settings(max_examples=200, deadline=None)
def test_any_fact_can_be_replaced_in_any_text(text, old, new):
    page = Page("p", "P", f"# P\n\n{text} {old} end")
    for section in View(old=(old, "x" + old), new=new).show(split_sections(page)):
        assert section.page_id == "p"


def test_what_states_an_answer_is_the_gold_section_and_whatever_is_found_that_holds_it():
    question = next(question for question in QUESTIONS if question.kind == "one_hop")
    (found,) = find_stating([question], TOOLBOX)
    assert found[0] == question.section_ids[-1]
    others = [LIBRARY.section(name) for name in found[1:]]
    assert all(other is not None and holds_answer(other.text, question.answer) for other in others)


def test_a_share_of_the_training_questions_is_played_as_twins_the_same_in_every_run():
    questions = select_questions(QUESTIONS, 0)
    mixed = mix_twins(questions, 0.4, TOOLBOX)
    kinds = [question.kind for question in mixed]
    changed = kinds.count("withdrawn") + kinds.count("renamed")
    assert 0.25 * len(questions) < changed < 0.45 * len(questions) and min(kinds.count("withdrawn"), kinds.count("renamed")) > 30
    assert [base_id(question.id) or question.id for question in mixed] == [question.id for question in questions]
    assert mixed == mix_twins(questions, 0.4, TOOLBOX)
    assert mix_twins(questions, 0.0, TOOLBOX) == questions
    assert len(select_questions(mixed, 0)) == len(mixed), "no two have the same text"


@pytest.mark.parametrize("twin", ["withdrawn", "renamed"])
def test_twins_are_demonstrated_by_looking_and_saying_that_it_is_not_there(twin):
    twins = make_twins(QUESTIONS[:40], twin, TOOLBOX)
    shown, left_out = demonstrate_gold(twins, TOOLBOX)
    assert len(shown) == len(twins) and not left_out
    for question, demonstration in zip(twins, shown, strict=True):
        messages = [message for message, _ in demonstration.turns]
        assert messages[0].startswith("<tool>search_pages(") and messages[-1] == f"<answer>{UNKNOWN_ANSWER}</answer>"
        assert len(messages) > 2 or twin == "renamed"
        script = ScriptedSampler(lambda _, results, said=messages: said[len(results)])
        roomy = SearcherConfig(max_turns=12, max_turn_tokens=4000, max_episode_tokens=100_000)
        played = play_episodes([question], script, TOOLBOX, roomy, Sampling(max_new_tokens=4000))
        results = [turn.result.text for turn in played[0].turns if turn.result]
        assert results == [result for _, result in demonstration.turns if result], "the policy is shown what the demonstration shows"


def test_programs_cannot_be_played_on_a_view():
    twin = make_twins(QUESTIONS[:20], "withdrawn", TOOLBOX)[0]
    with pytest.raises(ConfigError, match=r"searcher\.programs"):
        play_episodes([twin], ScriptedSampler(lambda *_: ""), TOOLBOX, SearcherConfig(programs=True), Sampling())


def test_abstaining_is_paid_only_where_nobody_of_the_group_is_right():
    rows = [make(f"q{i}", right=not i) for i in range(4)]
    rows = [replace(row, reward=0.3 if not row.correct else 1.0, reward_parts={"abstained": 0.0 if row.correct else 0.3}) for row in rows]
    beyond = [replace(row, correct=0.0, reward=0.3, reward_parts={"abstained": 0.3}) for row in rows]
    gated = gate_abstentions([*rows, *beyond], 4)
    assert [row.reward for row in gated] == [1.0, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3, 0.3]
    assert [row.reward_parts["abstained"] for row in gated[:4]] == [0.0] * 4


def test_the_gate_changes_no_key_where_nothing_is_paid():
    assert RewardConfig().key_parts() == RewardConfig(abstained_gated=False).key_parts()
    assert RewardConfig(abstained=0.3).key_parts() != RewardConfig(abstained=0.3, abstained_gated=False).key_parts()


def test_a_question_is_stored_and_named_as_before_where_it_has_no_view():
    question = Question("q", "Who?", "she")
    assert "view" not in question.row()
    assert replace(question, view=View(hidden=("a",))).row()["view"] == {"hidden": ("a",), "old": (), "new": ""}
