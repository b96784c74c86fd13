"""What an update makes on the way: no tensor of tokens times vocabulary, and nothing a card is waited for block by block."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slmsearch.training import block_sizes, losses
from slmsearch.training import tree as trees_module
from slmsearch.training.encoding import IGNORED
from slmsearch.training.losses import token_losses
from slmsearch.training.sft import DemonstrationTrainer
from slmsearch.training.tree import score_tree, tree_inputs
from tests.slmsearch.training.test_tree import Rows, make_batch, make_model

VOCABULARY, TOKENS = 4096, 8
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")
"""What reads a tensor on the host or makes one whose size depends on it."""


class Watch(TorchDispatchMode):
    """Notes the largest tensor of floats that is made, and every operation that a card would be waited for."""

    def __init__(self):
        super().__init__()
        self.largest, self.waits = 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        name = operation.__name__.partition(".")[0].removesuffix("_static")
        is_chosen = any(isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(args[1:2]))
        if name in WAITING or (name in ("index", "index_put", "index_put_") and is_chosen):
            self.waits.append(name)
        given = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        new = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in given]
        floats = [leaf.numel() for leaf in new if leaf.is_floating_point()]
        self.largest = max([self.largest, *floats])
        return made


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(losses, "TILE_VALUES", TOKENS * VOCABULARY)
    assert block_sizes.TILE_VALUES * 4 == 64 << 20


@pytest.fixture
def model():
    model = make_model("llama", vocab_size=VOCABULARY)
    for frozen in (model.get_input_embeddings(), model.get_output_embeddings()):
        frozen.requires_grad_(False)
    return model


def make_part(rows=3):
    ids, mask, needed, _ = make_batch()
    return {"input_ids": ids[:rows], "attention_mask": mask[:rows], "labels": ids[:rows].masked_fill(~needed[:rows], IGNORED)}


def make_teacher(model, tokens_per_tree=0):
    trainer = DemonstrationTrainer.__new__(DemonstrationTrainer)
    args = SimpleNamespace(use_cpu=True, device=torch.device("cpu"), bf16=False)
    trainer.__dict__ |= {"args": args, "tokens_per_tree": tokens_per_tree, "context_weight": 0.3}
    return trainer


def test_logits_are_made_a_tile_at_a_time_over_trees(model, small_tiles):
    trainer = Rows(model)
    with Watch() as watch:
        score_tree(trainer, model, *make_batch()).sum().backward()
    assert watch.largest == TOKENS * VOCABULARY < int(make_batch()[2].sum()) * VOCABULARY


@pytest.mark.parametrize("tokens_per_tree", [0, 512])
def test_so_they_are_in_supervised_training(model, small_tiles, tokens_per_tree):
    trainer, part = make_teacher(model, tokens_per_tree), make_part()
    with Watch() as watch:
        if tokens_per_tree:
            sum(trainer._compute_tree(model, tree, 9, 9) for tree in trainer._as_trees(model, [part])).backward()
        else:
            trainer._compute_part(model, part, 9, 9).backward()
    assert watch.largest == TOKENS * VOCABULARY


def test_the_watch_sees_what_is_whole(model):
    hidden = torch.randn(3 * TOKENS, model.config.hidden_size, requires_grad=True)
    with Watch() as watch:
        token_losses(model, hidden, torch.zeros(3 * TOKENS, dtype=torch.long)).sum().backward()
    assert watch.largest == 3 * TOKENS * VOCABULARY


def test_nobody_waits_for_a_card_however_many_trees_there_are(model, monkeypatch):
    monkeypatch.setattr(trees_module, "TOKENS_PER_BLOCK", 40)
    trainer, sent = Rows(model), []
    monkeypatch.setattr(trees_module, "tree_inputs", lambda causal, tree: sent.append(tree) or tree_inputs(causal, tree))
    with Watch() as watch:
        score_tree(trainer, model, *make_batch()).sum().backward()
    assert len(sent) > 2 and watch.waits == []


def test_nor_in_supervised_training(model):
    trainer = make_teacher(model, 512)
    trees = trainer._as_trees(model, [make_part()])  # on the host
    with Watch() as watch:
        for tree in trees:
            trainer._compute_tree(model, tree, 9, 9).backward()
    assert watch.waits == []


def test_the_watch_sees_who_waits():
    values = torch.randn(4)
    with Watch() as watch:
        float(values.sum())
        values[values > 0].sum()
    assert watch.waits == ["_local_scalar_dense", "index"]
