"""Arguments, data order, and the block-wise forward pass against TRL's own."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer

from slmsearch.config import RunConfig, TrainConfig
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.learn.grpo import SearchTrainer, StepCallback, make_arguments, num_steps, order_questions


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
        make_arguments(config, tmp_path, 10, use_cpu=True)


def test_arguments_follow_the_configuration(tmp_path):
    train = TrainConfig(questions_per_step=6, group_size=4, accumulation=3, kl_coef=0.01, loss="dr_grpo", scale_rewards="group")
    arguments = make_arguments(RunConfig(train=train), tmp_path, 10, use_cpu=True)
    assert arguments.per_device_train_batch_size == 8
    assert arguments.generation_batch_size == 24
    assert (arguments.beta, arguments.loss_type, arguments.scale_rewards) == (0.01, "dr_grpo", "group")
    assert arguments.mask_truncated_completions and not arguments.gradient_checkpointing and not arguments.bf16


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
    ours = trainer._get_per_token_logps_and_entropies(model, ids, mask, completion, compute_entropy=True)
    scored = mask[:, prompt:].bool()
    for a, b in zip(ours[:2], whole[:2], strict=True):
        assert a.shape == b.shape == (rows, completion)
        torch.testing.assert_close(a[scored], b[scored], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("logs", [{"loss": float("nan"), "grad_norm": 1.0}, {"loss": 0.1, "grad_norm": float("inf")}])
def test_a_loss_that_is_no_number_stops_training(logs):
    callback = StepCallback(SimpleNamespace(metrics={}), lambda report: None, lambda: False, 1)
    state = SimpleNamespace(is_world_process_zero=True, global_step=7)
    with pytest.raises(TrainingError, match=r"at step 7: lower train\.learning_rate"):
        callback.on_log(None, state, None, logs=logs)
