"""The plan of memory, and what it is made from."""

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

from flows.runtime.settings import load_config
from slmsearch.config import EvaluateConfig, JudgeConfig, LoraSection, PolicyConfig, RunConfig, SearcherConfig, TrainConfig, VllmConfig
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ModelError
from slmsearch.training.memory import (
    EVALUATION,
    GIB,
    HELD_OUT,
    PREFLIGHT,
    SAMPLING,
    UPDATE,
    ModelShape,
    count_trained,
    measure_shape,
    plan_memory,
)
from slmsearch.training.preflight import play_in_batches

LAYER = ((2560, 4096), (2560, 1024), (2560, 1024), (4096, 2560), (2560, 9728), (2560, 9728), (9728, 2560))
FOUR_B = ModelShape(4_022_468_096, LAYER * 36, 36, 2560, 1024, 151_936, 4096, 9728, 158_216.0, 194_056.0)
"""Qwen3-4B's shape, from its published configuration."""


def four_b(**train):
    return RunConfig(
        policy=PolicyConfig(model="x", dtype="float32" if train.get("method") == "full" else "bfloat16", device="cuda"),
        searcher=SearcherConfig(max_turns=10, max_turn_tokens=256, max_episode_tokens=2048),
        train=TrainConfig(**{"questions_per_step": 4, "group_size": 4, "accumulation": 16, "gradient_checkpointing": True, **train}),
        evaluate=EvaluateConfig(batch_size=8),
    )


def test_four_billion_parameters_fit_24_gib_and_what_to_change_where_not():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    plan = plan_memory(four_b(), FOUR_B, card)
    assert plan.device == "cuda"
    assert 9 * GIB < plan.peak < 22 * GIB
    assert plan_memory(four_b(gradient_checkpointing=False, accumulation=1), FOUR_B, card).largest.setting == "train.gradient_checkpointing"
    whole = plan_memory(four_b(accumulation=1), FOUR_B, card).needs(UPDATE)
    assert plan_memory(four_b(accumulation=2), FOUR_B, card).needs(UPDATE) == whole > plan.needs(UPDATE), "cut into parts"
    several = [plan_memory(four_b(num_processes=2, accumulation=accumulation), FOUR_B, card).needs(UPDATE) for accumulation in (1, 4)]
    assert several[0] > several[1] > plan.needs(UPDATE), "not cut"
    assert plan_memory(four_b(questions_per_step=64), FOUR_B, card).largest.setting in ("train.questions_per_step", "train.accumulation")
    assert plan_memory(four_b(lora=LoraSection(r=64)), FOUR_B, card).peak > plan.peak


def test_the_config_for_one_card_fits_it_and_its_smoke_run_can_be_split():
    folder = Path(__file__).parents[3] / "deployments" / "configs"
    config = load_config([folder / "rtx3090.yaml"], environment={})
    assert plan_memory(config, FOUR_B, {"cpu": 64 * GIB, "cuda": 24 * GIB}).peak < 0.9 * 24 * GIB
    smoke = load_config([folder / "rtx3090.yaml", folder / "quick.yaml"], environment={})
    for each in (config, smoke):
        assert each.train.questions_per_step * each.train.group_size % each.train.accumulation == 0


def test_four_bits_and_all_weights_in_the_plan():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    whole = four_b()
    quantised = whole.model_copy(update={"policy": whole.policy.model_copy(update={"load_in_4bit": True})})
    linear = FOUR_B.parameters - 151_936 * 2560  # the embedding, which is the head, too, stays as it is
    assert plan_memory(whole, FOUR_B, card).peak - plan_memory(quantised, FOUR_B, card).peak == pytest.approx(1.48 * linear, rel=1e-3)
    full = plan_memory(four_b(method="full"), FOUR_B, card)
    assert full.peak > 24 * GIB and full.largest.setting == "train.method"


def test_an_engine_of_its_own_takes_its_share_only_where_it_runs_here():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    colocated, served = (plan_memory(four_b(vllm=VllmConfig(mode=mode)), FOUR_B, card) for mode in ("colocate", "server"))
    for phase in (PREFLIGHT, HELD_OUT, SAMPLING):
        assert colocated.needs(phase) - served.needs(phase) == 12 * GIB
        assert not any(part.name == "key-value cache" for part in colocated.phases[phase])
    assert colocated.needs(EVALUATION) == served.needs(EVALUATION), "played by transformers"


