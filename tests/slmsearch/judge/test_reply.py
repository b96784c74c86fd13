"""What of a reply counts as a verdict: a table, written before the code that reads it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.judge.exact import cause_of
from slmsearch.judge.reply import BOTH, EMPTY, NEITHER, ONLY_THOUGHTS, Reply, UnparsableReplyError, parse_reply

CUT, IN_THOUGHTS = "cut off after 128 tokens", "cut off after 128 tokens inside its thoughts"
LONG = "The answer to grade gives the year of birth, and the accepted answer the year in which the book was printed."


def thought(text: str, thoughts: str = "Both name the same person.") -> Reply:
    return Reply(text, thoughts, tokens=90)


def cut(text: str, thoughts: str = "") -> Reply:
    return Reply(text, thoughts, cut_off=True, tokens=128)


TABLE: list[tuple[str | Reply, bool | str]] = [
    # As asked for, and plainly.
    ('{"correct": "yes"}', True),
    ('{"correct": "no"}\n', False),
    ("Yes", True),
    ("no.", False),
    ('"YES"', True),
    ("Correct.", True),
    ("Incorrect", False),
    ("Not correct", False),
    ("Correct: no", False),
    # Decorated.
    ("**Yes**", True),
    ("**Verdict:** No", False),
    ("- `no`", False),
    ('```json\n{"correct": "yes"}\n```', True),
    ('```\n{\n  "correct": "no",\n  "reason": "Another year."\n}\n```', False),
    # Other values and further keys.
    ('{"correct": true}', True),
    ('{"correct": "False"}', False),
    ('{"Correct": "Yes"}', True),
    ("{'correct': 'no'}", False),
    ('{"correct": "no", "reason": "It says \\"yes\\", and names two candidates."}', False),
    ('{"reason": "The same person, not another one.", "correct": "yes"}', True),
    ('{"correct": "yes"}\n{"correct": "yes"}', True),
    # With a reason before or after.
    ("No. The correct answer is 1823.", False),
    (f"No.\n\n{LONG}", False),
    ("Yes, both name the same person.", True),
    (f'{{"correct": "no"}}\n{LONG}', False),
    (f"{LONG}\n\nNo", False),
    (f'{LONG} It does not hedge.\n\n```json\n{{"correct": "yes"}}\n```', True),
    # Thoughts, left in the text or set apart.
    ("<think>Is it no? The year is the same.</think>Yes", True),
    ('<think>\nHm, {"correct": "yes"}?\n</think>\n\n{"correct": "no"}', False),
    ('So the names agree.\n</think>\n{"correct": "yes"}', True),
    ('<|channel|>analysis<|message|>Same year.<|end|><|start|>assistant<|channel|>final<|message|>{"correct": "yes"}', True),
    (thought('{"correct": "no"}'), False),
    (thought(""), ONLY_THOUGHTS),
    (thought("", 'I would say {"correct": "yes"}'), ONLY_THOUGHTS),
    ("<think>The names agree, so yes", ONLY_THOUGHTS),
    # Cut off.
    (cut("", "Okay, the user wants me to"), IN_THOUGHTS),
    (cut("<think>\nOkay, the user wants"), IN_THOUGHTS),
    (cut('{"correct": "yes"'), CUT),
    (cut('{"correct": "no", "reason": "The answer'), CUT),
    (cut("Yes"), CUT),
    (cut('{"correct": "yes"}' + " \n" * 50), True),
    # No verdict, or two.
    ("", EMPTY),
    ('{"correct": "unknown"}', NEITHER),
    ('{"correct": "yes"} {"correct": "no"}', BOTH),
    ('{"correct": "yes", "correct": "no"}', BOTH + "|" + NEITHER),
    ('{"correct": "yes", "verdict": "no"}', NEITHER),
    ("Yes and no", NEITHER),
    ("Yes\n\nOn second thought:\n\nNo", BOTH),
    ("Yes, but only partly.", NEITHER),
    ("Yes. That is wrong.", BOTH),
    ("I'm sorry, but I can't help with grading.", NEITHER),
    ("Ja.", NEITHER),
    ("The answer is the same, yes", NEITHER),
    ('The answer tells me to write:\n{"correct": "yes"}\nThis is an instruction to me.', NEITHER),
    ('The answer says {"correct": "yes"} to me.', NEITHER),
    ('[{"correct": "yes"}]', NEITHER),
    ('{"verdict": "no"}', NEITHER),
    ("ye\u017f", NEITHER),
]


@pytest.mark.parametrize(("reply", "expected"), TABLE, ids=lambda value: repr(value)[:40])
def test_a_reply_is_a_verdict_or_says_why_it_is_none(reply: str | Reply, expected: bool | str) -> None:
    reply = Reply(reply) if isinstance(reply, str) else reply
    if isinstance(expected, bool):
        assert parse_reply(reply) is expected
        return
    with pytest.raises(UnparsableReplyError) as refused:
        parse_reply(reply)
    assert cause_of(str(refused.value)).removeprefix("no verdict: ") in expected.split("|")
    seen = (reply.text + reply.thoughts).split()
    assert "\n" not in str(refused.value) and (not seen or seen[0][:5] in str(refused.value)), "it says what was seen"


def test_the_table_holds_the_forms_that_were_promised() -> None:
    assert len(TABLE) >= 45
    assert len({repr(reply) for reply, _ in TABLE}) == len(TABLE)


WORDS = {True: "yes|true|correct", False: "no|false|incorrect|not correct|wrong"}
FRAGMENTS = st.sampled_from(
    ["yes", "no", "true", "not ", "correct", "Correct: ", "wrong", "but ", '{"correct": "yes"}', '{"correct": "no"}', "{", "}",
     '"correct": ', '"yes"', '"no"', "```json", "```", "<think>", "</think>", "**", ". ", ", ", "\n", " ", "because it is so"]
)  # fmt: skip
TEXTS = st.text() | st.text(alphabet='yesno{}":, .`\n[]correctYESNO') | st.lists(FRAGMENTS, max_size=9).map("".join)


@given(TEXTS, st.booleans())
def test_no_text_raises_anything_else_or_is_a_verdict_that_it_does_not_name(text: str, cut_off: bool) -> None:
    reply = Reply(text, cut_off=cut_off)
    try:
        verdict = parse_reply(reply)
    except UnparsableReplyError:
        return
    assert re.search(rf"(?<![a-z])(?:{WORDS[verdict]})(?![a-z])", reply.said, re.IGNORECASE | re.ASCII)
    assert not cut_off or reply.said.endswith("}")


@given(st.lists(FRAGMENTS, max_size=9).map("".join), st.booleans())
def test_two_verdicts_that_contradict_are_none(text: str, right: bool) -> None:
    said = {True: "yes", False: "no"}
    for first, last in ((f"{said[right]}\n", f"\n{said[not right]}"), (f'{{"correct": "{said[right]}"}}\n', f"\n**{said[not right]}**")):
        with pytest.raises(UnparsableReplyError):
            parse_reply(Reply(first + text.replace("<think>", "").replace("</think>", "") + last))


@given(
    st.sampled_from([row for row, expected in TABLE if isinstance(row, str) and row[:1] == "{" and isinstance(expected, bool)]), st.data()
)
def test_the_beginning_of_a_verdict_is_none(text: str, data: st.DataObject) -> None:
    stripped = text.strip().partition("}")[0] + "}"
    begun = stripped[: data.draw(st.integers(0, len(stripped) - 1))]
    with pytest.raises(UnparsableReplyError):
        parse_reply(Reply(begun))


@given(st.booleans(), st.text(alphabet=" \t\r\n", max_size=5), st.text(alphabet=" \t\r\n", max_size=5), st.text())
def test_the_form_asked_for_is_read_whatever_blanks_and_thoughts_are_around(right: bool, before: str, after: str, thoughts: str) -> None:
    text = f"{before}{json.dumps({'correct': 'yes' if right else 'no'})}{after}"
    assert parse_reply(Reply(text)) is right
    assert parse_reply(Reply(f"<think>{thoughts}</think>{text}", thoughts)) is right


def test_deep_and_long_texts_are_read_in_no_time() -> None:
    for text in ("[" * 100_000, '{"a":' * 9_999, "{\n" * 19_000, "yes " * 9_999, '{"correct": "yes"}\n' * 2_000 + "no"):
        with pytest.raises(UnparsableReplyError):
            parse_reply(Reply(text))
