"""Shards: cut between batches, merged to what one process stores."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import EvaluateConfig, PathsConfig, PolicyConfig, RunConfig
from slmsearch.environments.searcher.random_turns import random_turn
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import EvaluationError
from slmsearch.evaluate import run, store
from slmsearch.evaluate import shards as shards_module
from slmsearch.evaluate.policies import parse_policy
from slmsearch.evaluate.shards import Shard, has_shard, merge_shards, remove_shards, shards_dir, split_shards, write_shard
from slmsearch.evaluate.store import EPISODES, METRICS_FILE, ROWS, Evaluation, write_evaluation
from slmsearch.judge.llm import make_judge
from tests.slmsearch.evaluate.builders import Tolerant
from tests.slmsearch.evaluate.corpus import QUESTIONS, FlakyIndex, evaluate_searcher, make_toolbox

CONFIG = RunConfig(evaluate=EvaluateConfig(batch_size=2))


@given(total=st.integers(1, 500), batch_size=st.integers(1, 80), wanted=st.integers(1, 40))
def test_shards_are_whole_batches_and_all_of_them(total: int, batch_size: int, wanted: int) -> None:
    shards = split_shards(total, batch_size, wanted)
    assert len(shards) == min(wanted, -(-total // batch_size))
    assert [i for shard in shards for i in range(shard.start, shard.stop)] == list(range(total))
    assert all(shard.start % batch_size == 0 and shard.stop > shard.start for shard in shards)
    batches = [-(-(shard.stop - shard.start) // batch_size) for shard in shards]
    assert max(batches) - min(batches) <= 1
    assert [(shard.number, shard.of) for shard in shards] == [(i + 1, len(shards)) for i in range(len(shards))]


def play(shard: Shard | None = None) -> Evaluation:
    spec, questions = (
        parse_policy("untrained", PolicyConfig(), SearcherEnvironment.controls.baselines, "data"),
        QUESTIONS if shard is None else shard.take(QUESTIONS),
    )
    return evaluate_searcher(questions, make_toolbox(), spec, CONFIG, total=len(QUESTIONS))


def without_clocks(folder: Path) -> dict[str, object]:
    """What is stored, but for what a clock measured."""
    rows = [{**json.loads(line), "seconds": 0} for line in (folder / ROWS).read_text().splitlines()]
    episodes = [{**json.loads(line), "seconds": 0} for line in (folder / EPISODES).read_text().splitlines()]
    summary = json.loads((folder / METRICS_FILE).read_text())
    timeless = [{**found, "time/episode_s": 0} for found in (summary["metrics"], *summary["slices"].values())]
    return {"rows": rows, "episodes": episodes, "metrics": timeless, "slices": list(summary["slices"])}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "make_policy_sampler", lambda *_: ScriptedSampler(lambda question, results: random_turn(question, results, 3)))


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("wanted", [2, 3, 9])
def test_merged_shards_are_what_one_process_stores(tmp_path: Path, wanted: int) -> None:
    one = write_evaluation(tmp_path / "one", "key", play(), {"of": "it"}, "corpus")
    shards = split_shards(len(QUESTIONS), CONFIG.evaluate.batch_size, wanted)
    for shard in reversed(shards):  # in any order
        assert not has_shard(tmp_path / "many", "key", shard)
        write_shard(tmp_path / "many", "key", shard, play(shard), {"of": "it"}, "corpus")
        assert has_shard(tmp_path / "many", "key", shard)
    whole = merge_shards(tmp_path / "many", "key", shards, QUESTIONS, 0.05)
    many = write_evaluation(tmp_path / "many", "key", whole, {"of": "it"}, "corpus")
    assert without_clocks(many) == without_clocks(one)
    remove_shards(tmp_path / "many", "key")
    assert sorted(path.name for path in (tmp_path / "many").rglob("*") if path.is_dir()) == [".shards", "key"]


@pytest.mark.usefixtures("model")
def test_a_shard_that_can_not_be_written_matters_only_until_the_whole_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, whole = split_shards(len(QUESTIONS), CONFIG.evaluate.batch_size, 2)[0], play()

    def removed_meanwhile(*_: object) -> None:
        raise FileNotFoundError("another run has removed the shards")

    with monkeypatch.context() as patch, pytest.raises(EvaluationError, match="another run has removed"):
        patch.setattr(store, "publish", removed_meanwhile)
        write_shard(tmp_path, "key", shard, play(shard), {}, "")
    write_evaluation(tmp_path, "key", whole, {}, "")
    monkeypatch.setattr(store, "publish", removed_meanwhile)
    write_shard(tmp_path, "key", shard, play(shard), {}, "")


@pytest.mark.usefixtures("model")
def test_what_is_missing_damaged_or_of_other_questions_is_not_merged(tmp_path: Path) -> None:
    first, second = shards = split_shards(len(QUESTIONS), 2, 2)
    write_shard(tmp_path, "key", first, play(first), {}, "")
    with pytest.raises(EvaluationError, match="no complete evaluation"):
        merge_shards(tmp_path, "key", shards, QUESTIONS, 0.05)
    write_shard(tmp_path, "key", second, play(first), {}, "")
    with pytest.raises(EvaluationError, match=r"2-of-2 of evaluation key holds other questions; delete"):
        merge_shards(tmp_path, "key", shards, QUESTIONS, 0.05)
    rows = shards_dir(tmp_path, "key") / first.name / ROWS
    rows.write_text(rows.read_text().replace('"exact_match": 0.0', '"exact_match": 1.0'))
    assert not has_shard(tmp_path, "key", first), "it is played again"
    with pytest.raises(EvaluationError, match="was changed since it was written"):
        merge_shards(tmp_path, "key", shards, QUESTIONS, 0.05)


def test_failures_count_over_the_whole_as_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run, "make_policy_sampler", lambda *_: ScriptedSampler(lambda question, _: f'<tool>search_pages("{question}")</tool>')
    )
    flaky = FlakyIndex("Mira")
    tolerant = CONFIG.model_copy(update={"decision": Tolerant()})
    shards = split_shards(len(QUESTIONS), 2, 3)
    played = []
    for shard in shards:
        spec = parse_policy("untrained", PolicyConfig(), SearcherEnvironment.controls.baselines, "data")
        played.append(evaluate_searcher(shard.take(QUESTIONS), make_toolbox(flaky), spec, tolerant, total=len(QUESTIONS)))
        write_shard(tmp_path, "key", shard, played[-1], {}, "")
    failed = sum(row.failed for part in played for row in part.rows)
    assert failed == 2, "both of the batch: calls are served together"
    assert merge_shards(tmp_path, "key", shards, QUESTIONS, 0.4).metrics["stop/failed"] == failed / len(QUESTIONS)
    with pytest.raises(EvaluationError, match="2 of 5 episodes failed"):
        merge_shards(tmp_path, "key", shards, QUESTIONS, 0.2)


class Counting(ScriptedSampler):
    """Counts the questions that are played."""

    played = 0

    def open(self, prompts, sampling):
        self.played += len(prompts)
        return super().open(prompts, sampling)


def play_batches(folder: Path, sampler: ScriptedSampler, monkeypatch: pytest.MonkeyPatch, toolbox=None, progress=None) -> Evaluation:
    config = RunConfig(evaluate=CONFIG.evaluate, decision=Tolerant(), paths=PathsConfig(data_dir=str(folder)))
    monkeypatch.setattr(run, "make_policy_sampler", lambda *_: sampler)
    environment = SearcherEnvironment(config).with_tools(toolbox or make_toolbox(), make_judge(config.judge))
    spec = parse_policy("untrained", PolicyConfig(), SearcherEnvironment.controls.baselines, "data")
    return shards_module.play_batches("key", spec, QUESTIONS, environment, ({"of": "it"}, "corpus"), progress)


def test_what_was_stopped_goes_on_with_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(done: int, total: int) -> None:
        assert total == len(QUESTIONS) == 5
        if done == 4:
            raise KeyboardInterrupt

    samplers = [Counting(lambda question, results: random_turn(question, results, 3)) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        play_batches(tmp_path, samplers[0], monkeypatch, progress=stop)
    whole = play_batches(tmp_path, samplers[1], monkeypatch)
    assert [sampler.played for sampler in samplers] == [4, 1]
    monkeypatch.setattr(run, "make_policy_sampler", lambda *_: Counting(lambda question, results: random_turn(question, results, 3)))
    one, many = (write_evaluation(tmp_path / name, "key", played, {}, "") for name, played in (("one", play()), ("many", whole)))
    assert without_clocks(many) == without_clocks(one)


def test_a_batch_of_which_an_episode_failed_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for flaky, failed, played in ((FlakyIndex("Mira"), 2, 5), (None, 0, 2)):
        sampler = Counting(lambda question, _: f'<tool>search_pages("{question}")</tool>')
        found = play_batches(tmp_path, sampler, monkeypatch, make_toolbox(flaky))
        assert (sum(row.failed for row in found.rows), sampler.played) == (failed, played)


def test_a_shard_of_another_split_is_another_shard(tmp_path: Path) -> None:
    shard = split_shards(10, 1, 2)[0]
    assert shard.name == "1-of-2"
    assert shards_dir(tmp_path, "key") / shard.name != shards_dir(tmp_path, "key") / replace(shard, of=3).name
