"""The searcher's keys do not know that there is a planner: nothing trained or measured is done again.

Recorded when the typed match became the verdict; a change of the code that does not change results must leave them.
"""

import pytest

from slmsearch.config import JudgeConfig, PolicyConfig, RewardConfig, RunConfig, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key
from slmsearch.training import job

QUESTIONS = [Question("q1", "When was Mira born?", "1823", page_ids=("mira",), section_ids=("mira:life",), hops=1, kind="one_hop")]


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "version", lambda name: "0")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    return RunConfig(policy=PolicyConfig(model=str(tmp_path)), searcher=SearcherConfig(missing_names=False))


def test_recorded_keys_of_the_searcher(config):
    assert job.train_key(config, "digest", "index") == "6a799d6e3d9952efd620"
    specs = [PolicySpec("untrained", config.policy), PolicySpec("random", None), PolicySpec("retrieve-then-answer", None)]
    keys = [eval_key(QUESTIONS, "index", spec, config, "digest") for spec in specs]
    assert keys == ["19013e7a6734a2f6dfc9", "66209256e8fa4200dbbb", "13a085b6bc495318613a"]
    other = config.model_copy(update={"judge": JudgeConfig(kind="ollama"), "reward": RewardConfig(correctness="f1")})
    assert job.train_key(other, "digest", "index") == "68ba58d2dabe7bd6e0fb"
    assert eval_key(QUESTIONS, "index", specs[0], other, "digest") == "66020549a64414fabc72"


def test_what_a_search_says_is_part_of_the_keys(config):
    saying = config.changed({"searcher.missing_names": True})
    assert job.train_key(saying, "digest", "index") != job.train_key(config, "digest", "index")


def test_a_planners_settings_are_not_in_the_searchers_keys(config):
    changed = config.model_copy(update={"planner": config.planner.model_copy(update={"seed": 5, "max_plan_tokens": 77})})
    assert job.train_key(changed, "digest", "index") == job.train_key(config, "digest", "index")
    planner = config.model_copy(update={"environment": "planner"})
    assert job.train_key(planner, "digest", "") != job.train_key(config, "digest", "")
