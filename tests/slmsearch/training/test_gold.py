"""Starts that learn from gold sections: the command, several sources, scores on held-out questions."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from slmsearch.config import BesideConfig, CorpusConfig, PathsConfig, PolicyConfig, RunConfig, SearcherConfig, SftConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.store import build_corpus, read_pages
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher import indexed_corpus
from slmsearch.environments.searcher.demonstrations import (
    TitleIndex,
)
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.training import gold_parts, held_out, own_episodes, teach
from slmsearch.training.budget import Speed
from slmsearch.training.encoding import Encoded
from slmsearch.training.gold_parts import GoldParts, collect_gold, has_gold, store_gold
from slmsearch.training.job import start_key
from slmsearch.training.teach import train_start
from slmsearch.training.update_times import UpdateTimes
from tests.slmsearch.environments.searcher.test_gold_demonstrations import LIBRARY, PAGES, ask


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A configured corpus of three pages with an index over titles."""
    rows = [{"id": page.id, "title": page.title, "content": page.content} for page in PAGES]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"id": str(i), "question": f"When was Mira {i} born?", "answer": "1823", "section_ids": ["mira:life"]} for i in range(4)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({**row, "page_ids": ["mira"]}) + "\n" for row in asked))
    monkeypatch.setattr(indexed_corpus, "name_index", lambda *_: "titles")
    monkeypatch.setattr(indexed_corpus, "is_complete", lambda _: True)
    monkeypatch.setattr(indexed_corpus, "open_index", lambda *_: TitleIndex(LIBRARY))
    return CorpusConfig(pages=str(tmp_path / "p.jsonl"), questions=str(tmp_path / "q.jsonl"))


def make_config(corpus, model_dir, tmp_path, **searcher):
    return RunConfig(
        corpus=corpus,
        paths=PathsConfig(data_dir=str(tmp_path / "data")),
        policy=PolicyConfig(model=str(model_dir), device="cpu"),
        searcher=SearcherConfig(**searcher),
        sft=SftConfig(steps=1, batch_size=2, tokens_per_batch=512, context_weight=0.0),
    )


def test_a_run_keeps_to_its_corpus_when_the_source_changes(corpus, model_dir, tmp_path, monkeypatch):
    config = make_config(corpus, model_dir, tmp_path).changed({"evaluate.samples": 2, "sft.start": "gold"})
    digest = build_corpus(corpus, config.paths.corpora)
    speed = teach.measure_speed(config, digest)
    Path(corpus.questions).write_text(json.dumps({"id": "new", "question": "Who?", "answer": "Mira", "page_ids": ["mira"]}))
    opened = []
    monkeypatch.setattr(held_out, "open_environment", lambda _, opens: opened.append(opens))
    lesson = teach.prepare_start(config, ["gold"], print, digest=digest)
    assert lesson.facts["episodes"] == speed["examples"] == teach.measure_speed(config, digest)["examples"] == 4
    assert set(opened) == {digest}, "so do the held-out questions"
    for changed in (config, config.changed({"environment": "writer"})):
        teaching = environment_of(changed).teaching(changed, digest)
        assert {one.question for one in teaching.examples("gold")[0]} == {f"When was Mira {i} born?" for i in range(4)}