def test_the_judge_counts_only_while_it_shares_the_card():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    peaks = []
    for loaded in ("after", "always"):
        config = four_b().model_copy(update={"judge": JudgeConfig(kind="ollama", loaded=loaded)})
        peaks.append(plan_memory(config, FOUR_B, card).peak)
    assert peaks[1] - peaks[0] == pytest.approx(4.7e9)


def test_a_judge_that_works_while_others_are_sampled_counts_there():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    overlapped, afterwards = (
        plan_memory(four_b().model_copy(update={"judge": JudgeConfig(kind="ollama", loaded=loaded)}), FOUR_B, card)
        for loaded in ("sampling", "after")
    )
    for phase in (PREFLIGHT, HELD_OUT, SAMPLING, EVALUATION):
        assert [part.setting for part in overlapped.phases[phase]][-1] == "judge.loaded"
    assert "judge" not in {part.name for part in (*overlapped.phases[UPDATE], *sum(afterwards.phases.values(), ()))}


def test_every_phase_has_a_plan_of_its_own_batch():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    small, large = (
        plan_memory(four_b().model_copy(update={"evaluate": EvaluateConfig(batch_size=size)}), FOUR_B, card) for size in (8, 64)
    )
    for phase in (PREFLIGHT, HELD_OUT, EVALUATION):
        few, many = (next(part for part in plan.phases[phase] if part.name == "key-value cache") for plan in (small, large))
        assert many.num_bytes == 8 * few.num_bytes and many.setting == "evaluate.batch_size"
    assert large.worst in (PREFLIGHT, HELD_OUT) and large.peak > 24 * GIB
    for phase in (SAMPLING, UPDATE):
        assert large.needs(phase) == small.needs(phase)
    assert large.needs(HELD_OUT) - large.needs(EVALUATION) == pytest.approx(count_trained(four_b().train, FOUR_B) * 20), "no optimiser"
    longer = plan_memory(four_b(), FOUR_B, card, prompt_tokens=1024)
    assert all(longer.needs(phase) > small.needs(phase) for phase in (SAMPLING, UPDATE))
    assert f"in {small.worst}" in small.render() and "update" in small.render()


def test_worked_examples_count_where_evaluations_are_played():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    without, shown = (plan_memory(four_b().changed({"evaluate.shots": shots}), FOUR_B, card) for shots in (0, 2))
    assert {phase for phase in without.phases if shown.needs(phase) > without.needs(phase)} == {EVALUATION}
    assert all(shown.needs(phase) >= without.needs(phase) for phase in without.phases)


def test_layers_merged_while_training_plays_count_there_and_nowhere_else():
    card = {"cpu": 64 * GIB}
    small = replace(FOUR_B, parameters=134_000_000)
    config = four_b().changed({"policy.dtype": "float32", "policy.load_in_4bit": False, "policy.device": "cpu"})
    phases = plan_memory(config, small, card).phases
    merged = {name for name, parts in phases.items() if any(part.name == "merged layers" for part in parts)}
    assert merged == {PREFLIGHT, HELD_OUT, SAMPLING}
    halved = plan_memory(config.changed({"policy.dtype": "bfloat16"}), small, card).phases
    wide, narrow = (next(part.num_bytes for part in plan[SAMPLING] if part.name == "merged layers") for plan in (phases, halved))
    assert wide == 2 * narrow
    card = {"cpu": 64 * GIB, "cuda": 64 * GIB}
    on_card = config.changed({"policy.dtype": "bfloat16", "policy.device": "cuda"})
    for other, shape in ((on_card, small), (config, FOUR_B), (four_b(method="full"), small)):
        assert not any(part.name == "merged layers" for parts in plan_memory(other, shape, card).phases.values() for part in parts)


def test_the_shape_is_read_without_weights(model_dir):
    shape = measure_shape(of_model(str(model_dir)))
    assert (shape.layers, shape.hidden, shape.kv_width, shape.query_width, shape.intermediate) == (2, 64, 32, 32, 128)
    assert len(shape.linear_widths) == 14
    assert shape.parameters < 200_000


