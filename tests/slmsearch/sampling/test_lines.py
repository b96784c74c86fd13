"""Lines of the cache, guesses and draws: what is computed less often comes to the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from slmsearch.episodes.sampler import Sampling
from slmsearch.models.attention import ATTENTION, use_attention
from slmsearch.sampling import torch_sampler
from slmsearch.sampling.decoder import VALUES_OF_A_SUM, draw_tokens
from slmsearch.sampling.guesses import CONTEXT, TRIAL, Guesses
from slmsearch.sampling.line_cache import LineCache
from slmsearch.sampling.torch_sampler import FED_TOGETHER, PASS_COST, TorchSampler, split_by_length
from slmsearch.training.bootstrap import build_tokenizer

TEXTS = ["Mira Talvoren was born in 1823 in Norwick. How many towns does the Dunmar River flow through?"] * 20
ROWS = 12


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(TEXTS)


@pytest.fixture(scope="module")
def grouped(tokenizer):
    """A Llama with three query heads for every key head."""
    torch.manual_seed(0)
    settings = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
    config = AutoConfig.for_model("llama", vocab_size=len(tokenizer), max_position_embeddings=512, **settings)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    use_attention(model)
    return model


def play(model, tokenizer, temperature):
    """Three turns of rows that leave one after the other, with results of different length; return ids and log-probabilities."""
    sampler, rows = TorchSampler(model, tokenizer), list(range(ROWS))
    prompts = [[{"role": "user", "content": "Who is Mira?" if row % 3 else "Where is Norwick?"}] for row in rows]
    histories = [list(ids) for ids in sampler.open(prompts, Sampling(temperature, 3, 9))]
    logprobs = [[] for _ in rows]
    for turn in range(3):
        results = [None if turn == 0 else "Mira was born in Norwick. " * (1 + row % 4) for row in rows]
        for row, sampled in zip(rows, sampler.sample(rows, results, [400] * len(rows)), strict=True):
            histories[row] += [*sampled.context_ids, *sampled.sampled_ids]
            logprobs[row] += [0.0] * len(sampled.context_ids) + list(sampled.sampled_logprobs)
        rows = [row for row in rows if row % 5 != turn]
    return histories, logprobs


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_guesses_change_nothing_but_the_number_of_passes(grouped, tokenizer, monkeypatch, temperature):
    passes = []
    handle = grouped.register_forward_pre_hook(lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape), with_kwargs=True)
    try:
        histories, logprobs = play(grouped, tokenizer, temperature)
        guessed, widest = len(passes), max(width for rows, width in passes if rows < ROWS)
        monkeypatch.setattr(torch_sampler, "GUESSED", 0)
        passes.clear()
        plain_histories, plain_logprobs = play(grouped, tokenizer, temperature)
    finally:
        handle.remove()
    assert histories == plain_histories
    for some, others in zip(logprobs, plain_logprobs, strict=True):
        assert some == pytest.approx(others, abs=1e-3)
    assert guessed <= len(passes) and widest > 1


@torch.no_grad()
@pytest.mark.parametrize("attention", [ATTENTION, "sdpa", "eager"])
@pytest.mark.parametrize("small", [True, False])
def test_log_probabilities_are_those_of_each_history(grouped, tokenizer, monkeypatch, small, attention):
    monkeypatch.setattr(torch_sampler, "is_small", lambda _: small)
    grouped.set_attn_implementation(attention)
    played = play(grouped, tokenizer, 0.9)
    grouped.set_attn_implementation(ATTENTION)
    for history, logprobs in zip(*played, strict=True):
        distribution = (grouped(torch.tensor([history])).logits[0].float() / 0.9).log_softmax(-1)
        start = len(history) - len(logprobs)
        for place, logprob in enumerate(logprobs):
            if logprob:
                assert logprob == pytest.approx(float(distribution[start + place - 1, history[start + place]]), abs=1e-3)


def test_lines_that_move_and_fork_keep_what_they_hold():
    cache, held = LineCache(torch.device("cpu"), 6), dict[int, list[float]]()
    cache.add(3)
    for lines, counts in (([0, 1, 2], [2, 1, 3]), ([2, 0], [1, 2])):
        new = max(counts)
        cache.begin(lines, counts, new)
        states = torch.tensor([[float(10 * line + place) for place in range(new)] for line in lines])[:, None, :, None]
        for line, count, row in zip(lines, counts, states, strict=True):
            held.setdefault(line, []).extend(row[0, new - count :, 0].tolist())
        cache.update(states, states, 0)
    assert cache.fork([0, 2], [3, 1], {0, 2}) == [1, 3]
    held[1], held[3] = held[0][:3], held[2][:1]
    cache.swap([(0, 3)])
    held[0], held[3] = held[3], held[0]
    cache.begin([0, 1, 2, 3], [1] * 4, 1)
    keys, _ = cache.update(torch.full((4, 1, 1, 1), 99.0), torch.full((4, 1, 1, 1), 99.0), 0)
    for line in range(4):
        assert keys[line, 0, : cache.lengths[line], 0].tolist() == [*held[line], 99.0]
    assert keys.isfinite().all()


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20))
def test_spans_cover_all_lengths_and_stay_small(lengths):
    lengths = sorted(lengths)
    spans = split_by_length(lengths)
    assert [place for start, end in spans for place in range(start, end)] == list(range(len(lengths)))
    for start, end in spans:
        assert end - start == 1 or (end - start) * lengths[end - 1] <= FED_TOGETHER
    cost = sum(PASS_COST + (end - start) * lengths[end - 1] for start, end in spans)
    assert cost <= sum(PASS_COST + length for length in lengths)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(0, 5))
def test_a_guess_is_what_followed_the_same_tokens_last(text, most):
    guesses = Guesses()
    guesses.learn(text)
    guessed = guesses.guess(text, most)
    places = [k for k in range(CONTEXT, len(text)) if text[k - CONTEXT : k] == text[-CONTEXT:] and len(text) >= CONTEXT]
    assert guessed == (text[places[-1] : places[-1] + most] if places and most else [])
    guesses.count(TRIAL, 0)
    assert guesses.guess(text, most) == []


@given(st.integers(1, 3 * VALUES_OF_A_SUM), st.integers(0, 2**32 - 1))
def test_draws_invert_the_cumulated_distribution(vocabulary, seed):
    chance = np.random.default_rng(seed)
    weights = torch.tensor(chance.random((3, vocabulary)) ** 8 + 1e-12, dtype=torch.float32)
    probabilities, draws = weights / weights.sum(-1, keepdim=True), torch.tensor(chance.random(40))
    which = torch.tensor(chance.integers(0, 3, 40))
    found = draw_tokens(probabilities, which, draws)
    cumulated = probabilities.double().cumsum(-1)
    below = torch.cat([torch.zeros(3, 1, dtype=torch.float64), cumulated], dim=1)[which, found]
    above, target = cumulated[which, found], draws * cumulated[which, -1]
    assert ((below <= target + 1e-9) & (target <= above + 1e-9)).all()
