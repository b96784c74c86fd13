"""Headings that name an action become questions on how it is done."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.pages import Page
from slmsearch.made_questions.how_to import HOW_TO, MAX_ANSWER_WORDS, find_action, find_verbs, make_how_tos
from slmsearch.made_questions.make import Filters, excerpts_of, make_questions
from tests.slmsearch.made_questions.test_make import Library, WordIndex

VERBS = find_verbs(
    [
        "You can use it to change the time. To set the guide, tap it.",
        "Plan to replace this, to run it, and to use it. The use of it ends.",
        "It can bring news.",
    ]
)
PHONE = """# Phone

## Change the ringtone

Open the settings.

1. Tap *Sounds*, and then tap the name of the ringtone that you hear now.
2. Choose another one. It plays once, so that you can change your mind.

```
ringtone --list
```

## Ringtones

The phone has forty ringtones. You can use any sound of your own, too, if it lasts half a minute.
"""


@pytest.mark.parametrize(
    ("heading", "action"),
    [
        ("Using the guide", "use the guide"),
        ("Use the guide", "use the guide"),
        ("4.2 Setting the time", "set the time"),
        ("How to set the time", "set the time"),
        ("How do I set the time?", "set the time"),
        ("I Want to Replace a Battery", "replace a Battery"),
        ("Running it twice", "run it twice"),
        ("Bring it back", "bring it back"),
        ("Using and Setting the guide", None),
        ("The guide", None),
        ("Guide", None),
        ("Buildings of the town", None),
        ("Evening time", None),
        ("", None),
    ],
)
def test_a_heading_names_an_action_if_it_begins_with_a_verb_of_the_corpus(heading: str, action: str | None) -> None:
    assert find_action(heading, VERBS) == action


@given(st.text(max_size=80))
def test_any_heading_names_an_action_of_a_known_verb_or_none(heading: str) -> None:
    action = find_action(heading, VERBS)
    assert action is None or VERBS[action.split()[0]] > 0


def test_a_word_behind_an_article_is_no_verb() -> None:
    assert find_verbs(["to guide me", "the guide and a guide", "to use the tap", "It can also be"]) == Counter(use=1)


def test_the_steps_of_a_section_are_the_answer() -> None:
    library = Library([Page("phone", "Phone", PHONE)])
    made = make_questions(Filters(library, WordIndex(library), 3), 0)
    (row,) = (row for row in made.rows if row["kind"] == HOW_TO)
    assert "change the ringtone" in str(row["question"]) and row["section_ids"] == ["phone:change_the_ringtone"]
    assert str(row["answer"]).startswith("Open the settings.\n\n1. Tap *Sounds*,") and str(row["answer"]).endswith("ringtone --list\n```")


def test_a_long_section_answers_with_its_first_paragraphs() -> None:
    text = "# Use the phone\n\n" + "\n\n".join(f"Paragraph {number} " + "says a little. " * 10 for number in range(9))
    page = Page("p", "Use the phone", text)
    (section,) = excerpts_of(page, Library([page]))
    (draft,) = make_how_tos(section, Counter(use=1))
    assert draft.answer.startswith("Paragraph 0 says") and "Paragraph 2" in draft.answer
    assert len(draft.answer.split()) <= MAX_ANSWER_WORDS


def test_how_to_questions_take_at_most_half_of_a_limit() -> None:
    steps = "You can use it to change all of it: open the settings, tap the name of the thing, and choose {} there."
    pages = [Page(f"p{n}", f"Thing {n}", f"# Change thing {n}\n\n{steps.format(1900 + n)} It was made in {1900 + n}.\n") for n in range(8)]
    library = Library(pages)
    kinds = Counter(row["kind"] for row in make_questions(Filters(library, WordIndex(library), 3, limit=6), 0).rows)
    assert kinds == {HOW_TO: 3, "cloze": 3}
