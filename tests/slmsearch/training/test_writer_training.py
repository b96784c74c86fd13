"""A real architecture learns to ask by the ordinary supervised training, and writes questions for the filters."""

import json
from pathlib import Path

from slmsearch.config import CorpusConfig, LearnConfig, PathsConfig, PolicyConfig, RunConfig, SearcherConfig, SftConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.writer.trained_writer import make_question_writer
from slmsearch.made_questions.make import Filters, make_questions
from slmsearch.training.teach import train_start
from tests.slmsearch.made_questions.test_make import WordIndex

TEXT = "She was born in 1823 in Dunmar by the river. The town gave her a house in 1851 for a poem about Admiral Selund. She left it soon."
PAGES = [Page("mira", "Mira", f"# Mira\n\n{TEXT}\n")]


def test_a_writer_is_taught_and_writes(model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"id": p.id, "title": p.title, "content": p.content}) + "\n" for p in PAGES))
    asked = {"id": "q", "question": "When was Mira born?", "answer": "1823", "page_ids": ["mira"], "split": "train"}
    (tmp_path / "q.jsonl").write_text(json.dumps(asked) + "\n")
    config = RunConfig(
        environment="writer",
        corpus=CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl")),
        paths=PathsConfig(data_dir=str(tmp_path / "data")),
        policy=PolicyConfig(model=str(model_dir), device="cpu"),
        searcher=SearcherConfig(max_turn_tokens=40),
        sft=SftConfig(steps=30, batch_size=2, tokens_per_batch=1024, context_weight=0.0, learning_rate=5e-3),
    )
    facts = train_start(config, ["gold"], tmp_path / "writer")
    assert (facts["source"], facts["episodes"], facts["left_out"]) == ("gold", 2, {})
    config = RunConfig.model_validate({**config.model_dump(), "learn": LearnConfig(writer=str(tmp_path / "writer"))})
    writer, library = make_question_writer(config), Library(PAGES)
    assert writer is not None
    filters = Filters(library, WordIndex(library), 1)
    made = make_questions(filters, 0, writer)
    assert made.made.get("written", 0) + sum(made.faults.values()) == 3, "one for each answer that was asked for"
    again = make_question_writer(config)
    assert make_questions(Filters(library, WordIndex(library), 1), 0, again) == made, "the same seed writes the same"
