"""llama.cpp, the real one, plays a model as torch does, and says in one line what it cannot."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import PolicyConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.world import generate_world
from slmsearch.environments.searcher.demonstrations import TitleIndex
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ContextError, ModelError, ServiceError
from slmsearch.models.hashes import model_hash
from slmsearch.models.load import load_model, load_tokenizer
from slmsearch.sampling import llamacpp
from slmsearch.sampling.engine_sampler import CompletionRequest
from slmsearch.sampling.llamacpp import LlamaCppEngine, LlamaCppSampler, is_loaded
from slmsearch.sampling.load_sampler import make_sampler
from slmsearch.training.export_gguf import Interface, export_gguf
from tests.root import ROOT
from tests.slmsearch.models.test_gguf_file import make
from tests.slmsearch.training import far
from tests.zoo.tokenizers import SPLIT

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (extra `llamacpp`)")
TINY = ROOT / "data" / "models" / "tiny-searcher"
STOP = ("</tool>", "</answer>")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exported = export_gguf(PolicyConfig(model=str(TINY)), tmp_path_factory.mktemp("gguf") / "tiny", "f32", Interface("", "", (), "tool"))
    assert not exported.same_tokens
    return exported.file


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[LlamaCppEngine]:
    yield LlamaCppEngine(str(tiny), cpu=True)


def test_greedy_episodes_are_those_of_torch(tiny: Path) -> None:
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), list(world.questions)[:12]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500, missing_names=True), SearcherConfig()
    played = [
        play_episodes(questions, make_sampler(PolicyConfig(model=str(model), device="cpu")), toolbox, searcher, Sampling(max_new_tokens=48))
        for model in (TINY, tiny)
    ]
    ours, theirs = ([[(turn.text, turn.context_ids, turn.sampled_ids) for turn in e.turns] for e in episodes] for episodes in played)
    assert ours == theirs and max(map(len, ours)) > 3
    assert [episode.answer for episode in played[0]] == [episode.answer for episode in played[1]]


def test_a_file_that_is_loaded_is_known(tiny: Path, engine: LlamaCppEngine, tmp_path: Path) -> None:
    shutil.copy(tiny, other := tmp_path / "other.gguf")
    assert is_loaded(tiny) and not is_loaded(other)


def test_a_turn_ends_with_its_stop_text_its_end_token_or_its_limit(engine: LlamaCppEngine) -> None:
    _, tokenizer = load_model(PolicyConfig(model=str(TINY), device="cpu"))
    asked = [{"role": "user", "content": "Where is Lower Kelvinen?"}]
    history = tuple(tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"])
    requests = [CompletionRequest(history, 48, 1, STOP), CompletionRequest(history, 48, 1), CompletionRequest(history, 2, 1)]
    stopped, ended, cut = engine.complete(requests, 0.0, tokenizer.eos_token_id)
    assert tokenizer.decode(stopped.ids) == '<tool>search_pages("Lower Kelvinen")</tool>'
    assert ended.ids == (*stopped.ids, tokenizer.eos_token_id) and cut.ids == stopped.ids[:2]
    sampled = engine.complete([CompletionRequest(history, 48, seed, STOP) for seed in range(40)], 2.0, tokenizer.eos_token_id)
    assert len({turn.ids for turn in sampled}) > 5, "it samples, and every seed for itself"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(5, 1200), min_size=2, max_size=40))
def test_any_ids_are_taken_as_they_are(engine: LlamaCppEngine, ids: list[int]) -> None:
    model, _ = load_model(PolicyConfig(model=str(TINY), device="cpu"))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    (turn,) = engine.complete([CompletionRequest(tuple(ids), 1, 1)], 0.0, 1)
    assert logits.max() - logits[turn.ids[0]] < 1e-3, "the likeliest token, or one that is as likely"


def test_text_has_the_tokens_that_the_model_has_learnt(real_tokenizers: dict[str, Any], tmp_path: Path) -> None:
    """Of tokenizers whose rules llama.cpp knows; what it is sent by others' programs is text. Llama 3's vocabulary cannot be had here."""
    from tokenizers import Regex, pre_tokenizers

    from slmsearch.models.gguf_file import write_gguf

    llama3 = copy.deepcopy(real_tokenizers["smollm2"])
    splits = pre_tokenizers.Split(Regex(SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")), behavior="isolated")
    llama3.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )

    texts = ["Who wrote Faust, in 1808?", "  two  blanks\n\n\ttab", "It's 3.14159 km², naïve café", 'search_pages("Łódź")', "日本語 and ½"]
    for name, tokenizer in (*((name, real_tokenizers[name]) for name in ("smollm2", "qwen2.5")), ("llama3", llama3)):
        assert write_gguf(make("qwen2", True, vocab_size=len(tokenizer)), tokenizer, tmp_path / f"{name}.gguf", "q8_0", name)
        assert (GGUFReader(tmp_path / f"{name}.gguf").fields["tokenizer.ggml.pre"].contents() == "llama-bpe") is (name == "llama3")
        engine = LlamaCppEngine(str(tmp_path / f"{name}.gguf"), cpu=True)
        for text in texts:
            reply = httpx.post(f"{engine.address}/tokenize", json={"content": text, "parse_special": False})
            assert reply.json()["tokens"] == tokenizer(text, add_special_tokens=False)["input_ids"], (name, text)


def test_what_llama_cpp_cannot_play_is_said_in_one_line(engine: LlamaCppEngine, tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny.read_bytes()[:100_000])
    for path, words in ((broken, "llama.cpp cannot load"), (tmp_path / "none.gguf", "llama.cpp cannot load")):
        with pytest.raises(ModelError, match=words):
            LlamaCppEngine(str(path), cpu=True)
    with pytest.raises(ModelError, match="takes no adapter: `slmsearch export gguf` merges one"):
        make_sampler(PolicyConfig(model=str(tiny), adapter=str(tmp_path)))
    with pytest.raises(ModelError, match=r"is a GGUF, which llama\.cpp plays and nobody trains"):
        load_model(PolicyConfig(model=str(tiny)))


def test_an_episode_that_fills_the_context_ends_and_the_others_go_on(engine: LlamaCppEngine) -> None:
    sampler = LlamaCppSampler(engine, load_tokenizer(PolicyConfig(model=str(TINY))), "tool")
    prompts = [[{"role": "user", "content": "Mira " * words}] for words in (3, 280)]
    short, long = sampler.open(prompts, Sampling(2.0, max_new_tokens=20, seed=1))
    assert engine.context == 1024 and len(long) > 800
    for result in (None, *["Mira was founded in 1823. " * 8] * 9):
        turns = sampler.sample([0, 1], [result, result], [4000 - len(short), 4000])
    assert turns[0].sampled_ids and not turns[1].sampled_ids and not turns[1].ended, "no room for a token is left"
    with pytest.raises(ContextError, match=r"the longest prompt with a first token has \d+ tokens, and the model's context ends at 1024"):
        sampler.open([*prompts, [{"role": "user", "content": "Mira " * 1200}]], Sampling())


def test_a_child_that_is_killed_while_it_writes_is_an_error_and_the_next_call_begins_anew(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, request = LlamaCppEngine(str(tiny), cpu=True), CompletionRequest((5, 6), 4, 1)
    before, pid, address = engine.complete([request], 0.0, 1), engine.pid, engine.address
    assert pid is not None
    assert httpx.get(f"{address}/slots").status_code == 501, "what is asked is nobody else's business"
    many = [CompletionRequest((5, 6), 900, seed) for seed in range(100)]
    with monkeypatch.context() as patched:
        patched.setattr(llamacpp, "write_turns", far.write_and_be_killed)
        with pytest.raises(ServiceError, match=r"was killed by SIGKILL: out of memory\?"):
            engine.complete(many, 1.0, 1)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")
    assert engine.complete([request], 0.0, 1) == before and engine.pid != pid


def test_a_file_has_the_hash_of_its_content_and_its_tokenizer(tiny: Path, tmp_path: Path) -> None:
    same = tmp_path / "same"
    same.mkdir()
    for file in tiny.parent.iterdir():
        (same / file.name).write_bytes(file.read_bytes())
    assert model_hash(str(same / tiny.name)) == model_hash(str(tiny))
    (same / "chat_template.jinja").write_text("{{ messages }}")
    assert model_hash(str(same / tiny.name)) != model_hash(str(tiny))