def test_parts_made_elsewhere_are_the_whole(corpus, model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(gold_parts, "LEAST_QUESTIONS", 1)
    config = make_config(corpus, model_dir, tmp_path).changed({"sft.start": "gold", "train.twins_frac": 0.4})
    digest, divided = build_corpus(corpus, config.paths.corpora), config.changed({"evaluate.shards": 3})
    for changed in ({}, {"searcher.shows": "text"}):
        one, several = config.changed(changed), divided.changed(changed)
        made = GoldParts(several, digest)
        key, shards = made.key(), made.shards()
        assert key is not None and [(shard.start, shard.stop) for shard in shards] == [(0, 1), (1, 2), (2, 4)]
        whole = collect_gold(one, digest)
        assert collect_gold(several, digest) == whole and len(whole[0]) >= 4
        for shard in reversed(shards):
            assert not has_gold(several.paths.evals, key, shard)
            store_gold(made, "titles", key, shard)
            assert has_gold(several.paths.evals, key, shard)
        with monkeypatch.context() as patch:
            patch.setattr(SearcherEnvironment.teaching, "examples", None)
            assert collect_gold(several.changed({"sft.seed": 7, "policy.model": "another"}), digest) == whole
        (several.paths.evals / ".shards" / key / "gold-3-of-3.json").write_text("[")
        assert collect_gold(several, digest) == whole, "a damaged part is not believed"
    assert GoldParts(divided, digest).key() != GoldParts(divided.changed({"train.twins_frac": 0.0}), digest).key()
    assert getattr(gold_parts, store_gold.__qualname__) is store_gold, "a child process finds it by this name"
    for without in ({"sft.start": "none"}, {"environment": "writer"}):
        assert GoldParts(divided.changed(without), digest).key() is None, "which have no start of their own, as `slmsearch sft`"
        assert len(collect_gold(divided.changed(without), digest)[0]) >= 4
    assert [(shard.start, shard.stop) for shard in GoldParts(divided.changed({"train.limit": 2}), digest).shards()] == [(0, 1), (1, 2)]


def test_the_command_teaches_from_gold(corpus, model_dir, tmp_path):
    said = []
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400)
    facts = train_start(config, ["gold"], tmp_path / "out", said.append)
    assert (facts["episodes"], facts["left_out"]) == (4, {})
    assert "4 examples; left out: none" in said[0]
    short = make_config(corpus, model_dir, tmp_path, max_turn_tokens=2)
    with pytest.raises(TrainingError, match="4 too long"):
        train_start(short, ["gold"], tmp_path / "none", said.append)
    assert not (tmp_path / "none").exists()


def test_the_speed_is_measured_and_nothing_is_kept(corpus, model_dir, tmp_path):
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400)
    config = config.changed({"sft.start": "gold", "sft.steps": 3, "sft.lora": True})
    with pytest.raises(ConfigError, match="no examples from 'none'"):
        teach.measure_speed(config.changed({"sft.start": "none"}))
    found = Speed(**teach.measure_speed(config))
    assert found.update_s > 0 and found.examples == 4
    assert {path.name for path in tmp_path.iterdir()} == {"p.jsonl", "q.jsonl", "data"}
    assert not (tmp_path / "data" / "training").exists()


def test_an_adapter_is_taught_on_and_its_root_is_remembered(corpus, model_dir, tmp_path):
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400).changed({"sft.lora": True})
    train_start(config, ["gold"], tmp_path / "first")
    again = config.changed({"policy.model": str(tmp_path / "first")})
    assert train_start(again, ["gold"], tmp_path / "second")["start"] == str(model_dir)


def test_examples_of_several_sources_take_turns(corpus, model_dir, tmp_path):
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400)
    lesson = teach.prepare_start(config, ["gold", "demonstrations"], print)
    assert (lesson.facts["source"], lesson.facts["episodes"], lesson.settings.steps) == ("gold+demonstrations", None, 1)
    (gold,) = [teach.prepare_start(config, ["gold"], print)]
    known = {tuple(encoded.ids) for encoded in islice(gold.stream(), 4)}
    assert [tuple(encoded.ids) in known for encoded in islice(lesson.stream(), 8)] == [True, False] * 4


@pytest.fixture
def beside(corpus, tmp_path, monkeypatch):
    """Return the settings of another corpus beside the configured one, each with its own index over titles, and what is built."""
    (tmp_path / "others.jsonl").write_text(json.dumps({"id": "ivo", "title": "Ivo", "content": "# Ivo\n\nA smith, born in 1790.\n"}) + "\n")
    asked = [{"id": str(i), "question": f"When was Ivo {i} born?", "answer": "1790", "page_ids": ["ivo"]} for i in range(3)]
    (tmp_path / "asked.jsonl").write_text(
        "".join(json.dumps({**row, "section_ids": ["ivo:ivo"], "split": "train"}) + "\n" for row in asked)
    )
    built = []
    monkeypatch.setattr(indexed_corpus, "name_index", lambda digest, *_: digest)
    monkeypatch.setattr("slmsearch.environments.searcher.searcher_environment.name_index", lambda digest, *_: digest)
    monkeypatch.setattr(indexed_corpus, "is_complete", lambda _: False)
    monkeypatch.setattr(indexed_corpus, "build_index", lambda path, *_, current: built.append((path.name, current)))
    corpora = tmp_path / "data" / "corpora"
    monkeypatch.setattr(indexed_corpus, "open_index", lambda _, key, __: TitleIndex(Library(read_pages(corpora / key))))
    return {"sft.beside.pages": str(tmp_path / "others.jsonl"), "sft.beside.questions": str(tmp_path / "asked.jsonl")}, built


