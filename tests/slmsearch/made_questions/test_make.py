"""From pages to questions: filters, counts, repeatability; and what a language model writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import JudgeConfig
from slmsearch.corpus.expectations import question_rows
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.records import parse_question
from slmsearch.corpus.splits import assign_splits
from slmsearch.errors import JudgeError
from slmsearch.judge.clients import ServerError, make_client
from slmsearch.made_questions.cloze import Draft, Excerpt
from slmsearch.made_questions.make import Filters, MadeQuestions, make_questions
from slmsearch.made_questions.written import FORM, BadReplyError, ServedQuestionWriter, parse_generated
from slmsearch.retrieval.hits import Hit
from tests.judge_server import Behaviour, JudgeServer, always_no
from tests.slmsearch.judge.stubs import StubClient, hasty_judge

NAMES = ("Alba", "Brixa", "Cortona", "Delos")
PAGES = [
    Page(
        name.lower(),
        name,
        f"# {name}\n\n{name} is a quiet harbour town.\n\n## History\n\n{name} was founded in {1500 + i}. "
        f"It was burnt down by Admiral {name}son once.\n\n## People\n\n{name} has {200 + i} inhabitants. The mayor was Rosa {name}ini.\n",
    )
    for i, name in enumerate(NAMES)
]


class WordIndex:
    """Ranks pages by shared words, and sections of the best page likewise."""

    key = "words"

    def __init__(self, library: Library) -> None:
        self.library = library

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [self._rank(set(query.lower().replace("?", " ").replace('"', " ").replace(".", " ").split()), top_k) for query in queries]

    def _rank(self, words: set[str], top_k: int) -> list[Hit]:
        hits = []
        for page in self.library.pages():
            scored = [(len(words & set(s.text.lower().replace(".", " ").split())), s.id) for s in self.library.sections(page.id)]
            score, section_id = max(scored)
            hits.append(Hit(page.id, page.title, score + 5 * (page.title.lower() in words), section_id))
        return sorted(hits, key=lambda hit: (-hit.score, hit.page_id))[:top_k]


def make(limit: int = 0, seed: int = 0, generator: ServedQuestionWriter | None = None, pages: Sequence[Page] = PAGES) -> MadeQuestions:
    library = Library(pages)
    return make_questions(Filters(library, WordIndex(library), 3, limit), seed, generator)


def test_questions_are_made_kept_and_counted():
    made = make()
    assert {row["question"]: row["answer"] for row in made.rows}['Which year fills the gap: "Alba was founded in ____."'] == "1500"
    assert sum(made.made.values()) == sum(made.kept.values()) + sum(made.dropped.values())
    assert sum(made.kept.values()) == len(made.rows) > 8
    assert {row["section_ids"][0] for row in made.rows} <= {
        f"{page.id}:{part}" for page in PAGES for part in ("history", "people", page.id)
    }
    assert len({row["id"] for row in made.rows}) == len(made.rows)


def test_the_same_seed_gives_the_same_and_another_does_not():
    assert make(limit=6, seed=1) == make(limit=6, seed=1)
    assert make(limit=6, seed=1).rows != make(limit=6, seed=2).rows
    limited = make(limit=4)
    assert len(limited.rows) == 4
    assert {row["page_ids"][0] for row in limited.rows} == {page.id for page in PAGES}, "every page has its turn"


def test_nothing_is_wrong_with_the_rows_as_validation_counts_it():
    library = Library(PAGES)
    questions = [parse_question(row, "made", library.sections) for row in make().rows]
    split_of = assign_splits(questions, 0)
    wrong = ("missing_pages", "missing_sections", "answer_missing", "leaking", "near_duplicate")
    rows = question_rows([(question, split_of[question.id]) for question in questions if question.id in split_of], library)
    assert len(rows) == len(questions)
    assert [row for row in rows if any(row[name] for name in wrong)] == []


def draft(question: str, answer: str, section: str = "alba:history", kind: str = "cloze") -> Draft:
    return Draft(question, answer, kind, Excerpt("", section.partition(":")[0], "Alba", section, "History"))


def test_each_filter_names_its_reason(monkeypatch: pytest.MonkeyPatch):
    common = [Page(f"p{i}", f"P{i}", f"# P{i}\n\nThe shared word is Common Thing here.") for i in range(20)]
    library = Library([*PAGES, *common])
    filters = Filters(library, WordIndex(library), 1)
    assert filters.reason_against(draft("In which year was Alba founded?", "1500")) is None
    assert filters.reason_against(draft("In which year was Alba founded?", "1501")) == "answer not in its section"
    assert filters.reason_against(draft("Was Alba founded in 1500?", "1500")) == "answer in the question"
    assert filters.reason_against(draft("What is shared?", "Common Thing", "p3:p3")) == "answer in many sections"
    twice = [Page(f"t{i}", f"T{i}", f"# T{i}\n\nThe tide `turn` is at `Noon Bell` every day.") for i in range(2)]
    said = replace(
        draft("When is it?", "Noon Bell", "t1:t1"), place=Excerpt("The tide turn is at Noon Bell every day.", "t1", "T1", "t1:t1", "")
    )
    library = Library([*PAGES, *twice])
    assert Filters(library, WordIndex(library), 1).reason_against(said) == "sentence in several sections"
    question = draft("In which year was Alba founded?", "1500")
    monkeypatch.setattr(filters, "find", lambda drafts: [None] * len(drafts))
    filters.add([question])
    filters.settle()
    assert filters.taken == [question]
    monkeypatch.undo()
    assert filters.reason_against(draft("In which year Alba was founded", "Admiral")) == "near-duplicate"
    assert filters.reason_against(draft("When did Alba begin?", "1500")) == "same answer asked twice of a section"
    found = filters.find(
        [draft("When was brixa founded?", "1500"), draft("Who was the mayor of alba rosa", "1500"), draft("founded alba", "1500")]
    )
    assert found == ["page not among the first 1 hits", "another section is nearer", None]
    assert filters.find([draft("Who was the mayor of alba rosa", "1500", kind="written")]) == [None], "free wording need not be nearest"


def reply(*pairs: tuple[str, str]) -> str:
    return json.dumps({"questions": [{"question": question, "answer": answer} for question, answer in pairs]})


def generator_of(answer: Callable[[str], str], **settings: object) -> tuple[ServedQuestionWriter, StubClient]:
    client = StubClient(answer)
    config = hasty_judge(retries=1, backoff_s=0.0, max_backoff_s=0.0).model_validate({"kind": "ollama", "concurrency": 2, **settings})
    return ServedQuestionWriter(client, config), client


def long_pages() -> list[Page]:
    return [
        Page(p.id, p.title, p.content + "\n## Trade\n\n" + f"{p.title} sold amber to Queen {p.title}issa of the northern isles. " * 3)
        for p in PAGES
    ]


def test_a_model_writes_about_sections_and_its_faults_are_counted():
    def answer(prompt: str) -> str:
        title = json.loads(prompt.strip().rpartition("\n")[2])["title"]
        if title == "Brixa":
            return "Sure! Here are some questions."
        thoughts = '<think>{"questions": []}?</think>\n' if title == "Alba" else ""
        return thoughts + reply((f"To whom did {title} sell amber?", f"Queen {title}issa"), (f"What did {title} sell?", "copper"))

    generator, client = generator_of(answer)
    made = make(generator=generator, pages=long_pages())
    written = [row for row in made.rows if row["kind"] == "written"]
    assert [row["answer"] for row in written] == ["Queen Albaissa", "Queen Cortonaissa", "Queen Delosissa"]
    assert made.faults == {"reply: no JSON": 1}
    assert made.dropped["answer not in its section"] == 3
    assert made.made["written"] == 6 and len(client.asked) == 4, "only sections with enough text"
    assert make(limit=2, generator=generator_of(answer)[0], pages=long_pages()).kept["written"] <= 2


def test_a_server_that_is_down_is_an_error_and_one_lost_reply_is_not():
    def down(prompt: str) -> str:
        raise ServerError("no server; start it", passing=True)

    with pytest.raises(JudgeError, match="start it"):
        make(generator=generator_of(down)[0], pages=long_pages())

    def lost(prompt: str) -> str:
        if '"Alba"' in prompt:
            raise ServerError("lost", passing=False)
        return reply(("Who?", "x"))

    assert make(generator=generator_of(lost)[0], pages=long_pages()).faults == {"no reply": 1}


@pytest.mark.parametrize("kind", ["ollama", "openai"])
def test_servers_are_told_the_form_of_questions(kind: str):
    with JudgeServer(Behaviour(truth=always_no)) as server:
        url = server.url + ("/v1" if kind == "openai" else "")
        make_client(JudgeConfig(kind=kind, base_url=url, model="judge"), FORM).ask("Write.")
        (request,) = server.requests
    if kind == "ollama":
        assert request["format"] == FORM.schema and request["options"]["num_predict"] == FORM.max_tokens
    else:
        assert request["response_format"]["json_schema"] == {"name": "questions", "schema": FORM.schema, "strict": True}
        assert request["max_tokens"] == FORM.max_tokens


def test_replies_are_read_strictly():
    assert parse_generated(reply(("A?", "b."))) == [("A?", "b")]
    assert parse_generated(f"```json\n{reply(('A?', 'b'))}\n```") == [("A?", "b")]
    assert parse_generated('{"questions": []}') == []
    for text in (
        "",
        "[]",
        '{"questions": [["a", "b"]]}',
        reply(("", "b")),
        '{"questions": [], "note": 1}',
        reply(("A?", "b")) + " done",
        "[" * 9999,
    ):
        with pytest.raises(BadReplyError):
            parse_generated(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["questions", "question", "answer", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.text(max_size=200) | json_values.map(json.dumps))
@settings(max_examples=300, deadline=None)
def test_any_reply_is_read_or_refused(text: str):
    try:
        pairs = parse_generated(text)
    except BadReplyError:
        return
    assert all(question and answer for question, answer in pairs)
