"""Arguments, data order, and the block-wise forward pass against TRL's own."""

from collections import Counter, defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from slmsearch.config import RewardConfig, RunConfig, SearcherConfig, TrainConfig, VllmConfig
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.models.attention import use_attention
from slmsearch.training.callbacks import StepCallback
from slmsearch.training.grpo import GAP, SearchTrainer
from slmsearch.training.grpo_settings import make_arguments, num_steps, order_questions
from slmsearch.training.parts import Unheard, cut_batch
from slmsearch.training.phase_timer import PhaseTimer
from slmsearch.training.rows import split_blocks
from slmsearch.training.tree import TreeCheck


def test_every_pass_takes_every_question_once():
    order = order_questions(num_questions=5, num_rows=12, seed=3)
    assert len(order) == 12
    assert sorted(order[:5]) == sorted(order[5:10]) == [0, 1, 2, 3, 4]
    assert order[:5] != order[5:10]
    assert order == order_questions(5, 12, 3) != order_questions(5, 12, 4)


def test_a_step_may_hold_more_questions_than_there_are():
    assert Counter(order_questions(3, 8, 0)).most_common()[0][1] == 3


@pytest.mark.parametrize(("steps", "epochs", "expected"), [(7, 9.0, 7), (0, 1.0, 3), (0, 0.5, 2), (0, 0.01, 1)])
def test_steps_as_configured_or_from_epochs(steps, epochs, expected):
    # 20 questions, 8 a step: a pass takes 2.5 steps.
    assert num_steps(TrainConfig(steps=steps, epochs=epochs, questions_per_step=8), 20) == expected


def test_episodes_that_cannot_be_dealt_out_evenly(tmp_path):
    config = RunConfig(train=TrainConfig(questions_per_step=3, group_size=3, accumulation=2))
    with pytest.raises(ConfigError, match="9 episodes a step"):
        make_arguments(SearcherEnvironment(config), tmp_path, 10, use_cpu=True)


def test_groups_that_processes_share_are_refused_where_one_answer_pays_for_the_others(tmp_path):
    train = TrainConfig(questions_per_step=3, group_size=8, num_processes=2)
    with pytest.raises(ConfigError, match=r"whole groups in each of 2 processes: change train\.group_size"):
        make_arguments(SearcherEnvironment(RunConfig(train=train, reward=RewardConfig(abstained=0.2))), tmp_path, 10, use_cpu=True)


def test_arguments_follow_the_configuration(tmp_path):
    train = TrainConfig(questions_per_step=6, group_size=4, accumulation=3, kl_coef=0.01, scale_rewards="group")
    arguments = make_arguments(SearcherEnvironment(RunConfig(train=train)), tmp_path, 10, use_cpu=True)
    assert arguments.per_device_train_batch_size == 8
    assert arguments.generation_batch_size == 24
    assert (arguments.beta, arguments.loss_type, arguments.scale_rewards) == (0.01, "dapo", "group")
    assert not arguments.mask_truncated_completions and not arguments.gradient_checkpointing and not arguments.bf16


def test_vllm_is_asked_for_in_trls_words(tmp_path):
    searcher = SearcherConfig(max_episode_tokens=2048)
    config = RunConfig(searcher=searcher, train=TrainConfig(vllm=VllmConfig(mode="colocate", gpu_memory_frac=0.4)))
    arguments = make_arguments(SearcherEnvironment(config), tmp_path, 10, use_cpu=True)
    assert (arguments.use_vllm, arguments.vllm_mode, arguments.vllm_enable_sleep_mode) == (True, "colocate", False)
    assert arguments.vllm_gpu_memory_utilization == 0.4
    served = RunConfig(train=TrainConfig(vllm=VllmConfig(mode="server", base_url="http://gpu:8000")))
    arguments = make_arguments(SearcherEnvironment(served), tmp_path, 10, use_cpu=True)
    assert (arguments.vllm_mode, arguments.vllm_server_base_url) == ("server", "http://gpu:8000")
    assert not make_arguments(SearcherEnvironment(RunConfig()), tmp_path, 10, use_cpu=True).use_vllm