def test_questions_of_another_corpus_are_shown_in_turn_with_the_start_s_own(corpus, beside, model_dir, tmp_path):
    settings, built = beside
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400).changed({**settings, "sft.start": "gold"})
    teaching = SearcherEnvironment(config).teaching(config)
    assert teaching.start_sources() == ("beside", "gold")
    lesson = teach.prepare_start(config, teaching.start_sources(), print)
    assert (lesson.facts["source"], lesson.facts["episodes"]) == ("beside+gold", 7)
    assert [current for _, current in built] == [False, True], "the index of the run's own corpus stays the current one"
    own, other = (
        {tuple(encoded.ids) for encoded in islice(teach.prepare_start(config, [source], print).stream(), 7)}
        for source in ("gold", "beside")
    )
    assert (len(own), len(other)) == (4, 3) and not own & other
    assert [tuple(encoded.ids) in own for encoded in islice(lesson.stream(), 8)] == [True, False] * 4
    assert Speed(**teach.measure_speed(config)).examples == 7
    without = config.changed({"sft.beside": BesideConfig()})
    with pytest.raises(ConfigError, match="no examples from 'beside'"):
        teach.prepare_start(without, ["beside"], print)


def test_a_start_is_named_by_the_content_of_the_corpus_beside_it(corpus, beside, model_dir, tmp_path):
    config = make_config(corpus, model_dir, tmp_path).changed({"sft.start": "gold"})
    digest = build_corpus(config.corpus, config.paths.corpora)
    settings, _ = beside
    alone, mixed = start_key(config, digest), start_key(config.changed(settings), digest)
    pages, questions = (Path(path) for path in settings.values())
    moved = {"sft.beside.pages": str(pages.rename(tmp_path / "moved.jsonl")), "sft.beside.questions": str(questions)}
    assert alone != mixed == start_key(config.changed(moved), digest)
    questions.write_text(questions.read_text().replace("1790", "smith"))
    assert start_key(config.changed(moved), digest) not in (alone, mixed)


def test_one_of_four_shows_a_correction_whatever_there_is_beside_them(corpus, model_dir, tmp_path):
    path = Path(str(corpus.questions))
    corrected = {"id": "c", "question": "Where does Mira come from?", "answer": "Dunmar", "kind": "correction", "page_ids": ["mira"]}
    path.write_text(path.read_text() + json.dumps({**corrected, "section_ids": ["mira:mira"]}) + "\n")
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400).changed({"train.twins_frac": 0.99})
    shown, _ = SearcherEnvironment.teaching(config.changed({"train.twins_frac": 0.0})).examples("gold")
    assert [demonstration.question for demonstration in shown if demonstration.new] == [corrected["question"]] and len(shown) == 5
    lesson = teach.prepare_start(config.changed({"train.twins_frac": 0.0}), ["gold"], print)
    assert [encoded.new for encoded in islice(lesson.stream(), 8)] == [False, False, False, True] * 2
    mixed, _ = SearcherEnvironment.teaching(config).examples("gold")
    assert corrected["question"] in [demonstration.question for demonstration in mixed], "no twin takes its place"


def test_gold_after_own_shows_what_was_played_and_never_right(corpus, model_dir, tmp_path, monkeypatch):
    played = []

    def sample(questions, environment, sampler, on_phase):
        played.extend(questions)
        episodes = [Episode(question.id, (), "answered") for question in questions]
        return episodes[2:], episodes[:2]

    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400).changed({"sft.start": "own"})
    monkeypatch.setattr(own_episodes, "sample_own", sample)
    monkeypatch.setattr(own_episodes, "encode_episode", lambda episode, end_id: Encoded([end_id], [end_id], 0))
    sources = SearcherEnvironment.teaching(config).start_sources()
    lesson = teach.prepare_start(config, sources, print)
    (gold,) = [teach.prepare_start(config, ["gold"], print)]
    known = {tuple(encoded.ids) for encoded in islice(gold.stream(), 4)}
    assert (sources, lesson.facts["source"], lesson.facts["episodes"]) == (("own", "gold"), "own+gold", len(played))
    shown = [tuple(encoded.ids) for encoded in islice(lesson.stream(), 8)]
    assert [ids in known for ids in shown] == [False, False, False, True] * 2 and len(set(shown[3::4])) == 2

    monkeypatch.setattr(own_episodes, "sample_own", lambda questions, *_: ([Episode(one.id, (), "answered") for one in questions], []))
    assert teach.prepare_start(config, sources, print).facts["source"] == "own", "the model knows all of it"

    monkeypatch.setattr(own_episodes, "sample_own", sample)
    short = config.changed({"searcher.max_turn_tokens": 2})
    assert teach.prepare_start(short, sources, print).facts["source"] == "own", "no other example fits"
    with pytest.raises(TrainingError, match="no example is left"):
        teach.prepare_start(short, ["gold"], print)


