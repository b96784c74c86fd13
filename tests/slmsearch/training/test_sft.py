"""Demonstrations, their encoding, the tokenizer, and a bootstrap small enough for a test."""

import json
import random
import subprocess
import sys
from collections import Counter
from itertools import islice
from typing import ClassVar

import pytest

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.config import PolicyConfig, RunConfig, SearcherConfig, SftConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.corpus.world import generate_world
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.demonstrations import TINY_SEARCHER, TitleIndex, demonstrate, make_demonstrations
from slmsearch.environments.searcher.parsing import parse_turn
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import ABSENT, Toolbox
from slmsearch.environments.searcher.twins import UNKNOWABLE, make_twins
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import TrainingError
from slmsearch.judge import ExactJudge
from slmsearch.judge.exact import exact_match
from slmsearch.sampling.load_sampler import make_sampler
from slmsearch.training.bootstrap import bootstrap, build_tokenizer
from slmsearch.training.encoding import IGNORED, encode_demonstration, encode_episode
from slmsearch.training.own_episodes import sample_own
from slmsearch.training.sft import EpisodeBatches
from slmsearch.training.streams import demonstrated, repeated
from slmsearch.training.teach import train_start, writing_alone

WORLD = generate_world(WorldConfig(pages=80, seed=3, questions_per_page=3))
LIBRARY = Library(WORLD.pages)
TOOLBOX = Toolbox(LIBRARY, TitleIndex(LIBRARY), top_k=3, max_section_chars=1500)


class SmallWorlds(SftConfig):
    pages_per_world: ClassVar[int] = 80
    episodes_per_world: ClassVar[int] = 200


@pytest.fixture(scope="module")
def demonstrations():
    return list(islice(make_demonstrations(SmallWorlds(recipe="expert"), 3, seed=0), 400))


@pytest.fixture(scope="module")
def tokenizer(demonstrations):
    return build_tokenizer("\n".join([d.question, *(part for turn in d.turns for part in turn)]) for d in demonstrations)


def answers(recipe, kind):
    """Share of right answers of a reader on one kind of question."""
    chance = random.Random(0)
    questions = [question for question in WORLD.questions if question.kind == kind]
    given = [parse_turn(demonstrate(question, TOOLBOX, recipe, chance).turns[-1][0]).answer for question in questions]
    return sum(exact_match(a, q.answers) for a, q in zip(given, questions, strict=True)) / len(questions)


@pytest.mark.parametrize("kind", ["one_hop", "two_hop", "count", "unanswerable"])
def test_the_careful_reader_is_right(kind):
    assert answers("expert", kind) == 1.0


def test_the_hasty_reader_has_its_two_habits():
    assert answers("noisy", "one_hop") == 1.0
    assert 0.05 < answers("noisy", "two_hop") < 0.4
    assert 0.2 < answers("noisy", "unanswerable") < 0.65


@pytest.mark.parametrize("kind", UNKNOWABLE)
def test_twins_end_where_the_answer_would_be(kind):
    chance, toolbox = random.Random(0), Toolbox(LIBRARY, TitleIndex(LIBRARY), 3, max_section_chars=1500, missing_names=True)
    twins = make_twins(WORLD.questions, kind, toolbox)
    assert len(twins) > 100
    for twin in twins:
        *_, (call, shown), (last, _) = demonstrate(twin, toolbox, "expert", chance).turns
        assert parse_turn(last).answer == UNKNOWN_ANSWER
        assert shown == ABSENT if kind == "withdrawn" else all("(without " in line for line in shown.splitlines()), (twin, call, shown)


def test_demonstrations_hold_twins_and_names_nobody_bears(demonstrations):
    ends = [(demonstration.turns[-2][1], parse_turn(demonstration.turns[-1][0]).answer) for demonstration in demonstrations]
    unknown = [shown for shown, answer in ends if answer == UNKNOWN_ANSWER]
    absent, unheard_of = (sum(part in shown for shown in unknown) / len(ends) for part in (ABSENT, "(without "))
    assert 0.04 < absent < 0.15 and 0.1 < unheard_of < 0.25


def test_a_demonstration_is_what_the_rollout_would_have_played(tokenizer):
    renderer = ChatRenderer(tokenizer)
    question = next(q for q in WORLD.questions if q.kind == "two_hop")
    demonstration = demonstrate(question, TOOLBOX, "expert", random.Random(0))
    sampler = ScriptedSampler(lambda _question, results: demonstration.turns[len(results)][0])
    config = RunConfig(searcher=SearcherConfig(max_episode_tokens=5000, max_turn_tokens=5000))
    (episode,) = play_episodes([question], sampler, TOOLBOX, config.searcher, Sampling())
    assert episode.stop_reason is StopReason.ANSWERED
    assert [(t.text, t.result.text if t.result else "") for t in episode.turns] == list(demonstration.turns)
    encoded = encode_demonstration(demonstration, renderer, environment_of(config))
    written = [i for i, label in zip(encoded.ids, encoded.labels, strict=True) if label != IGNORED]
    assert tokenizer.decode(written, skip_special_tokens=True) == "".join(message for message, _ in demonstration.turns)
    assert written.count(renderer.end_id) == len(demonstration.turns)


def test_tool_prefixes_are_single_tokens(tokenizer):
    for text in TINY_SEARCHER.pieces:
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1


def test_a_name_is_the_same_tokens_everywhere(tokenizer):
    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    name = ids("Talvor")
    for text in ("Talvor", "in Talvor", '<tool>search_pages("Talvor")</tool>', "4821: Talvor", "<answer>Talvor</answer>"):
        found = ids(text)
        assert any(found[i : i + len(name)] == name for i in range(len(found)))


