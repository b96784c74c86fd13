"""The peer of the rollout bench must read what the policy writes, or it would be beaten unfairly."""

import json
import os
from contextlib import closing

import pytest
import torch
from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response, supports_tool_calling

from slmsearch.config import PolicyConfig, RewardConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.parsing import render_answer, render_call
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, Turn
from slmsearch.errors import ServiceError
from slmsearch.extensions.bench.peer import CHAT_TEMPLATE, CHATML_RESPONSE, CHATML_TEMPLATE, RESPONSE_TEMPLATE, make_environment, make_peer
from slmsearch.extensions.bench.result import tabulate, take_turns
from slmsearch.extensions.bench.rollout import (
    CARD,
    OURS,
    PEER,
    PEER_VLLM,
    RATIOS,
    SIDES,
    by_side,
    compare_continuous,
    measure_speed,
    on_device,
    summarise_speed,
)
from slmsearch.extensions.bench.shapes import BenchShape, LongToolbox
from slmsearch.extensions.bench.steps import WARM_UP, OurSide, Stopwatch, Times, make_ours, open_side, time_static_batch
from slmsearch.extensions.bench.trees import compare_trees
from slmsearch.training.bootstrap import build_tokenizer, make_model
from slmsearch.training.card import CardWatch


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = build_tokenizer(["Who built the mill of Norwick in 1823?"] * 9)
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    return tokenizer


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("call", [ToolCall("search_pages", "Mira Talvoren"), ToolCall("read_section", "4821:early_life")])
def test_a_call_is_read_as_a_call(tokenizer, call):
    prefix = encode(tokenizer, "<|question|>Who?<|turn|>")
    parsed = parse_response(tokenizer, encode(tokenizer, render_call(call) + "<|end|>"), prefix=prefix)
    assert parsed["tool_calls"] == [{"type": "function", "function": {"name": call.name, "arguments": {"argument": call.argument}}}]


def test_an_answer_is_read_as_text(tokenizer):
    prefix = encode(tokenizer, "<|question|>Who?<|turn|>")
    parsed = parse_response(tokenizer, encode(tokenizer, render_answer("Mira") + "<|end|>"), prefix=prefix)
    assert parsed["content"] == "<answer>Mira</answer>"
    assert not parsed.get("tool_calls")


def test_trl_accepts_the_template(tokenizer):
    assert supports_tool_calling(tokenizer)
    assert is_chat_template_prefix_preserving(tokenizer)


def test_tools_serve_from_the_same_toolbox():
    toolbox = LongToolbox()
    environment = make_environment(toolbox)()
    assert environment.view_sections("4821") == toolbox.serve([ToolCall("view_sections", "4821")])[0].text
    assert environment.view_sections("4821") != environment.view_sections("4822")


def test_the_limit_prefills_what_was_shown_and_decodes_the_longest(tokenizer):
    torch.manual_seed(0)
    model = make_model(tokenizer)
    seen = []
    handle = model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True)
    turns = (Turn("a", sampled_ids=(5, 6)), Turn("b", context_ids=(7, 8, 9), sampled_ids=(5,)))
    episodes = [
        Episode("q", turns, StopReason.ANSWERED, (1, 2, 3, 4), sampled_tokens=3),
        Episode("q", turns[:1], StopReason.ANSWERED, (1, 2, 3, 4), sampled_tokens=2),
    ]
    assert time_static_batch(model, episodes, 0) > 0
    handle.remove()
    assert seen == [(2, 7), (2, 1), (2, 1)]


