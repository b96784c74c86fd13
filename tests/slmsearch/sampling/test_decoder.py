"""Many tokens decoded for one look of the host are those that are sampled one by one; with graphs on a card, with plain calls here."""

import logging
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from slmsearch.episodes.sampler import Sampling
from slmsearch.models.attention import ATTENTION, use_attention
from slmsearch.sampling import decoder as decoders
from slmsearch.sampling import torch_sampler
from slmsearch.sampling.decoder import FEWEST_COLUMNS, FEWEST_LINES, Decoder, columns_of, skip_draws
from slmsearch.sampling.line_cache import LineCache
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.bootstrap import build_tokenizer

TEXTS = ["Mira Talvoren was born in 1823 in Norwick. How many towns does the Dunmar River flow through?"] * 20
ROWS = 13


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(TEXTS)


def make_grouped(tokenizer, **changes):
    """Make a Llama with three query heads for every key head."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
    config = AutoConfig.for_model("llama", vocab_size=len(tokenizer), max_position_embeddings=512, **{**sizes, **changes})
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    use_attention(model)
    return model


@pytest.fixture(scope="module")
def grouped(tokenizer):
    return make_grouped(tokenizer)


@pytest.fixture(scope="module")
def exact(tokenizer):
    return make_grouped(tokenizer).double()


def play(sampler, sampling, room=400, rows=ROWS, turns=3):
    """Turns of rows in groups that leave one after the other, with results of different length; return all that was sampled."""
    going = list(range(rows))
    prompts = [[{"role": "user", "content": "Who is Mira?" if row % 3 else "Where is Norwick?"}] for row in going]
    played = [[ids] for ids in sampler.open(prompts, sampling)]
    for turn in range(turns):
        results = [None if turn == 0 else "Mira was born in Norwick. " * (1 + row % 4) for row in going]
        used = [sum(map(len, parts[1::2])) + sum(len(each.sampled_ids) for each in parts[2::2]) for parts in played]
        for row, sampled in zip(going, sampler.sample(going, results, [room - used[row] - 7 * (row % 3) for row in going]), strict=True):
            played[row] += [sampled.context_ids, sampled]
        going = [row for row in going if row % 5 != turn and played[row][-1].sampled_ids]  # one without room has ended
    sampler.close()
    return played


def together(model, tokenizer, monkeypatch, **given):
    with monkeypatch.context() as patch:
        patch.setattr(torch_sampler, "decodes_together", lambda model: True)
        return TorchSampler(model, tokenizer, **given)


def assert_equal(one_by_one, found):
    for some, others in zip(one_by_one, found, strict=True):
        assert some[:1] + some[1::2] == others[:1] + others[1::2]
        for turn, other in zip(some[2::2], others[2::2], strict=True):
            assert (turn.text, turn.ended, turn.sampled_ids) == (other.text, other.ended, other.sampled_ids)
            assert turn.sampled_logprobs == pytest.approx(other.sampled_logprobs, abs=1e-3)


@pytest.mark.parametrize("attention", [ATTENTION, "sdpa", "eager"])
@pytest.mark.parametrize("stop", [(), ("in", "1823")])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_tokens_and_log_probabilities_are_those_of_one_by_one(grouped, tokenizer, monkeypatch, temperature, stop, attention):
    grouped.set_attn_implementation(attention)
    for seed in (0, 5):
        sampling = Sampling(temperature, seed, 30, stop=stop)
        expected = play(TorchSampler(grouped, tokenizer), sampling)
        assert_equal(expected, play(together(grouped, tokenizer, monkeypatch), sampling))
    grouped.set_attn_implementation(ATTENTION)
    assert {len(turn.sampled_ids) for parts in expected for turn in parts[2::2]} != {30} or not stop


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31),
    limit=st.integers(1, 40),
    room=st.integers(20, 200),
    looks=st.integers(1, 20),
    rows=st.integers(1, 20),
    stop=st.sampled_from([(), ("town",), ("a", "Mira"), ("</tool>",)]),
)
def test_no_limit_room_or_batch_changes_what_is_sampled(exact, tokenizer, monkeypatch, seed, limit, room, looks, rows, stop):
    """In float64: in float32, of some ten thousand draws one falls where passes of other shapes round to the neighbouring token."""
    sampling = Sampling(0.8, seed, limit, stop=stop)
    expected = play(TorchSampler(exact, tokenizer), sampling, room, rows)
    with monkeypatch.context() as patch:
        patch.setattr(decoders, "TOGETHER", looks)
        found = play(together(exact, tokenizer, monkeypatch), sampling, room, rows)
    assert_equal(expected, found)


def test_a_row_samples_the_same_alone_and_beside_others(grouped, tokenizer, monkeypatch):
    sampler = together(grouped, tokenizer, monkeypatch)
    prompt = [{"role": "user", "content": "Who is Mira?"}]
    sampler.open([prompt] * 9, Sampling(1.0, 2, 30))
    beside = sampler.sample([7], [None], [99])[0]
    sampler.open([prompt], Sampling(1.0, 2, 30, first_row=7))
    assert sampler.sample([0], [None], [99])[0].sampled_ids == beside.sampled_ids


def test_parts_that_take_turns_sample_what_all_rows_sample_together(grouped, tokenizer, monkeypatch):
    prompts = [[{"role": "user", "content": "Who is Mira?" if row % 3 else "Where is Norwick?"}] for row in range(ROWS)]
    found = []
    for size in (0, 7):
        sampler, turns = together(grouped, tokenizer, monkeypatch), {}
        sampler.open(prompts, Sampling(0.9, 4, 30, part_rows=size))
        for turn in range(3):
            for part in [range(7), range(7, ROWS)] if size else [range(ROWS)]:
                results = [None if turn == 0 else "Mira was born in Norwick. " * (1 + row % 4) for row in part]
                turns |= {(turn, row): each for row, each in zip(part, sampler.sample(part, results, [400] * len(part)), strict=True)}
        found.append([(each.context_ids, each.sampled_ids, each.ended) for _, each in sorted(turns.items())])
    assert found[0] == found[1]


def test_the_host_looks_once_in_many_tokens_and_a_prompt_is_fed_once(grouped, tokenizer, monkeypatch):
    fed, looks, decode = [], [], Decoder.decode
    monkeypatch.setattr(Decoder, "decode", lambda self, going, temperature: looks.append(len(going)) or decode(self, going, temperature))
    handle = grouped.register_forward_pre_hook(lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape), with_kwargs=True)
    sampler = together(grouped, tokenizer, monkeypatch)
    try:
        sampler.open([[{"role": "user", "content": "Who is Mira?"}]] * 6, Sampling(1.0, 0, 33))
        turns = sampler.sample(range(6), [None] * 6, [200] * 6)
    finally:
        handle.remove()
    assert fed[0][0] == 1 and set(fed[1:]) == {(FEWEST_LINES, 1)}
    assert len(looks) == -(-(max(len(turn.sampled_ids) for turn in turns) - 1) // decoders.TOGETHER)


def test_buffers_stay_over_turns_and_batches(grouped, tokenizer, monkeypatch):
    class Keeping(Decoder):
        def close(self):
            self.cache.restart(0)

    decoder = Keeping()
    places, kept = set(), []
    for seed in range(3):
        sampler = together(grouped, tokenizer, monkeypatch, decoder=decoder)
        play(sampler, Sampling(0.9, seed, 30))
        read = [tensor for tensors in decoder.cache._buffers for tensor in tensors]
        read += [tensor for tensor in vars(decoder).values() if isinstance(tensor, torch.Tensor)]
        places.add((decoder.cache.moves, *(tensor.data_ptr() for tensor in read)))
        kept.append(read)  # what is freed may be had again at the same place
    assert len(places) == 1 and decoder.cache.lengths == [] and decoder.cache.nbytes > 0
    assert_equal(play(TorchSampler(grouped, tokenizer), Sampling(0.9, 2, 30)), play(sampler, Sampling(0.9, 2, 30)))


@pytest.mark.parametrize("graphs", [False, True])
def test_a_closed_decoder_of_a_cpu_holds_a_small_cache_and_no_large_one(grouped, tokenizer, monkeypatch, graphs):
    decoder = Decoder()

    def make():
        return together(grouped, tokenizer, monkeypatch, decoder=decoder) if graphs else TorchSampler(grouped, tokenizer, decoder=decoder)

    fresh = [play(TorchSampler(grouped, tokenizer), Sampling(0.9, seed, 30)) for seed in range(3)]
    for seed in range(3):  # what an earlier batch left behind the ends of lines changes nothing
        assert_equal(play(make(), Sampling(0.9, seed, 30)), fresh[seed])
        assert decoder.cache.nbytes > 0 and decoder.cache.lengths == []
    monkeypatch.setattr(decoders, "KEPT_BYTES", 0)
    play(make(), Sampling(0.9, 0, 30))
    assert decoder.cache.nbytes == 0


def test_a_step_in_fixed_buffers_is_a_pass_of_one_token():
    generator = torch.Generator().manual_seed(0)

    def states(lines, new):
        return torch.randn(lines, 2, new, 4, generator=generator)

    free, fixed = LineCache(torch.device("cpu"), 5), LineCache(torch.device("cpu"), 5, fixed=True)
    prompts = states(3, 7)
    for cache in (free, fixed):
        cache.add(3)
        cache.begin([0, 1, 2], [7, 2, 5], 7)
        cache.update(prompts, prompts + 1, 0)
    assert fixed._buffers[0][0].shape[0] == 5
    for _ in range(3):
        new = states(3, 1)
        lengths = torch.tensor(fixed.lengths)
        positions, seen = free.begin([0, 1, 2], [1] * 3, 1)
        expected = free.update(new, new + 1, 0)
        fixed.reserve(3, 12)
        width = fixed.fill(64)
        own_positions, own_seen = fixed.begin_step(lengths, width)
        found = fixed.update(new, new + 1, 0)
        fixed.lengths = [length + 1 for length in fixed.lengths]
        assert torch.equal(positions, own_positions)
        assert not own_seen[..., seen.shape[-1] :].any() and torch.equal(seen, own_seen[..., : seen.shape[-1]])
        for some, others in zip(expected, found, strict=True):
            mask = seen[:, 0, 0, None, :].transpose(1, 2)[:, None].expand(3, 2, -1, 4)
            assert torch.equal(some[mask], others[:, :, : some.shape[2]][mask]) and others.isfinite().all()


@given(st.integers(1, 100_000))
def test_a_step_attends_to_little_more_than_it_must(columns):
    found = columns_of(columns)
    assert columns <= found < max(columns * 1.25, columns + FEWEST_COLUMNS) + 1 and found % FEWEST_COLUMNS == 0


def test_there_are_few_different_steps(grouped):
    decoder = Decoder()
    decoder.open(grouped, [1], 300)
    sizes = sorted({decoder.lines_of(lines) for lines in range(1, 301)})
    assert sizes == [8, 16, 32, 64, 128, 256, 300]
    assert all(decoder.lines_of(lines) >= lines for lines in range(1, 301))
    widths = sorted({columns_of(columns) for columns in range(1, 8192)})
    assert len(widths) < 40 and all(small < large for small, large in pairwise(widths))


@given(st.integers(0, 2**63), st.integers(0, 50), st.integers(0, 50))
def test_a_generator_stands_where_it_would_after_the_tokens_kept(seed, drawn, kept):
    one, other = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 1])
    first = one.random(drawn)
    skip_draws(one, min(kept, drawn) - drawn)
    assert [other.random() for _ in range(min(kept, drawn))] == first[: min(kept, drawn)].tolist()
    assert one.random() == other.random()


def test_a_model_that_cannot_be_captured_is_played_without_graphs_and_that_is_said_once(grouped, tokenizer, monkeypatch, caplog):
    decoder, sampling = Decoder(graphs=True), Sampling(0.9, 0, 30)

    def refuse(self, *key):
        raise RuntimeError("operation not permitted when stream is capturing\nsearch for it in the documentation")

    monkeypatch.setattr(Decoder, "_capture", refuse)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = play(together(grouped, tokenizer, monkeypatch, decoder=decoder), sampling)
    assert_equal(play(TorchSampler(grouped, tokenizer), sampling), found)
    (said,) = caplog.messages
    assert "without CUDA graphs" in said and "not permitted" in said and "\n" not in said


def test_graphs_are_captured_once_for_each_size_and_anew_when_what_they_read_moves(tokenizer, monkeypatch):
    """A graph is a plain call here: it is asked for as on a card."""
    captured = []

    class Graph:
        def __init__(self, step):
            self.replay = step

    def capture(self, *key):
        captured.append(key)
        self._step(*key)  # as a warm-up does
        return Graph(lambda: self._step(*key))

    class Keeping(Decoder):
        def close(self):
            self.cache.restart(0)

    monkeypatch.setattr(Decoder, "_capture", capture)
    model, decoder, sampling = make_grouped(tokenizer), Keeping(graphs=True), Sampling(0.9, 0, 30)
    expected = play(TorchSampler(model, tokenizer), sampling)
    for _ in range(2):
        assert_equal(expected, play(together(model, tokenizer, monkeypatch, decoder=decoder), sampling))
    assert len(captured) == len(set(captured)) >= 2
    before = len(captured)
    weight = model.model.layers[0].mlp.up_proj
    weight.weight = torch.nn.Parameter(weight.weight.detach().clone())
    play(together(model, tokenizer, monkeypatch, decoder=decoder), sampling)
    assert captured[before:] == captured[:before]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_graphs_of_a_card_sample_what_plain_steps_sample(tokenizer, caplog, temperature):
    model, sampling = make_grouped(tokenizer).cuda(), Sampling(temperature, 0, 30, stop=("in",))
    decoder = Decoder()
    plain = play(TorchSampler(model, tokenizer, decoder=Decoder(graphs=False)), sampling)
    for _ in range(2):
        assert_equal(plain, play(TorchSampler(model, tokenizer, decoder=decoder), sampling))
    assert decoder._graphs and not caplog.messages
    assert_equal(play(TorchSampler(make_grouped(tokenizer), tokenizer), sampling), plain)
