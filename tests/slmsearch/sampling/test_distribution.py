"""What turns are drawn from: the model's own distribution, nothing cut off and no token made less likely; docs/serving.md has the table."""

import math
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedConfig

from slmsearch.environments.searcher.parsing import PROGRAM_STOP, TOOL_STOPS
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Sampling
from slmsearch.sampling.engine_sampler import Completion, EngineSampler
from slmsearch.sampling.torch_sampler import TorchSampler

ASKED = [{"role": "user", "content": "Who?"}]


class Constant:
    """A model with the same logits everywhere, whatever stands before."""

    device, config = torch.device("cpu"), PreTrainedConfig()

    def __init__(self, size: int, logits: dict[int, float]) -> None:
        self.row = torch.full((size,), -40.0)
        for token, value in logits.items():
            self.row[token] = value

    def parameters(self):
        return []

    def __call__(self, input_ids, logits_to_keep, cache, **_):
        cache.update(*torch.zeros(2, *input_ids.shape, 1)[:, :, None], 0)
        return SimpleNamespace(logits=self.row.expand(len(input_ids), len(logits_to_keep), -1).clone())


@pytest.fixture(params=["tiny-searcher", "smollm2", "qwen3"])
def tokenizer(request, real_tokenizers):
    return real_tokenizers[request.param]


def sample(model, tokenizer, sampling, rows=1, prompt=ASKED):
    sampler = TorchSampler(model, tokenizer)
    sampler.open([prompt] * rows, sampling)
    return sampler.sample(list(range(rows)), [None] * rows, [500] * rows)


def test_no_sampler_can_be_told_to_cut_a_distribution_off():
    """TRL's loss takes the whole distribution: with top_k, top_p or a penalty, what is sampled would not be what is trained."""
    assert {field.name for field in fields(Sampling)} == {"temperature", "seed", "max_new_tokens", "first_row", "stop", "part_rows"}


def test_of_equal_logits_greedy_takes_the_lowest_id_and_sampling_all(tokenizer):
    ties = [40, 41, 77, 130]
    model = Constant(len(tokenizer), dict.fromkeys(ties, 5.0))
    (greedy,) = sample(model, tokenizer, Sampling(0.0, 0, 6))
    assert greedy.sampled_ids == (40,) * 6
    drawn = [i for turn in sample(model, tokenizer, Sampling(1.0, 0, 16), rows=64) for i in turn.sampled_ids]
    counts = [drawn.count(tie) for tie in ties]
    assert sum(counts) == len(drawn) == 1024
    assert all(abs(count - 256) < 5 * math.sqrt(1024 * 3 / 16) for count in counts)


def test_end_of_turn_tokens_of_the_prompt_make_an_end_no_less_likely(tokenizer):
    """A repetition penalty of 1.3 would: they stand in every chat prompt."""
    renderer = ChatRenderer(tokenizer)
    model = Constant(len(tokenizer), {renderer.end_id: 1.0, 40: 1.0})
    talk = [message for _ in range(20) for message in (*ASKED, {"role": "assistant", "content": "Mira."})]
    prompt = renderer.encode_prompt([*talk, *ASKED])
    assert prompt.count(renderer.end_id) >= 20
    turns = sample(model, tokenizer, Sampling(1.0, 0, 1), rows=400, prompt=[*talk, *ASKED])
    ended = sum(turn.sampled_ids == (renderer.end_id,) for turn in turns)
    assert abs(ended - 200) < 5 * math.sqrt(400 / 4)
    assert all(turn.sampled_logprobs == pytest.approx([math.log(0.5)], abs=1e-5) for turn in turns)


class Fixed:
    """An engine that writes the same ids."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids

    def complete(self, requests, temperature, end_id):
        return [Completion(self.ids[: request.max_tokens], (0.0,) * len(self.ids[: request.max_tokens])) for request in requests]


def test_the_end_of_turn_token_ends_by_its_id_and_no_stop_text_is_a_special_token(tokenizer):
    """Stop texts are looked for in the text without special tokens, here as in vLLM: one that is a special token is never found."""
    renderer = ChatRenderer(tokenizer)
    mark = tokenizer.decode([renderer.end_id])
    assert mark.strip() and not renderer.is_stopped([40, renderer.end_id], (mark,))
    (turn,) = sample(Constant(len(tokenizer), {renderer.end_id: 9.0}), tokenizer, Sampling(0.0, 0, 5, stop=(mark,)))
    assert (turn.sampled_ids, turn.ended, turn.text) == ((renderer.end_id,), True, "")
    engine = EngineSampler(Fixed((40, renderer.end_id)), tokenizer)
    engine.open([ASKED], Sampling(0.0, 0, 5, stop=(mark,)))
    assert engine.sample([0], [None], [500])[0].ended
    assert not set(tokenizer.all_special_tokens) & {*TOOL_STOPS, PROGRAM_STOP}


def test_a_stop_text_counts_from_the_first_token_on(tokenizer):
    """There is no `min_tokens`, before which vLLM overlooks one."""
    (stop,) = [mark for mark in TOOL_STOPS if mark == "</answer>"]
    ids = tuple(ChatRenderer(tokenizer).content_ids(f"{stop}{stop}"))
    engine = EngineSampler(Fixed(ids), tokenizer)
    engine.open([ASKED], Sampling(0.0, 0, len(ids), stop=(stop,)))
    (turn,) = engine.sample([0], [None], [500])
    assert turn.ended and turn.text.startswith(stop) and len(turn.sampled_ids) < len(ids)