def test_ratios_are_taken_run_by_run():
    ours = [Times(1.0, 2.0), Times(2.0, 2.0), Times(1.0, 2.0)]
    peer = [Times(4.0, 4.0), Times(4.0, 6.0), Times(3.0, 5.0)]
    episodes = [Episode("q", (), StopReason.ANSWERED)]
    times, figures = summarise_speed({"ours": ours, "peer": peer}, [0.5, 1.6, 0.7], episodes)
    assert (figures["episodes_ratio"], figures["step_ratio"], figures["decode_limit_frac"]) == (3.0, 2.5, 0.7)
    rows = tabulate(SIDES, [{"shape": "demo", "side": side, "rate": 1234.5, **found} for side, found in times.items()]).rows
    assert rows[0] == ("demo", "ours", "1.00 (1.00-2.00)", "2.00 (2.00-2.00)", "1,234")
    rows = tabulate(RATIOS, [{"shape": "demo", **figures, "gradient_difference": 2.6e-6, "tokens_ratio": 1.0}]).rows
    assert rows[0][-6:] == ("3.00", "2.50", "-", "0.70", "2.6e-06", "1.000")
    assert json.loads(json.dumps(times))["peer"]["rollout_s"] == {"median": 4.0, "low": 3.0, "high": 4.0}


def test_sides_take_turns_and_the_first_round_does_not_count():
    called = []

    def side(name):
        return lambda: called.append(name) or len(called)

    assert take_turns({"ours": side("a"), "peer": side("b")}, 2) == {"ours": [3, 5], "peer": [4, 6]}
    assert called == ["a", "b"] * 3


def test_continuous_batching_writes_the_same_turns(tokenizer, tmp_path):
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = RunConfig(policy=PolicyConfig(model=str(tmp_path), device="cpu"), train=TrainConfig(questions_per_step=2, group_size=2))
    questions = [Question(f"q{i}", f"Who built the {word}?", "nobody") for i, word in enumerate(("mill", "tower of Norwick"))]
    found = compare_continuous(BenchShape("demo", config, questions, LongToolbox(), 1), runs=1)
    assert found["same_frac"] == 1.0
    assert found["ratio"] == pytest.approx(found["library_s"] / found["ours_s"])


def test_smollm2_is_read_as_it_writes(real_tokenizers):
    tokenizer = real_tokenizers["smollm2"]
    tokenizer.chat_template, tokenizer.response_template = CHATML_TEMPLATE, CHATML_RESPONSE
    prefix = encode(tokenizer, "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n")
    call = ToolCall("search_pages", "Mira Talvoren")
    parsed = parse_response(tokenizer, encode(tokenizer, render_call(call) + "<|im_end|>"), prefix=prefix)
    assert parsed["tool_calls"] == [{"type": "function", "function": {"name": call.name, "arguments": {"argument": call.argument}}}]
    parsed = parse_response(tokenizer, encode(tokenizer, render_answer("Mira") + "<|im_end|>"), prefix=prefix)
    assert parsed["content"] == "<answer>Mira</answer>" and not parsed.get("tool_calls")
    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)


def test_gradients_over_trees_are_those_of_rows(tokenizer, tmp_path):
    """On a batch with two groups, of which one has no advantage."""
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    shape = BenchShape("demo", RunConfig(policy=PolicyConfig(model=str(tmp_path), device="cpu")), [], LongToolbox(), 1)
    rows, prompt, completion = 4, 5, 12
    inputs = {
        "prompt_ids": torch.randint(5, 200, (1, prompt)).repeat(rows, 1),
        "prompt_mask": torch.ones(rows, prompt, dtype=torch.long),
        "completion_ids": torch.randint(5, 200, (rows, completion)),
        "completion_mask": torch.ones(rows, completion, dtype=torch.long),
        "tool_mask": (torch.arange(completion) % 3 > 0).long().repeat(rows, 1),
        "advantages": torch.tensor([0.5, -0.5, 0.0, 0.0]),
    }
    found = compare_trees(shape, inputs)
    assert 0 < found["gradient_difference"] <= 1e-5 and found["tokens_ratio"] == 1.0
    assert found["gradient_difference"] == max(found["gradient_difference_lora"], found["gradient_difference_full"])


@pytest.fixture
def shape(tokenizer, tmp_path):
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    config = RunConfig(
        policy=PolicyConfig(model=str(tmp_path / "model"), device="cuda"),
        searcher=SearcherConfig(max_turns=2, max_turn_tokens=8, max_episode_tokens=64, system_prompt=""),
        reward=RewardConfig(kind="random"),
        train=TrainConfig(questions_per_step=2, group_size=4),
    )
    questions = [Question(f"q{i}", f"Who built the {word}?", "nobody") for i, word in enumerate(("mill", "tower of Norwick"))]
    return BenchShape("long", config, questions, LongToolbox(8), 1)


