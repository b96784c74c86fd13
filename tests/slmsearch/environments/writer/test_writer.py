"""The question writer: replies, answers to ask for, demonstrations of people's questions, the round trip, and the kinds of questions."""

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig, EvaluateConfig, JudgeConfig, LearnConfig, PathsConfig, RunConfig, SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.environments.writer import trained_writer
from slmsearch.environments.writer.trained_writer import TrainedQuestionWriter, make_question_writer
from slmsearch.environments.writer.writer_environment import WriterEnvironment
from slmsearch.environments.writer.writing import answer_drafts, choose_answers, read_question
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ConfigError
from slmsearch.judge.exact import ExactJudge
from slmsearch.made_questions.cloze import Draft
from slmsearch.made_questions.make import Filters, MadeQuestions, excerpts_of, make_questions
from slmsearch.made_questions.written import ServedQuestionWriter
from slmsearch.sampling import load_sampler
from tests.slmsearch.judge.stubs import StubClient
from tests.slmsearch.made_questions.test_make import WordIndex

NAMES = ("Alba", "Brixa", "Cortona", "Delos")
PAGES = [
    Page(
        name.lower(),
        name,
        f"# {name}\n\n{name} is a quiet harbour town.\n\n## History\n\nThe town was founded in {1500 + i} by Admiral {name}son, who came "
        f"from the south. It was burnt down by the troops of Queen {name}issa in {1700 + i}. It was never taken again.\n",
    )
    for i, name in enumerate(NAMES)
]
LIBRARY = Library(PAGES)
CONFIG = SearcherConfig()


class Writer:
    """Script of a model that writes questions and answers them: it numbers its questions, and remembers the answers."""

    def __init__(self, *bad: str, misread: str = "") -> None:
        self.bad, self.misread = list(bad), misread
        self.answers: dict[str, str] = {}
        self.tasks: list[str] = []

    def __call__(self, content: str, results: list[str]) -> str:
        task, _, asked = content.rpartition("\n\n")
        if not asked.startswith("Answer: "):
            answer = self.answers[asked]
            return f"<answer>{'something else' if answer == self.misread else f'the {answer}'}</answer>"
        self.tasks.append(content)
        if self.bad:
            return self.bad.pop()
        question = f"What is number{len(self.answers)} of {task.partition(chr(10))[0]}"
        self.answers[question] = asked.removeprefix("Answer: ")
        return question


def make(
    script: Writer, kinds: Literal["written", "both"] = "written", limit: int = 0, library: Library = LIBRARY, **options: Any
) -> MadeQuestions:
    sampler, filters = ScriptedSampler(script), Filters(library, WordIndex(library), 3, limit)

    def reader(drafts: Sequence[Draft]) -> list[str | None]:
        return answer_drafts(drafts, sampler, CONFIG)

    writer = TrainedQuestionWriter(sampler, CONFIG, EvaluateConfig().batch_size, reader, **options)
    return make_questions(filters, 0, writer, kinds=kinds)


def test_questions_that_pass_the_round_trip_are_kept_and_all_drafts_counted() -> None:
    bad = ("too short", '<tool>search_pages("x")</tool> or what')
    made = make(script := Writer(*bad))
    assert made.made == made.kept, "all of them pass"
    misread = list(script.answers.values())[-1]
    made = make(script := Writer(*bad, misread=misread))
    assert {row["kind"] for row in made.rows} == {"written"} and made.faults == {"reply: malformed": 2}
    assert made.dropped == {"the reader answers otherwise": 1}
    assert made.made == {"written": len(script.tasks) - 2} and made.kept["written"] == len(made.rows) == len(script.tasks) - 3
    assert {(row["question"], row["answer"]) for row in made.rows} == {pair for pair in script.answers.items() if pair[1] != misread}
    assert {row["section_ids"][0] for row in made.rows} == {f"{page.id}:history" for page in PAGES}, "other sections are too short"
    assert all(task.startswith(task.split()[0] + "\nThe town was founded in") for task in script.tasks)
    assert make(Writer(*bad, misread=misread)) == made and make(Writer(*bad, misread=misread), seed=1) != made


def test_a_reader_that_answers_without_tags_is_read() -> None:
    place = next(excerpts_of(PAGES[0], LIBRARY))
    drafts = [Draft("Who came from the south?", "Admiral Albason", "written", place)]
    for reply in ("Admiral Albason", "<answer>Admiral Albason</answer>"):
        assert answer_drafts(drafts, ScriptedSampler(lambda content, results, reply=reply: reply), CONFIG) == ["Admiral Albason"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Who was Queen Brixaissa of Brixa", "answer in the question"),
        ("Who burnt it down, far away", "page not among the first 1 hits"),
    ],
)
def test_a_question_that_tells_or_does_not_find_is_dropped(reply: str, reason: str) -> None:
    filters = Filters(LIBRARY, WordIndex(LIBRARY), 1)
    (place,) = [excerpt for excerpt in excerpts_of(PAGES[1], LIBRARY) if excerpt.heading == "History"]
    filters.add([Draft(reply, "Queen Brixaissa", "written", place)])
    filters.settle()
    assert dict(filters.dropped) == {reason: 1} and not filters.taken


