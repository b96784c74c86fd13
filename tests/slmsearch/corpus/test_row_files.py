"""Question files as people have them: SQuAD, HotpotQA, MuSiQue, NQ-open, BEIR and CSV become pages, and questions that name them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.sources import load_source, source_parts
from slmsearch.corpus.store import build_corpus
from slmsearch.errors import CorpusError

LAKE, MILL, FERRY = "Lake Orra lies north of Tarn. ", "The mill of Tarn was built by Ada Quist.", "The ferry belongs to Tarn."
QUIST = "Ada Quist was born in 1871."


def save(path: Path, content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def load(source: str, **settings: Any) -> tuple[dict[str, str], list[Question]]:
    config = CorpusConfig.model_validate({"pages": source, "questions": source, "sections": "paragraphs", **settings})
    pages, questions, _ = load_source(config)
    return {page.id: page.content for page in pages}, questions


def squad(version: str = "1.1", **asked: Any) -> dict[str, Any]:
    qas = [{"id": "a", "question": "Who built the mill?", "answers": [{"text": "Ada Quist", "answer_start": 25}], **asked}]
    return {"version": version, "data": [{"title": "Tarn", "paragraphs": [{"context": LAKE, "qas": []}, {"context": MILL, "qas": qas}]}]}


def hotpot(**fields: Any) -> dict[str, Any]:
    context = [["Quist", [QUIST]], ["Lake Orra", [LAKE]], ["Tarn", [LAKE, MILL]]]
    facts = [["Quist", 0], ["Tarn", 1]]
    asked = {"_id": "h1", "question": "When was the builder of Tarn's mill born?", "answer": "1871", "type": "bridge", "level": "hard"}
    return {**asked, "supporting_facts": facts, "context": context, **fields}


def musique(**fields: Any) -> dict[str, Any]:
    texts = [("Quist", QUIST, True), ("Ferry", FERRY, False), ("Tarn", MILL, True)]
    paragraphs = [{"idx": i, "title": title, "paragraph_text": text, "is_supporting": gold} for i, (title, text, gold) in enumerate(texts)]
    steps = [{"id": 1, "paragraph_support_idx": 2}, {"id": 2, "paragraph_support_idx": 0}]
    asked = {"id": "2hop__1_2", "question": "When was the builder of the mill born?", "answer": "1871", "answer_aliases": ["in 1871"]}
    return {**asked, "paragraphs": paragraphs, "question_decomposition": steps, "answerable": True, **fields}


def beir(folder: Path, judgements: str = "q1\td2\t1\n", **metadata: Any) -> str:
    save(folder / "corpus.jsonl", lines({"_id": "d1", "title": "Lake Orra", "text": LAKE}, {"_id": "d2", "title": "", "text": MILL}))
    save(folder / "queries.jsonl", lines({"_id": "q1", "text": "Who built the mill?", "metadata": metadata}))
    save(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + judgements)
    return str(folder)


def test_squad_as_published(tmp_path: Path) -> None:
    pages, (question,) = load(save(tmp_path / "dev-v1.1.json", squad()))
    assert pages == {"tarn": f"# Tarn\n\n## Section 1\n\n{LAKE.strip()}\n\n## Section 1\n\n{MILL}\n"}
    assert (question.answer, question.page_ids, question.section_ids) == ("Ada Quist", ("tarn",), ("tarn:section_1_2",))


def test_an_impossible_question_of_squad_2_is_unanswerable(tmp_path: Path) -> None:
    impossible = squad("v2.0", answers=[], is_impossible=True, plausible_answers=[{"text": "Ada Quist", "answer_start": 25}])
    _, (question,) = load(save(tmp_path / "dev-v2.0.json", impossible))
    assert (question.answer, question.kind) == (UNKNOWN_ANSWER, "unanswerable")


def as_on_the_hub(row: dict[str, Any]) -> dict[str, Any]:
    context, facts = row["context"], row["supporting_facts"]
    return {
        **{name: value for name, value in row.items() if name != "_id"},
        "id": row["_id"],
        "context": {"title": [title for title, _ in context], "sentences": [sentences for _, sentences in context]},
        "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [number for _, number in facts]},
    }


@pytest.mark.parametrize("form", ["published", "hub"])
def test_hotpotqa_names_both_pages_and_ends_on_the_answer(tmp_path: Path, form: str) -> None:
    row = hotpot() if form == "published" else as_on_the_hub(hotpot())
    source = save(tmp_path / "p.json", [row]) if form == "published" else save(tmp_path / "p.jsonl", lines(row))
    pages, (question,) = load(source)
    assert list(pages) == ["quist", "lake_orra", "tarn"] and pages["tarn"] == f"# Tarn\n\n{LAKE}{MILL}\n"
    assert (question.id, question.kind, question.hops, question.source) == ("h1", "bridge", 2, "hotpotqa")
    assert (question.page_ids, question.section_ids) == (("tarn", "quist"), ("tarn:tarn", "quist:quist"))


def test_yes_and_no_are_a_kind_of_their_own(tmp_path: Path) -> None:
    _, (question,) = load(save(tmp_path / "p.json", [hotpot(answer="yes", type="comparison")]))
    assert (question.kind, question.page_ids) == ("yesno", ("quist", "tarn"))


def test_musique_is_read_in_the_order_of_its_steps(tmp_path: Path) -> None:
    pages, (question, other) = load(save(tmp_path / "p.jsonl", lines(musique(), musique(id="2hop__3_4", answerable=False))))
    assert list(pages) == ["quist", "ferry", "tarn"]
    assert (question.answer, question.aliases, question.kind, question.hops) == ("1871", ("in 1871",), "2hop", 2)
    assert question.section_ids == ("tarn:tarn", "quist:quist")
    assert (other.answer, other.kind) == (UNKNOWN_ANSWER, "unanswerable")


def test_musique_s_form_in_other_hands(tmp_path: Path) -> None:
    row = musique(answer=["1871", "the year 1871"], id="q1")
    del row["question_decomposition"], row["answer_aliases"]
    row["paragraphs"] = [
        {"title": item["title"], "text": item["paragraph_text"], "is_supporting": item["is_supporting"]} for item in row["paragraphs"]
    ]
    _, (question, _) = load(save(tmp_path / "p.json", lines(row, {**row, "id": "q2"})))  # lines, though the suffix says one object
    assert (question.answer, question.aliases, question.hops, question.kind) == ("1871", ("the year 1871",), 2, "plain")
    assert question.page_ids == ("quist", "tarn")


def test_nq_open_has_questions_alone(tmp_path: Path) -> None:
    pages = save(tmp_path / "pages.csv", "id,title,content\ntarn,Tarn,# Tarn\n")
    _, (question,) = load(
        pages, questions=save(tmp_path / "nq.jsonl", lines({"question": "who built it", "answer": ["Ada Quist", "Quist"]}))
    )
    assert (question.answer, question.aliases, question.page_ids) == ("Ada Quist", ("Quist",), ())


def test_a_beir_folder_gives_pages_and_judged_queries(tmp_path: Path) -> None:
    pages, (question,) = load(beir(tmp_path / "set", answer="Ada Quist"))
    assert pages == {"d1": f"# Lake Orra\n\n{LAKE.strip()}\n", "d2": f"# The mill of Tarn was built by\n\n{MILL}\n"}
    assert (question.answer, question.page_ids, question.kind) == ("Ada Quist", ("d2",), "plain")
    _, (question,) = load(beir(tmp_path / "other"))
    assert (question.answer, question.kind) == (MILL, "passage"), "without an answer, the passage is"


def test_documents_of_a_beir_folder_are_alternatives_unless_the_query_has_an_answer(tmp_path: Path) -> None:
    both = "q1\td1\t1\nq1\td2\t2\n"
    _, (question,) = load(beir(tmp_path / "set", both))
    assert (question.answer, question.page_ids, question.hops) == (MILL, ("d2",), 1)
    _, (question,) = load(beir(tmp_path / "needed", both, answer="Ada Quist"))
    assert (set(question.page_ids), question.hops) == ({"d1", "d2"}, 2)


def test_a_beir_folder_whose_splits_share_a_document_has_splits_by_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = beir(tmp_path / "set")
    save(tmp_path / "set/queries.jsonl", lines({"_id": "q1", "text": "Who built the mill?"}, {"_id": 7, "text": "Whose mill?"}))
    save(tmp_path / "set/qrels/validation.tsv", "7\td2\t1\n\n")
    corpus = CorpusConfig.model_validate({"pages": folder, "questions": folder})
    _, questions, splits = load_source(corpus)
    assert {question.id for question in questions} == {"q1", "7"} and not splits
    assert "1 documents are gold in several splits" in caplog.text


def test_a_document_of_a_beir_folder_may_be_its_title_alone(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set")
    save(tmp_path / "set/corpus.jsonl", lines({"_id": "d1", "title": "Lake Orra", "text": ""}, {"_id": "d2", "text": "#mill by Quist"}))
    pages, _ = load(folder)
    assert pages == {"d1": "# Lake Orra\n\n\n", "d2": "# #mill by Quist\n\n #mill by Quist\n"}


def test_a_passage_that_begins_like_a_heading_is_text(tmp_path: Path) -> None:
    row = hotpot(context=[["Quist", ["#MeToo is a movement. ", QUIST]], ["Tarn", [MILL]]])
    _, (question,) = load(save(tmp_path / "p.json", [row]))
    assert len(question.section_ids) == 2


def test_musique_full_keeps_the_answerable_question_of_a_pair(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = [musique(), musique(answerable=False, paragraphs=musique()["paragraphs"][:2])]
    _, (question,) = load(save(tmp_path / "p.jsonl", lines(*pair)))
    assert question.answer == "1871" and "1 unanswerable rows are left out" in caplog.text
    own = [{"id": "q", "question": "When?", "answer": "1871"}, {"id": "q", "question": "Who?", "answer": "", "answerable": False}]
    with pytest.raises(CorpusError, match="occur more than once"):
        load(str(tmp_path / "p.jsonl"), questions=save(tmp_path / "own.jsonl", lines(*own)))


def test_a_first_line_of_judgements_that_is_no_header_is_one_line(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set")
    save(tmp_path / "set/qrels/test.tsv", "q1 d1 1\nq1\td2\t1\n")
    with pytest.raises(CorpusError, match=r"test\.tsv:1: query-id, corpus-id and score are expected, between tabs"):
        load(folder)


def test_a_row_that_names_its_source_keeps_it_and_2wiki_s_sentences_are_told_apart(tmp_path: Path) -> None:
    wiki = hotpot(context=[["Quist", ["A builder.", "Born in 1871."]], ["Tarn", [MILL]]], evidences=[])
    pages, (question,) = load(save(tmp_path / "p.json", [wiki]))
    assert question.source == "2wikimultihopqa" and "A builder. Born in 1871." in pages["quist"]
    _, (question,) = load(save(tmp_path / "own.json", [hotpot(source="mine")]))
    assert question.source == "mine"


def test_a_changed_judgement_changes_the_corpus(tmp_path: Path) -> None:
    def key() -> object:
        return (source_parts(CorpusConfig(pages=str(tmp_path / "set"), questions=str(tmp_path / "set"))) or {})["sources"]

    beir(tmp_path / "set")
    before = key()
    beir(tmp_path / "set", "q1\td1\t1\n")
    assert key() != before


def test_csv_of_any_delimiter(tmp_path: Path) -> None:
    pages = save(tmp_path / "pages.tsv", "id\ttitle\tcontent\ntarn\tTarn\t# Tarn\n")
    text = '\ufeffquestion;answer;aliases;page_ids;hops;answerable\n"Who; when?";Quist;Ada | A. Quist;tarn;1;\nWhy?;None;;tarn;;FALSE\n'
    _, (question, other) = load(pages, questions=save(tmp_path / "q.csv", text))
    assert question.question == "Who; when?" and question.aliases == ("Ada", "A. Quist") and question.hops == 1
    assert (other.answer, other.kind) == (UNKNOWN_ANSWER, "unanswerable")


def test_the_corpora_are_valid(tmp_path: Path) -> None:
    rows = [
        hotpot(
            _id=f"h{n}",
            question=f"When was builder {n} born?",
            context=[[f"Quist {n}", [QUIST]], [f"Tarn {n}", [MILL]]],
            supporting_facts=[[f"Quist {n}", 0], [f"Tarn {n}", 0]],
        )
        for n in range(40)
    ]
    source = save(tmp_path / "p.json", rows)
    config = CorpusConfig.model_validate({"pages": source, "questions": source, "sections": "paragraphs"})
    report = validate_corpus(tmp_path / build_corpus(config, tmp_path))
    assert report.ok and report.counts["questions"] == 40


BROKEN: dict[str, tuple[str, Any, str]] = {
    "cut off": ("p.json", json.dumps([hotpot()])[:-40], r"p\.json: broken JSON .*is the file whole\?.*HotpotQA's or MuSiQue's list"),
    "nothing": ("p.json", "", r"p\.json: broken JSON"),
    "no comma": ("p.json", '[{"id": "a", "title": "A", "content": "a"} {}]', r"p\.json: broken JSON \(Expecting ',' or '\]'"),
    "another object": ("p.json", {"rows": []}, r"p\.json is not of a known form: a list of rows, .*SQuAD's object with data"),
    "a list of words": ("p.json", ["a"], r"p\.json item 1: a JSON object is expected, not str"),
    "no contexts": ("p.json", [hotpot(context=[])], r"p\.json item 1: a row of HotpotQA without contexts; take the distractor file"),
    "no gold paragraph": (
        "p.json",
        [hotpot(supporting_facts=[["Quist", 0], ["Gone", 0]])],
        r"item 1: the contexts lack the gold paragraph 'Gone'; take the distractor file",
    ),
    "no answer": ("p.json", [hotpot(answer=None)], r"item 1: a row of HotpotQA without an answer; take a file with answers"),
    "two lists": ("p.json", '[{"id": "a", "title": "A", "content": "a"}]\n[]', r"p\.json: broken JSON \(Extra data behind the list"),
    "no answers": (
        "p.json",
        {"data": [{"title": "T", "paragraphs": [{"context": "c", "qas": [{"id": "q", "question": "Q?", "answers": []}]}]}]},
        r"item 1: question 'q' has no answer; take a file with answers",
    ),
    "no paragraphs": ("p.json", [musique(paragraphs=[])], r"p\.json item 1: a row of MuSiQue without paragraphs"),
    "no article": ("p.json", {"data": [{"title": "T", "paragraphs": [{"qas": [{}]}]}]}, r"item 1: no article of SQuAD \(KeyError"),
    "a cell too many": (
        "p.csv",
        "id,title,content\na,b,c,d\n",
        r"p\.csv:2: 3 cells are expected, as in the header; quote cells that hold ','",
    ),
    "a cell too few": ("p.csv", "id,title,content\na,b\n", r"p\.csv:2: 3 cells are expected"),
    "an open quote": ("p.csv", 'id,title,content\na,b,"c\n', r"p\.csv is no readable CSV file in UTF-8 \(unexpected end of data\)"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_one_line(tmp_path: Path, fault: str) -> None:
    name, content, message = BROKEN[fault]
    with pytest.raises(CorpusError, match=message) as raised:
        load(save(tmp_path / name, content))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("judgements", "message"),
    [
        ("q1\td9\t1\n", r"test\.tsv:2: 'd9' is not in corpus\.jsonl; take the judgements that belong to this folder"),
        ("q9\td1\t1\n", r"test\.tsv:2: 'q9' is not in queries\.jsonl"),
        ("q1 d1 1\n", r"test\.tsv:2: query-id, corpus-id and score are expected, between tabs"),
        ("q1\td1\t0\n", r"holds no questions"),
    ],
)
def test_judgements_that_do_not_fit(tmp_path: Path, judgements: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        load(beir(tmp_path / "set", judgements))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["title", "context", "qas", "answers", "paragraphs"]), inner)
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "id",
        "question",
        "answer",
        "title",
        "content",
        "context",
        "answers",
        "supporting_facts",
        "paragraphs",
        "question_decomposition",
        "data",
        "type",
    ]
)


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(st.dictionaries(FIELDS, VALUES, max_size=5), max_size=2), suffix=st.sampled_from([".json", ".jsonl"]))
def test_any_rows_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], suffix: str) -> None:
    path = tmp_path_factory.mktemp("rows") / f"p{suffix}"
    save(path, lines(*rows) if suffix == ".jsonl" else rows)
    try:
        load(str(path))
    except CorpusError as error:
        assert "\n" not in str(error)
