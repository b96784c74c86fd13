"""Trees of rows: every history once, and the same log-probabilities and gradients as row by row, on real architectures."""

import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from slmsearch.models.attention import ATTENTION, use_attention
from slmsearch.training import tree as trees_module
from slmsearch.training.fused_lora import fused_lora
from slmsearch.training.grpo import SearchTrainer
from slmsearch.training.losses import causal_of
from slmsearch.training.tree import CALL_COST, TreeAncestry, build_trees, check_tree, score_tree
from tests.slmsearch.sampling.kernels import take_cpu

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=10)
VOCABULARY = 97
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
KINDS = ("llama", "qwen2", "qwen3", "granite")


@given(ROWS, st.integers(1, 40), st.sampled_from([1, CALL_COST // 8, CALL_COST]))
def test_every_history_is_a_node_once_and_sees_itself_alone(rows, most, width):
    found = {}
    for members, tree in build_trees(rows, most, width):
        histories = {tuple(rows[i][: k + 1]) for i in members for k in range(len(rows[i]))}
        assert len(tree.ids) == len(histories)
        assert len(members) == 1 or len(tree.ids) <= most
        ancestors = attended(tree)
        for n, i in enumerate(members):
            assert i not in found
            found[i] = tree.ids[tree.nodes[n]].tolist()
            assert tree.depths[tree.nodes[n]].tolist() == list(range(len(rows[i])))
            for k, node in enumerate(tree.nodes[n]):
                assert ancestors[node] == set(tree.nodes[n][: k + 1].tolist())
    assert [found[i] for i in range(len(rows))] == rows


def attended(tree):
    """What each node attends to, by the calls of attention."""
    seen = {}
    for call in tree.ancestry.calls:
        columns = [node for first, end in (*call.history, (call.first, call.end)) for node in range(first, end)]
        for row in range(call.end - call.first):
            node = call.first + row
            assert node not in seen
            causal = [column <= len(columns) - (call.end - node) for column in range(len(columns))]
            mask = call.mask[row].tolist() if call.mask is not None else causal
            seen[node] = {column for column, is_seen in zip(columns, mask, strict=True) if is_seen}
    assert sorted(seen) == list(range(len(tree.ids)))
    return seen


def test_a_block_ends_where_rows_have_least_in_common():
    groups = [[group, *range(10, 18), episode] for group in (1, 2) for episode in range(4)]
    trees = build_trees(groups, most=20, width=64)
    assert [members for members, _ in trees] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(tree.ids) for _, tree in trees] == [13, 13]


class Rows(SearchTrainer):
    """What scoring needs of a trainer."""

    def __init__(self, model, temperature=1.0):
        from trl.trainer.utils import add_fused_lm_head

        use_attention(model)
        add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
        self.__dict__ |= {"accelerator": SimpleNamespace(autocast=nullcontext, is_main_process=True), "temperature": temperature}


def make_model(kind, **changes):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SHAPE, **changes})).train()
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return model


def make_batch():
    """Two groups of four under one system prompt, of different lengths; some alike to a point, one a repetition, one cut off."""
    torch.manual_seed(1)
    shared, width = torch.randint(1, VOCABULARY, (9,)), 34
    ids, mask = torch.zeros(8, 14 + width, dtype=torch.long), torch.zeros(8, 14 + width, dtype=torch.long)
    needed = torch.zeros(8, 14 + width, dtype=torch.bool)
    for group in range(2):
        prompt, first = torch.cat([shared, torch.randint(1, VOCABULARY, (3 + 2 * group,))]), torch.randint(1, VOCABULARY, (12,))
        for episode in range(4):
            row = 4 * group + episode
            completion = torch.cat([first[: 12 - 3 * (episode % 3)], torch.randint(1, VOCABULARY, (5 * episode,))])
            if episode == 3:
                completion = torch.cat([first, torch.randint(1, VOCABULARY, (20,))])
            ids[row, 14 - len(prompt) : 14], mask[row, 14 - len(prompt) : 14] = prompt, 1
            ids[row, 14 : 14 + len(completion)], mask[row, 14 : 14 + len(completion)] = completion, 1
            needed[row, 14 : 14 + len(completion)] = torch.rand(len(completion)) < 0.6
    ids[5], mask[5], needed[5] = ids[6], mask[6], needed[6]
    needed[2] = False
    return ids, mask, needed, width