def test_nothing_is_broadcast_in_forward_passes_whose_number_differs_by_process(tmp_path):
    arguments = make_arguments(SearcherEnvironment(RunConfig()), tmp_path, 10, use_cpu=True)
    assert arguments.ddp_broadcast_buffers is False
    assert arguments.ddp_timeout >= 2 * 3600  # the pre-flight plays in the first process alone


def test_blocks_by_length_score_as_one_padded_batch(model_dir):
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    model = AutoModelForCausalLM.from_pretrained(model_dir)
    add_fused_lm_head(model, temperature=0.9, outputs=("log_probs", "entropy"))
    torch.manual_seed(0)
    rows, prompt, completion = 37, 9, 30
    ids = torch.randint(5, model.config.vocab_size, (rows, prompt + completion))
    prompt_lengths, lengths = torch.randint(1, prompt + 1, (rows, 1)), torch.randint(0, completion + 1, (rows, 1))
    lengths[0] = 0  # dropped as truncated: nothing of its completion is attended to
    columns = torch.arange(prompt + completion)
    mask = ((columns >= prompt - prompt_lengths) & (columns < prompt + lengths)).long()
    trainer = SearchTrainer.__new__(SearchTrainer)
    trainer.accelerator = SimpleNamespace(autocast=torch.no_grad, is_main_process=True)
    whole = GRPOTrainer._get_per_token_logps_and_entropies(trainer, model, ids, mask, completion, compute_entropy=True)
    ours = trainer.score_rows(model, ids, mask, mask.bool(), completion, compute_entropy=True)
    scored = mask[:, prompt:].bool()
    for a, b in zip(ours[:2], whole[:2], strict=True):
        assert a.shape == b.shape == (rows, completion)
        torch.testing.assert_close(a[scored], b[scored], atol=1e-4, rtol=1e-4)