def test_a_shape_is_measured_on_the_device_that_is_asked_for(shape, tmp_path):
    """By a watch as of a card, whose figures are made up."""
    card, said = CardWatch(lambda: (2.0**30, 2.0**31)), []
    here = on_device(shape, "cpu")
    assert here.config.policy.device == "cpu"
    times, figures, inputs = measure_speed(here, 1, tmp_path, said.append, card)
    assert set(times) == {OURS, PEER} and "vllm_step_ratio" not in figures and inputs["prompt_ids"].device.type == "cpu"
    used = card.read()
    assert {f"{side} {phase}" for side in (OURS, PEER) for phase in (WARM_UP, "rollout", "update")} <= set(used)
    rows = by_side(used)
    assert [(row["side"], row["phase"]) for row in rows] == [(side, phase) for side in (OURS, PEER) for phase in ("rollout", "update")]
    assert tabulate(CARD, [{"shape": "long", **rows[0]}]).rows == (("long", "ours", "rollout", "-", "1.0", "2.0"),)


def test_sides_are_alone_in_a_process_and_end_with_one_line(shape, tmp_path):
    here = on_device(shape, "cpu")
    with closing(open_side(OurSide, OURS, here, tmp_path, None)) as ours:
        times, limit_s = ours.step()
        assert 0 < times.rollout_s < times.step_s and limit_s > 0
        episodes, inputs, trees_used = ours.end()
        assert len(episodes) == 8 and inputs["completion_ids"].shape[0] == 8 and isinstance(trees_used, bool)
        assert ours._process.pid not in (None, os.getpid()) and ours._process.is_alive()
        ours._process.kill()
        with pytest.raises(ServiceError, match="ours ended before it was done"):
            ours.step()
    assert not ours._process.is_alive()


def test_the_real_shape_is_larger_on_a_card(shape):
    real = on_device(BenchShape("real", shape.config, [], LongToolbox(), 1), "cuda")
    assert (real.config.train.questions_per_step, real.config.policy.dtype, real.config.policy.device) == (32, "bfloat16", "cuda")
    assert on_device(shape, "cuda").config.train.questions_per_step == 2
    unchanged = on_device(BenchShape("real", shape.config, [], LongToolbox(), 1), "cpu").config
    assert unchanged.train == shape.config.train and unchanged.policy.dtype == shape.config.policy.dtype


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_both_sides_train_where_the_policy_is_to_be(shape, tmp_path, monkeypatch, device):
    from slmsearch.extensions.bench import peer, steps

    asked = []

    class AskedError(Exception):
        pass

    def make(environment, directory, steps, use_cpu):
        asked.append((use_cpu, environment.config.train.vllm.mode))
        raise AskedError

    monkeypatch.setattr(peer, "make_arguments", make)
    monkeypatch.setattr(steps, "make_arguments", make)
    there = on_device(shape, device)
    for side in (lambda: make_ours(there, tmp_path, Stopwatch()), lambda: make_peer(there, 8, tmp_path, Stopwatch(), device == "cuda")):
        with pytest.raises(AskedError):
            side()
    assert asked == [(device == "cpu", "off"), (device == "cpu", "colocate" if device == "cuda" else "off")]


def test_trl_with_vllm_has_ratios_of_its_own():
    sides = {OURS: [Times(1.0, 2.0)], PEER: [Times(4.0, 8.0)], PEER_VLLM: [Times(2.0, 5.0)]}
    times, figures = summarise_speed(sides, [0.5], [Episode("q", (), StopReason.ANSWERED)])
    assert (figures["vllm_episodes_ratio"], figures["vllm_step_ratio"], figures["step_ratio"]) == (2.0, 2.5, 4.0)
    assert set(times) == set(sides)