def gradients(model, logprobs, weights):
    model.zero_grad()
    (logprobs * weights).sum().backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["lora", "full", "checkpointed", "in blocks", "one kernel", "one kernel, checkpointed"])
def test_log_probabilities_and_gradients_are_those_of_rows(kind, method, monkeypatch):
    model = make_model(kind)
    if "one kernel" in method:
        take_cpu(monkeypatch)
        monkeypatch.setattr(TreeAncestry, "calls", property(lambda ancestry: pytest.fail("a call was made")))
    if method == "in blocks":
        monkeypatch.setattr(trees_module, "TOKENS_PER_BLOCK", 40)
    trainer = Rows(model, temperature=0.8)
    if method != "full":
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
        for name, weight in model.named_parameters():
            weight.data += 0.1 * torch.randn_like(weight) if "lora_B" in name else 0
    if "checkpointed" in method:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids, mask, needed, width = make_batch()
    weights = torch.randn(len(ids), width)
    rows, _ = trainer.score_rows(model, ids, mask, needed, width)
    by_rows = gradients(model, rows, weights)
    passes = list[bool]()
    causal_of(model).model.layers[0].self_attn.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    with fused_lora(model):
        trees = score_tree(trainer, model, ids, mask, needed, width)
        by_trees = gradients(model, trees, weights)
    assert len(passes) > 1 if method == "in blocks" else len(passes) == (2 if "checkpointed" in method else 1)
    if method == "full":
        again = score_tree(trainer, model, ids, mask, needed, width).sum()
        again.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="backward once"):
            again.backward()
    assert (trees != 0).equal(needed[:, -width:])
    torch.testing.assert_close(trees, rows, atol=1e-5, rtol=1e-5)
    assert (by_rows - by_trees).abs().max() <= 1e-5 * by_rows.abs().max()


def test_an_adapter_that_is_off_stays_off_in_fused_layers():
    model = get_peft_model(make_model("llama"), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += 1.0 if "lora_B" in name else 0.0
        with model.disable_adapter():
            bare = model(ids).logits
        with fused_lora(model) as layers, model.disable_adapter():
            assert layers > 0
            torch.testing.assert_close(model(ids).logits, bare)
        assert (model(ids).logits - bare).abs().max() > 0.1


@pytest.mark.parametrize(("kind", "changes"), [("mistral", {"sliding_window": 4}), ("gemma2", {}), ("mamba", {})])
def test_a_model_that_trees_do_not_suit_is_scored_row_by_row(kind, changes, caplog):
    model = make_model(kind, **changes)
    trainer = Rows(model)
    ids, mask, needed, width = make_batch()
    check = check_tree(trainer, model, ids, mask, needed, width)
    assert not check.passed and check.difference > 1e-4
    assert "row by row" in caplog.text
    trainer._needed = needed[:, -width:]
    scored, entropies, _ = trainer._get_per_token_logps_and_entropies(model, ids, mask, width, compute_entropy=True)
    rows, _ = trainer.score_rows(model, ids, mask, needed, width)
    torch.testing.assert_close(scored, rows)
    assert trainer.tree_check == check and entropies.abs().sum() > 0


@pytest.mark.parametrize("kernel", [False, True])
def test_the_check_sees_a_tree_that_is_wrong(kernel, monkeypatch):
    from slmsearch.training import tree

    model = make_model("llama")
    trainer, build = Rows(model), tree.build_trees
    arguments = (trainer, model, *make_batch())
    assert model.config._attn_implementation == ATTENTION
    assert check_tree(*arguments).passed
    if kernel:
        take_cpu(monkeypatch)
        assert check_tree(*arguments).passed

    def shifted(*given):
        built = build(*given)
        return [(members, dataclasses.replace(one, depths=one.depths + torch.arange(len(one.depths)))) for members, one in built]

    monkeypatch.setattr(trees_module, "build_trees", shifted)
    assert not check_tree(*arguments).passed