class Stub(SearchTrainer):
    """A trainer without data: enough to compute a loss."""

    def __init__(self, model_dir, beta=0.0):
        from transformers import AutoModelForCausalLM
        from trl.trainer.utils import add_fused_lm_head

        model = AutoModelForCausalLM.from_pretrained(model_dir)
        use_attention(model)
        add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
        values = {
            "model": model.train(),
            "accelerator": SimpleNamespace(
                autocast=nullcontext,
                is_main_process=True,
                num_processes=1,
                gather=lambda x: x,
                reduce=lambda x, reduction: x,
                backward=lambda loss: loss.backward(),
            ),
            "aux_loss_enabled": False,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "importance_sampling_level": "token",
            "beta": beta,
            "loss_type": "dapo",
            "epsilon_low": 0.2,
            "epsilon_high": 0.28,
            "use_vllm": False,
            "_entropy_bonus_enabled": False,
            "temperature": 1.0,
            "current_gradient_accumulation_steps": 1,
            "args": SimpleNamespace(
                use_cpu=True, delta=None, gradient_accumulation_steps=1, steps_per_generation=1, use_bias_correction_kl=False, report_to=[]
            ),
            "state": SimpleNamespace(global_step=0),
            "_metrics": {"train": defaultdict(list)},
        }
        self.__dict__.update(values)

    def gradient(self, compute_loss, inputs):
        self.model.zero_grad()
        loss = compute_loss(self.model, inputs)
        loss.backward()
        return loss.detach(), torch.cat([weight.grad.flatten() for weight in self.model.parameters()])


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("advantages", [[0.5, 0.25, -0.5, 1e-9, 0.1], [0.0] * 5])
@pytest.mark.parametrize("nodes", [0, 1, 30, 1000])
@pytest.mark.parametrize("over_trees", [True, False])
def test_what_is_left_out_changes_neither_loss_nor_gradient_however_the_batch_is_cut(model_dir, beta, advantages, nodes, over_trees):
    torch.manual_seed(0)
    rows, prompt, completion = 5, 6, 20
    completion_mask = (torch.arange(completion) < torch.tensor([[20], [11], [7], [3], [0]])).long()  # the last: dropped as truncated
    inputs = {
        "prompt_ids": torch.randint(5, 250, (rows, prompt)),
        "prompt_mask": (torch.arange(prompt) >= torch.tensor([[0], [3], [1], [5], [2]])).long(),
        "completion_ids": torch.randint(5, 250, (rows, completion)),
        "completion_mask": completion_mask,
        "tool_mask": (torch.rand(rows, completion) < 0.4).long(),
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(17.0),
    }
    inputs["tool_mask"][2, 3:7] = torch.tensor([1, 0, 1, 1])
    for name in inputs.keys() - {"num_items_in_batch"}:  # three more of the third episode: the same, another end, another mask
        inputs[name] = torch.cat([inputs[name], inputs[name][[2, 2, 2]]])
    inputs["completion_ids"][6, 6] = 3
    inputs["tool_mask"][7, 4] = 1
    inputs["sampled_mask"] = inputs["tool_mask"] * inputs["completion_mask"]
    inputs["tool_mask"][1] = 0  # cut off by its stop reason: sampled, and not learnt from
    for name in ("ref_per_token_logps", "sampling_per_token_logps"):
        inputs[name] = torch.full((rows + 3, completion), -5.0)
    trainer = Stub(model_dir, beta)
    trainer.nodes_per_part = nodes
    if not over_trees:
        trainer.tree_check = TreeCheck(1.0, False)
    loss, gradient = trainer.gradient(trainer._compute_loss, inputs)
    plain_loss, plain_gradient = trainer.gradient(PlainStub(trainer)._compute_loss, inputs)
    torch.testing.assert_close(loss, plain_loss, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(gradient, plain_gradient, atol=1e-5, rtol=1e-3)
    if beta or any(abs(advantage) > 1e-6 for advantage in advantages):
        assert gradient.abs().max() > 1e-3
    assert not over_trees or (trainer.tree_check.passed and trainer.tree_check.difference < 1e-5)
    assert [float(gap) for gap in trainer._metrics["train"][GAP]] == [pytest.approx(gap_of(trainer.model, inputs), abs=1e-5)]


def test_the_parts_of_a_batch_hold_each_row_once_and_no_more_than_they_may(model_dir):
    trainer, (ids, real, needed) = Stub(model_dir), rows_of_groups()
    rows = needed.any(1).nonzero()[:, 0].tolist()
    for most in (1, 40, 90, 1000):
        for over_trees in (True, False):
            parts = list(cut_batch(trainer.model, ids, real, needed, most, over_trees))
            assert sorted(row for taken, _ in parts for row in taken.tolist()) == rows
            for taken, trees in parts:
                size = len(trees[0].tree.ids) if over_trees else int(real[taken].sum())
                assert len(taken) == 1 or size <= most
    assert len(parts) == 1


def rows_of_groups():
    """Three groups of four that share their openings; ids, mask and needed tokens, one row with none."""
    torch.manual_seed(1)
    ids = torch.randint(5, 250, (12, 25))
    for row in range(12):
        ids[row, :10] = ids[row - row % 4, :10]
    real = (torch.arange(25) < torch.randint(12, 26, (12, 1))).long()
    needed = real.bool() & (torch.arange(25) >= 10)
    needed[5] = False
    return ids, real, needed


class Reads(TorchDispatchMode):
    """Counts how often the host reads a value that is computed, for which it would wait for a card."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default or func is torch.ops.aten.nonzero.default
        return func(*args, **(kwargs or {}))


def test_between_the_parts_of_an_update_nothing_waits_for_a_card(model_dir, monkeypatch):
    ids, real, needed = rows_of_groups()
    inputs = {
        "prompt_ids": ids[:, :10],
        "prompt_mask": real[:, :10],
        "completion_ids": ids[:, 10:],
        "completion_mask": real[:, 10:],
        "tool_mask": needed[:, 10:].long(),
        "sampled_mask": needed[:, 10:].long(),
        "advantages": torch.linspace(-1, 1, 12),
        "num_items_in_batch": needed.sum().float(),
        "sampling_per_token_logps": torch.full((12, 15), -5.0),
    }
    trainer, counts = Stub(model_dir), []
    trainer.tree_check = TreeCheck(0.0, True)
    for nodes in (0, 1, 1000):
        trainer.nodes_per_part = nodes
        with Reads() as reads:
            trainer._compute_loss(trainer.model, inputs)
        counts.append(reads.count)
        for name in ("nanmin", "nanmax"):  # of numbers that lie on the host: see `Unheard`
            monkeypatch.setattr(grpo_trainer, name, lambda tensor: tensor)
        monkeypatch.setattr(Unheard, "gather", lambda accelerator, tensor: HOST)
        monkeypatch.setattr(Unheard, "reduce", lambda accelerator, tensor, reduction: [HOST, SimpleNamespace(clamp=lambda min: 1.0)])
    assert counts[0] > counts[1] == counts[2] == 2, "whether anything is taught, and whether anything is left, before the first part"


class _Host:
    """A number that no card has to be waited for."""

    def __truediv__(self, other):
        return self

    def item(self):
        return 0.0


HOST = _Host()


@torch.no_grad()
def gap_of(model, inputs):
    """The mean gap to the sampler over every token that was sampled, episode by episode."""
    gaps = []
    for row in range(len(inputs["prompt_ids"])):
        prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row] == 1]
        completion = inputs["completion_ids"][row][inputs["completion_mask"][row] == 1]
        ids = torch.cat([prompt, completion])[None]
        scores = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        gaps += [-5.0 - float(scores[k, i]) for k, i in enumerate(completion) if inputs["sampled_mask"][row, k]]
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_tool_text_that_is_next_to_impossible_makes_no_nan(model_dir, beta):
    """A vLLM run has the old log-probabilities of tool text, too: at a low temperature e to their difference is more than a float."""
    torch.manual_seed(0)
    inputs = {
        "prompt_ids": torch.randint(5, 250, (2, 4)),
        "prompt_mask": torch.ones(2, 4, dtype=torch.long),
        "completion_ids": torch.randint(5, 250, (2, 6)),
        "completion_mask": torch.ones(2, 6, dtype=torch.long),
        "tool_mask": torch.tensor([[1, 0, 0, 1, 1, 1]] * 2),
        "advantages": torch.tensor([0.5, -0.5]),
        "num_items_in_batch": torch.tensor(8.0),
    }
    for name in ("ref_per_token_logps", "old_per_token_logps"):
        inputs[name] = torch.where(inputs["tool_mask"] == 1, -5.0, -95.0)
    trainer = Stub(model_dir, beta)
    loss, gradient = trainer.gradient(trainer._compute_loss, inputs)
    assert loss.isfinite() and gradient.isfinite().all() and gradient.abs().max() > 1e-3


class PlainStub(GRPOTrainer):
    """TRL's own trainer over what a `Stub` holds."""

    def __init__(self, stub):
        self.__dict__.update(stub.__dict__)


@pytest.mark.parametrize("logs", [{"loss": float("nan"), "grad_norm": 1.0}, {"loss": 0.1, "grad_norm": float("inf")}])
def test_a_loss_that_is_no_number_stops_training(logs):
    callback = StepCallback(SimpleNamespace(metrics={}), lambda report: None, lambda: False, TrainConfig(), PhaseTimer())
    state = SimpleNamespace(is_world_process_zero=True, global_step=7)
    with pytest.raises(TrainingError, match=r"at step 7: lower train\.learning_rate"):
        callback.on_log(None, state, None, logs=logs)


def test_long_episodes_go_through_the_model_in_smaller_blocks():
    lengths = [100] * 20 + [1000] * 5 + [3000, 5000]
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    blocks = split_blocks(list(range(len(lengths))), mask)
    assert torch.cat(blocks).tolist() == list(range(len(lengths)))
    assert [len(block) for block in blocks] == [16, 4, 4, 1, 1, 1]
