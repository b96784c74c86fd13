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
    assert job.train_key(config, "digest", "index") == "10dde6dc9b2ac4a1b3e8"
    specs = [PolicySpec("untrained", config.policy), PolicySpec("random", None), PolicySpec("retrieve-then-answer", None)]
    keys = [eval_key(QUESTIONS, "index", spec, config, "digest") for spec in specs]
    assert keys == ["1ec18cc7e57d4e85b045", "8910d5b81431493d1a9f", "12ae78f673818d2eb329"]
    other = config.model_copy(update={"judge": JudgeConfig(kind="ollama"), "reward": RewardConfig(correctness="f1")})
    assert job.train_key(other, "digest", "index") == "734977ced2dd5e20bc4d"
    assert eval_key(QUESTIONS, "index", specs[0], other, "digest") == "50aee1d580dac6144a2f"


def test_what_a_search_says_is_part_of_the_keys(config):
    saying = config.changed({"searcher.missing_names": True})
    assert job.train_key(saying, "digest", "index") != job.train_key(config, "digest", "index")


def test_a_planners_settings_are_not_in_the_searchers_keys(config):
    changed = config.model_copy(update={"planner": config.planner.model_copy(update={"seed": 5, "max_plan_tokens": 77})})
    assert job.train_key(changed, "digest", "index") == job.train_key(config, "digest", "index")
    planner = config.model_copy(update={"environment": "planner"})
    assert job.train_key(planner, "digest", "") != job.train_key(config, "digest", "")


def test_a_version_that_trains_the_same_bytes_trains_nothing_again_and_another_does(config, monkeypatch):
    keys = {}
    for found in ("5.23.0", "5.24.0", "5.25.0"):
        monkeypatch.setattr(job, "version", lambda name, found=found: found if name == "transformers" else "0")
        keys[found] = job.train_key(config, "digest", "index")
    assert keys["5.23.0"] == keys["5.24.0"] != keys["5.25.0"]