def test_gaps_stand_in_for_written_questions_and_beside_them() -> None:
    both = make(Writer(), "both", limit=12)
    assert both.kept["written"] == 6 and both.kept["cloze"] >= 4
    assert make(Writer(), limit=6).kept == {"written": 6}
    none = make(Writer(*["no"] * 99))
    assert set(none.kept) == {"cloze"} and none.faults["reply: malformed"] > 6
    assert set(make(script := Writer(), ends=0.0).kept) == {"cloze"} and not script.tasks, "no time was left"
    assert set(make_questions(Filters(LIBRARY, WordIndex(LIBRARY), 3), 0).kept) == {"cloze"}


def test_every_page_has_its_turn_before_any_gives_a_second_section() -> None:
    more = "\n## War\n\nIn {1} the fleet of Captain {0}ov sank off the northern rocks. The harbour was closed by Mayor {0}enko for years.\n"
    pages = [replace(page, content=page.content + more.format(page.title, 1800 + i)) for i, page in enumerate(PAGES)]
    made = make(Writer(), limit=12, library=Library(pages))
    assert {row["page_ids"][0] for row in made.rows} == {page.id for page in PAGES} and made.kept == {"written": 12}


def test_the_writer_is_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(policy: Any, tool_role: str) -> ScriptedSampler:
        assert policy.adapter is None and policy.base_url is None
        loaded.append(policy.model)
        return ScriptedSampler(Writer())

    monkeypatch.setattr(load_sampler, "make_sampler", load)
    monkeypatch.setattr(trained_writer, "make_client", lambda config, form: StubClient(lambda prompt: "{}"))

    def writer_of(judge: str = "exact", **options: Any) -> Any:
        loaded.clear()
        return make_question_writer(RunConfig(learn=LearnConfig(**options), judge=JudgeConfig.model_validate({"kind": judge})))

    assert writer_of() is None and writer_of(questions="gaps", writer="w") is None and not loaded
    assert isinstance(writer_of(writer="w"), TrainedQuestionWriter) and loaded == ["w"], "it reads, too"
    assert writer_of(writer="w", reader="r").reader is not None and sorted(loaded) == ["r", "w"]
    served = writer_of("ollama")
    assert isinstance(served, ServedQuestionWriter) and served.reader is None
    assert writer_of("ollama", reader="r").reader is not None and writer_of("ollama", questions="gaps") is None


def test_replies_become_questions_or_nothing() -> None:
    assert read_question("  who wrote\nit ") == "who wrote it"
    assert read_question("<think>Hm.</think>Who wrote it?") == "Who wrote it?"
    for reply in (
        "",
        "Who?",
        "1 2 3 4",
        "who " * 99,
        "<answer>who wrote it</answer>",
        'search_pages("who wrote it")',
        "It was ____ in town",
    ):
        assert read_question(reply) is None


@given(
    st.text(max_size=80) | st.lists(st.sampled_from(["who", "<think>", "</think>", "</tool>", "____", "\n", "é"]), max_size=9).map(" ".join)
)
@settings(max_examples=300, deadline=None)
def test_any_reply_is_one_line_that_is_read_again_as_it_is(reply: str) -> None:
    question = read_question(reply)
    if question is not None:
        assert 0 < len(question) <= 300 and len(question.splitlines()) == 1 and read_question(question) == question


def test_answers_are_spread_over_the_sentences_and_drawn_by_the_seed() -> None:
    (place,) = [excerpt for excerpt in excerpts_of(PAGES[0], LIBRARY) if excerpt.heading == "History"]
    found = {tuple(choose_answers(place, (), seed)) for seed in range(20)}
    assert len(found) > 2 and found == {tuple(choose_answers(place, (), seed)) for seed in range(20)}
    for answers in found:
        assert set(answers) == {"1500", "Admiral Albason", "1700", "Queen Albaissa"}
        assert len({answer in ("1500", "Admiral Albason") for answer in answers[:2]}) == 2, "a sentence each"
    long = replace(place, text="x " * CONFIG.max_section_chars + place.text)
    assert not list(choose_answers(long, (), 0)), "not shown, not asked for"
    assert "Admiral Albason" not in list(choose_answers(replace(place, title="Admiral Albason"), (), 0))