def test_a_start_of_own_episodes_is_named_by_how_they_are_sampled(corpus, model_dir, tmp_path):
    config = make_config(corpus, model_dir, tmp_path)
    digest = SearcherEnvironment.data(config).build(config.paths.corpora)
    for start, differ in (("gold", False), ("own", True)):
        chosen = config.changed({"sft.start": start})
        others = [chosen.changed({"train.temperature": 0.5}), chosen.changed({"evaluate.batch_size": 8})]
        parts = [SearcherEnvironment.teaching(one).start_parts(digest) for one in (chosen, *others)]
        assert [part != parts[0] for part in parts] == [False, differ, differ]


def indexed_questions(corpus, tmp_path):
    from slmsearch.corpus.store import build_corpus, load_questions

    return load_questions(tmp_path / "corpora", build_corpus(corpus, tmp_path / "corpora"))


ASKED = [ask("When was Mira born?", "1823", "mira:life"), ask("What was Mira?", "A poet", "mira:mira")]


def test_held_out_questions_are_played_at_each_quarter_and_change_no_weight(corpus, model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(held_out, "load_questions", lambda *_: {"validation": ASKED})
    config = make_config(corpus, model_dir, tmp_path, max_turn_tokens=60, max_episode_tokens=400)
    config = config.changed({"sft.lora": True, "sft.steps": 10})
    scored = {}

    def keep(step, logs):
        if held_out.CORRECT in logs:
            scored[step] = logs

    train_start(config.changed({"evaluate.samples": 2}), ["gold"], tmp_path / "scored", on_log=keep)
    assert [*scored] == [3, 5, 8, 10] and all(logs.keys() == {held_out.CORRECT, held_out.PASS_AT_K} for logs in scored.values())
    train_start(config, ["gold"], tmp_path / "plain", on_log=keep)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("scored", "plain")]
    assert weights[0] == weights[1] and len(scored) == 4


def test_a_worker_that_is_the_base_answers_held_out_problems_with_the_model_as_it_is(tmp_path, monkeypatch):
    planner = {"environment": "planner", "planner.worker.kind": "base", "planner.limit": 40, "planner.reward.independence": 0.0}
    config = RunConfig().changed({**planner, "paths.data_dir": str(tmp_path), "evaluate.samples": 2})
    asked = []

    def answer(question, results):
        asked.append(question)
        return "#### 5"

    monkeypatch.setattr(held_out, "TorchSampler", lambda *_: ScriptedSampler(answer))
    score = held_out.make_score(config, SimpleNamespace(tokenizer=None, tool_role="user"))
    assert score(None)[held_out.PASS_AT_K] == 0.0 and asked


def test_a_question_passes_at_k_if_any_of_its_samples_is_right(corpus, model_dir, tmp_path, monkeypatch):
    asked = [replace(ASKED[0], id=str(i), question=f"When was Mira {i} born?") for i in range(4)]
    drawn = iter(range(100))

    def answer(question, results):
        return f"<answer>{'1823' if '0' in question or next(drawn) % 3 == 2 else '1900'}</answer>"

    monkeypatch.setattr(held_out, "load_questions", lambda *_: {"validation": asked})
    monkeypatch.setattr(held_out, "TorchSampler", lambda *_: ScriptedSampler(answer))
    config = make_config(corpus, model_dir, tmp_path).changed({"evaluate.samples": 3})
    score = held_out.make_score(config, SimpleNamespace(tokenizer=None, tool_role="tool"))
    assert score(None) == {held_out.CORRECT: 0.5, held_out.PASS_AT_K: 1.0}, "a guess of three is right, and one of each three samples"
    assert held_out.make_score(config.changed({"evaluate.samples": 1}), None) is None


def test_trying_updates_ends_once_they_have_told_enough(monkeypatch):
    clock = iter([0.0, 20.0, 20.0, 36.0, 36.0, 51.0])
    monkeypatch.setattr(teach.time, "perf_counter", lambda: next(clock))
    times, stopped = UpdateTimes(), []
    for _ in range(3):
        control = SimpleNamespace(should_training_stop=False)
        times.on_step_begin()
        times.on_step_end(None, None, control)
        stopped.append(control.should_training_stop)
    assert (stopped, times.total, times.usual) == ([False, True, True], 51.0, 16.0)
