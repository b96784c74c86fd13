"""What does not fit into a model's context is refused in one line before it is computed."""

import pytest
from transformers import set_seed

from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ModelError
from slmsearch.evaluate.worked_examples import longest_prompt
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.bootstrap import build_tokenizer, make_model


def prompt(words: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Mira " * words}]


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    tokenizer = build_tokenizer(["When was Mira founded? In 1823, Dunmar said."] * 9)
    set_seed(0)
    model = make_model(tokenizer).eval()
    renderer = ChatRenderer(tokenizer)
    room = longest_prompt([prompt(3), prompt(9), prompt(1)], renderer)
    assert room == len(renderer.encode_prompt(prompt(9)))
    model.config.max_position_embeddings = room + 1
    sampler = TorchSampler(model, tokenizer)
    assert sampler.open([prompt(9)], Sampling())
    with pytest.raises(ModelError, match=rf"has \d+ tokens, and the model's context ends at {room + 1}: .* policy\.model") as refused:
        sampler.open([prompt(1), prompt(10)], Sampling())
    assert "\n" not in str(refused.value)


def test_an_episode_ends_where_it_fills_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_tokenizer(["When was Mira founded? In 1823, Dunmar said."] * 9)
    set_seed(0)
    model = make_model(tokenizer).eval()
    monkeypatch.setattr(TorchSampler, "_ends", lambda *_: False)
    sampler = TorchSampler(model, tokenizer)
    held = [len(ids) for ids in sampler.open([prompt(3), prompt(9)], Sampling(1.0, 0, 40))]
    model.config.max_position_embeddings = max(held) + 5
    turns = sampler.sample([0, 1], [None, None], [400, 400])
    assert [len(turn.sampled_ids) for turn in turns] == [max(held) + 5 - held[0], 5]
    turns = sampler.sample([0, 1], ["Mira", "Mira"], [400, 400])
    assert not any(turn.sampled_ids or turn.ended for turn in turns)