def config_of(tmp_path: Path, rows: Sequence[dict[str, object]]) -> RunConfig:
    pages = [{"id": page.id, "title": page.title, "content": page.content} for page in PAGES]
    for name, written in (("p", pages), ("q", rows)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    corpus = CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl"))
    return RunConfig(environment="writer", corpus=corpus, paths=PathsConfig(data_dir=str(tmp_path / "data")))


def row(question: str, answer: str, *pages: str, **fields: object) -> dict[str, object]:
    return {"id": question, "question": question, "answer": answer, "page_ids": pages, "split": "train", **fields}


def test_people_s_questions_are_demonstrated_where_one_section_states_the_answer(tmp_path: Path) -> None:
    rows = [
        row("who founded the town of alba", "Admiral Albason", "alba"),
        row("When was Brixa burnt?", "1701", "brixa", section_ids=["brixa:history"]),
        row("When was Brixa founded, and Alba?", "1500", "alba", "brixa", hops=2),
        row("What is Alba?", "town", "alba"),
        row("Is Alba quiet?", "yes", "alba"),
        row("Alba?", "1500", "alba"),
        row("Did Admiral Delosson found Delos?", "Admiral Delosson", "delos"),
        row("When was Cortona founded?", "1502", "cortona", split="test"),
    ]
    config = config_of(tmp_path, rows)
    teaching = environment_of(config).teaching(config)
    shown, left_out = teaching.examples("gold")
    assert dict(left_out) == {
        "more than one hop": 1,
        "several sections of the gold page state the answer": 1,
        "no gold section": 1,
        "not a question": 1,
        "the question holds its answer": 1,
    }
    assert [demonstration.turns[0][0] for demonstration in shown] == [
        "who founded the town of alba",
        "<answer>Admiral Albason</answer>",
        "When was Brixa burnt?",
        "<answer>1701</answer>",
    ]
    asked, read = (demonstration.prompt[-1]["content"] for demonstration in shown[:2])
    assert asked.startswith("Alba\nThe town was founded") and asked.endswith("\n\nAnswer: Admiral Albason")
    assert read == asked.removesuffix("Answer: Admiral Albason") + "who founded the town of alba", "both see the same text"
    assert shown[0].prompt[0]["role"] == "system" != shown[0].prompt[-1]["role"]
    bare = config.changed({"searcher.system_prompt": ""})
    assert all(len(demonstration.prompt) == 1 for demonstration in environment_of(bare).teaching(bare).examples("gold")[0])
    assert len(teaching.examples("gold", {"When was Brixa burnt?": None})[0]) == 2  # type: ignore[dict-item]
    assert teaching.start_sources() == ("gold",)
    with pytest.raises(ConfigError, match="no examples from 'plans'"):
        teaching.examples("plans")


def opened() -> Environment:
    environment = copy(environment_of(RunConfig(environment="writer")))
    assert isinstance(environment, WriterEnvironment)
    environment.judge, environment.toolbox = ExactJudge(), Toolbox(LIBRARY, WordIndex(LIBRARY), 1, CONFIG.max_section_chars)
    return environment


def test_an_episode_is_right_if_its_question_passes_the_round_trip() -> None:
    questions = [
        Question("kept", "?", "1500", page_ids=("alba",)),
        Question("misread", "?", "1700", page_ids=("alba",)),
        Question("told", "?", "1501", page_ids=("brixa",)),
        Question("lost", "?", "1702", page_ids=("cortona",)),
        Question("malformed", "?", "1703", page_ids=("delos",)),
        Question("nowhere", "?", "yes", page_ids=("delos",)),
    ]
    script, replies = Writer(misread="1700"), {"1501": "What is 1501 of Brixa", "1702": "Who was there first", "1703": "Why?"}

    def write(content: str, results: list[str]) -> str:
        return replies.get(content.rpartition("Answer: ")[2]) or script(content, results)

    environment = opened()
    episodes = environment.play(questions, ScriptedSampler(write), Sampling(max_new_tokens=99))
    rows = environment.grade(questions, environment.complete(questions, episodes))
    assert [row.correct for row in rows] == [1, 0, 0, 0, 0, 0] == [row.reward for row in rows]
    assert [row.any_hit for row in rows] == [True, True, True, False, False, False]
    assert [row.stop_reason for row in rows] == ["answered"] * 4 + ["malformed", "answered"]
    assert [episode.answer for episode in episodes[:4]] == ["the 1500", "something else", "", ""]
    assert all(not turn.sampled_ids for episode in episodes for turn in episode.turns[1:]), "only its question is trained on"


def test_what_decides_an_episode_is_part_of_its_key() -> None:
    def key_of(**changes: object) -> object:
        return environment_of(RunConfig(environment="writer").changed(changes)).key_parts("index")

    assert key_of() == key_of() == key_of(**{"searcher.reads": "shown"})
    assert key_of() != key_of(**{"searcher.system_prompt": ""}) and key_of() != key_of(**{"retrieval.top_k": 9})
    assert environment_of(RunConfig(environment="writer")).limits.max_turn_tokens == CONFIG.max_turn_tokens