def test_weights_as_the_model_has_them_are_counted_so(model_dir):
    auto = RunConfig(policy=PolicyConfig(model=str(model_dir), dtype="auto", device="cpu"))
    plain = auto.changed({"policy.dtype": "float32"})
    plans = [plan_memory(config, measure_shape(config), {"cpu": GIB}).peak for config in (auto, plain)]
    assert measure_shape(auto).width == 4 and plans[0] == plans[1]


def test_four_bits_below_float32_need_more_than_below_bfloat16(model_dir):
    few = RunConfig(policy=PolicyConfig(model=str(model_dir), dtype="bfloat16", load_in_4bit=True, device="cuda"))
    many = few.changed({"policy.dtype": "float32"})
    shapes = [measure_shape(config) for config in (few, many)]
    assert shapes[1].saved > 1.3 * shapes[0].saved
    plans = [plan_memory(config, shape, {"cpu": GIB, "cuda": GIB}) for config, shape in zip((few, many), shapes, strict=True)]
    lower, higher = (sum(part.num_bytes for part in plan.phases[UPDATE] if part.name == "weights") for plan in plans)
    assert higher > 1.3 * lower


def test_a_single_layer_counts_as_much_as_one_of_several(tmp_path):
    """Of an architecture whose configuration lists the kind of every layer."""
    small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    for layers in (1, 3):
        AutoConfig.for_model("qwen3", **small, num_hidden_layers=layers).save_pretrained(tmp_path / str(layers))
    one, three = (measure_shape(of_model(str(tmp_path / layers))) for layers in ("1", "3"))
    assert (one.layers, three.layers) == (1, 3)
    assert one.saved == three.saved > 0


def test_a_model_with_a_window_is_counted_as_it_learns_row_by_row(tmp_path):
    small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4}
    for window in (None, 16):
        AutoConfig.for_model("mistral", **small, num_hidden_layers=2, sliding_window=window).save_pretrained(tmp_path / str(window))
    plain, windowed = (measure_shape(of_model(str(tmp_path / window))) for window in ("None", "16"))
    assert windowed.saved == pytest.approx(plain.saved, rel=0.1)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_autograd_keeps_is_counted_as_it_is_kept(method, model_dir):
    """Against the same count of a real forward pass, of more tokens than the one that is counted without weights."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape = measure_shape(of_model(str(model_dir), method))
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    backbone = model.base_model
    if method == "lora":
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=TrainConfig().lora.r, target_modules="all-linear"))
    kept, tokens = {}, 200

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = backbone(torch.zeros(1, tokens, dtype=torch.long), attention_mask=torch.ones(1, tokens, dtype=torch.long), use_cache=False)
    assert output.last_hidden_state.requires_grad
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    real = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights) / tokens
    once = 8 * shape.hidden * 4  # embedding, last norm, places
    assert real - once <= shape.layers * shape.saved <= real * 1.2


@pytest.mark.parametrize("model", ["/no/such/model", "nobody/has-published-this", "damaged"])
def test_a_shape_that_cannot_be_read_is_one_clear_error(model, tmp_path):
    if model == "damaged":
        (tmp_path / "config.json").write_text("{")
        model = str(tmp_path)
    with pytest.raises(ModelError, match=r"policy\.model"):
        measure_shape(of_model(model))


def of_model(model, method="lora"):
    return RunConfig(policy=PolicyConfig(model=model, dtype="float32"), train=TrainConfig(method=method))


class Batches:
    """A system and a sampler that only note what they are asked."""

    def __init__(self):
        self.seen = []

    def play(self, questions, sampler, sampling):
        self.seen.append((list(questions), sampling.first_row))
        return list(questions)


def test_what_is_played_before_training_is_played_in_batches_with_the_draws_of_one():
    environment = Batches()
    assert play_in_batches("abcdefg", environment, None, Sampling(1.0, seed=3, first_row=10), 3) == list("abcdefg")
    assert environment.seen == [(["a", "b", "c"], 10), (["d", "e", "f"], 13), (["g"], 16)]
