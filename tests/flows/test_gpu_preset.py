"""The preset `gpu`: what its comments say, and the questions that it is for; test_presets.py has its memory and its flow."""

from collections import Counter
from pathlib import Path

import pytest

from flows.runtime.settings import load_config, preset_files
from slmsearch.config import CorpusConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import load_source
from slmsearch.corpus.splits import assign_splits
from tests.root import ROOT

DATA = ROOT.parent / "shared" / "data"
PAGES, QUESTIONS = DATA / "human_pages.jsonl", DATA / "human_questions.jsonl"
GPU = load_config([preset_files()["gpu"]], environment={})


def test_it_is_as_long_as_its_comments_say() -> None:
    train, evaluate = GPU.train, GPU.evaluate
    assert (train.steps, train.questions_per_step, train.group_size) == (100, 32, 8)
    assert train.steps * train.questions_per_step * train.group_size == 25_600
    assert train.questions_per_step * train.group_size % train.accumulation == 0
    assert evaluate.batch_size == 256 and 1000 <= evaluate.limit <= 1209 and evaluate.split == "test"
    assert (Path(GPU.policy.model).name, GPU.policy.device, GPU.policy.dtype) == ("smollm2-135m-instruct", "cuda", "bfloat16")
    assert train.vllm.mode == "off" and GPU.sft.start == "gold" and GPU.control.steps > 0


def test_it_plays_as_the_preset_for_two_cores_but_for_room_and_the_second_hop() -> None:
    squad = load_config([preset_files()["squad"]], environment={})
    ours, theirs = GPU.searcher.model_dump(), squad.searcher.model_dump()
    assert {name for name in ours if ours[name] != theirs[name]} == {"system_prompt", "max_turn_tokens", "max_episode_tokens"}
    assert GPU.corpus == squad.corpus and GPU.reward == squad.reward


@pytest.mark.skipif(not QUESTIONS.is_file(), reason=f"{QUESTIONS} is not here: the pack of human questions is no part of the repository")
def test_nearly_all_human_questions_are_placed_and_the_rest_has_a_reason() -> None:
    config = CorpusConfig(pages=str(PAGES), questions=str(QUESTIONS), sections=GPU.corpus.sections)
    _, questions, _ = load_source(config)
    split_of = assign_splits(questions)
    train = [question for question in questions if split_of.get(question.id) == "train"]
    placed = Counter(question.source for question in train if question.section_ids)
    assert len(train) == 9683
    assert placed == {"nq": 4504, "squad": 3002, "hotpotqa": 1835, "musique": 85}
    assert all(_reads_every_page(question) for question in questions if len(set(question.page_ids)) > 1)
    assert all(len(set(question.page_ids)) == 1 for question in questions if not question.section_ids)
    assert sum(split == "test" for split in split_of.values()) >= GPU.evaluate.limit


def _reads_every_page(question: Question) -> bool:
    read = [section_id.partition(":")[0] for section_id in question.section_ids]
    return len(set(question.section_ids)) == len(question.section_ids) and sorted(read) == sorted(set(question.page_ids))