def test_batches_repeat_with_the_seed_and_keep_their_size(tokenizer):
    config = SmallWorlds(tokens_per_batch=1024)

    def first(seed):
        settings = config.model_copy(update={"seed": seed})
        stream = EpisodeBatches(lambda: demonstrated(ChatRenderer(tokenizer), environment_of(RunConfig()), settings), 0, settings)
        return [batch["parts"][0]["input_ids"].tolist() for batch in islice(stream, 5)]

    assert first(0) == first(0) != first(1)
    assert all(len(batch) * len(batch[0]) <= 1024 for batch in first(0))


@pytest.mark.slow
def test_demonstrations_that_are_all_too_long_are_an_error_not_a_search_without_end(tokenizer):
    settings = SmallWorlds()
    with pytest.raises(TrainingError, match=r"raise searcher\.max_episode_tokens .* \(limit 20\)"):
        next(demonstrated(ChatRenderer(tokenizer), environment_of(RunConfig(searcher=SearcherConfig(max_episode_tokens=20))), settings))
    with pytest.raises(TrainingError, match=r"searcher\.max_turn_tokens; .* longest turn \d+ \(limit 2\)"):
        next(demonstrated(ChatRenderer(tokenizer), environment_of(RunConfig(searcher=SearcherConfig(max_turn_tokens=2))), settings))


def test_bootstrap_leaves_a_model_that_plays(tmp_path):
    out = tmp_path / "models" / "tiny"
    config = SmallWorlds(steps=3, tokens_per_batch=1024)
    facts = bootstrap(RunConfig(sft=config), out)
    assert facts["parameters"] < 3_000_000
    assert sum(path.stat().st_size for path in out.iterdir()) < 6_000_000
    assert (out / "model.safetensors").is_file()
    assert "noisy" in (out / "README.md").read_text()
    assert json.loads((out / "bootstrap.json").read_text())["config"]["steps"] == 3
    assert {path.name for path in out.parent.iterdir()} == {"tiny", ".tiny.lock"}, "the model, and what keeps a second writer away"
    episodes = play_episodes(WORLD.questions[:4], make_sampler(PolicyConfig(model=str(out))), TOOLBOX, SearcherConfig(), Sampling())
    assert all(episode.sampled_tokens for episode in episodes)


def test_own_right_episodes_are_kept_and_learnt_from(model_dir, toolbox, questions, tmp_path):
    """The toy model is right in one episode of three: what it keeps are different right ones, encoded as they were played."""
    config = RunConfig(
        policy=PolicyConfig(model=str(model_dir), device="cpu"),
        searcher=SearcherConfig(max_turn_tokens=16, max_episode_tokens=80, max_turns=3),
    )
    sampler = make_sampler(config.policy)
    phases = list[tuple[str, str, int, int]]()
    environment = SearcherEnvironment(config).with_tools(toolbox, ExactJudge())
    kept, others = sample_own(questions, environment, sampler, lambda *told: phases.append(told))
    assert phases[-1] == ("own episodes", "questions", len(questions), len(questions))
    assert kept and all(episode.answer == "1823" for episode in kept)
    assert {episode.question_id for episode in (*kept, *others)} == {question.id for question in questions}
    counts = Counter(episode.question_id for episode in kept)
    assert max(counts.values()) <= 2
    end_id = sampler.renderer.end_id
    encoded = encode_episode(kept[0], end_id)
    played = [*kept[0].prompt_ids, *kept[0].completion_ids]
    assert encoded.ids in (played, [*played, end_id])
    # Every turn is taught with its end, whether the policy wrote that or a closing tag stopped it.
    assert [i for i, label in zip(encoded.ids, encoded.labels, strict=True) if label != IGNORED] == [
        i for turn in kept[0].turns for i in (*turn.sampled_ids, *((end_id,) if turn.sampled_ids[-1] != end_id and not turn.told else ()))
    ]
    assert list(islice(repeated([encoded, encoded], 0), 5)) == [encoded] * 5


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, True])
def test_sft_command_from_demonstrations(model_dir, tmp_path, lora):
    settings = SmallWorlds(steps=2, tokens_per_batch=512, lora=lora)
    config = RunConfig(policy=PolicyConfig(model=str(model_dir), device="cpu"), sft=settings)
    facts = train_start(config, ["demonstrations"], tmp_path / "out", print)
    assert facts["steps"] == 2
    assert json.loads((tmp_path / "out" / "sft.json").read_text())["source"] == "demonstrations"
    make_sampler(PolicyConfig(model=str(tmp_path / "out"), device="cpu"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.lock", "out"]


def test_of_two_that_write_one_model_the_second_is_refused(tmp_path):
    refused = pytest.raises(TrainingError, match=r"another process is writing .*out; wait for its end")
    with writing_alone(tmp_path / "out"), refused, writing_alone(tmp_path / "out"):
        raise AssertionError("it is written by another")


def test_a_model_takes_the_place_of_one_as_a_whole_and_what_was_killed_is_removed(tmp_path):
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for name in ("out", f".tmp-out-{gone}", f".tmp-out-before-{gone}", f".tmp-another-{gone}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").touch()
    with pytest.raises(ValueError), replaced_directory(tmp_path / "out", sealed=True):
        raise ValueError
    assert (tmp_path / "out" / "old").exists()
    with replaced_directory(tmp_path / "out", sealed=True) as directory:
        (directory / "new").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".tmp-another-{gone}", "out"], "in a folder of the user's"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["new", "seal.json"]
