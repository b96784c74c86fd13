"""Whole training runs in this process: what they learn, what they leave, and that they can be repeated and resumed exactly."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slmsearch.artifacts.files import file_hash
from slmsearch.config import PolicyConfig
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.teaching import select_questions
from slmsearch.errors import ModelError, TrainingError
from slmsearch.judge import ExactJudge
from slmsearch.models.hashes import trained_policy, weights_file
from slmsearch.models.load import load_model
from slmsearch.sampling.load_sampler import make_sampler
from slmsearch.training import training_run as training
from slmsearch.training.callbacks import StepCallback
from slmsearch.training.files import ADAPTER, CHECKPOINTS, MANIFEST, STEPS, STOP, checkpoint_step, latest_complete_checkpoint
from slmsearch.training.grpo import SearchTrainer
from slmsearch.training.job import read_manifest
from slmsearch.training.reports import read_reports, truncate_reports
from slmsearch.training.rollout_bridge import RolloutBridge
from tests.slmsearch.evaluate.builders import is_documented
from tests.slmsearch.training.through import train_through

TINY = Path(__file__).parents[3] / "data" / "models" / "tiny-searcher"


def adapter_hash(job):
    return file_hash(job.directory / ADAPTER / "adapter_model.safetensors")


def curve(job):
    """Everything reported that is not a time."""
    return [
        (report.step, {name: value for name, value in report.metrics.items() if not name.startswith("time/")})
        for report in read_reports(job.directory / STEPS)
    ]


def kept(monkeypatch, name):
    """What a function of the training process has returned."""
    made, function = [], getattr(training, name)

    def keeping(*args, **kwargs):
        made.append(function(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(training, name, keeping)
    return made


def cut_updates(monkeypatch, nodes):
    """Let updates go over parts of so many nodes; 0: over all at once, as on several devices."""
    assemble = training._assemble

    def assembling(*args):
        made = assemble(*args)
        made[0].nodes_per_part = nodes
        return made

    monkeypatch.setattr(training, "_assemble", assembling)


@pytest.mark.parametrize(
    "settings", [{}, {"accumulation": 2}, {"kl_coef": 0.05}, {"method": "full"}, {"gradient_checkpointing": True}], ids=str
)
def test_an_update_in_parts_is_the_update(make_job, toolbox, questions, monkeypatch, settings):
    settings = {"steps": 1, "questions_per_step": 4, "learning_rate": 1e-3, **settings}
    whole, cut = make_job("whole", **settings), make_job("cut", **settings)
    with monkeypatch.context() as uncut:
        cut_updates(uncut, 0)
        train_through(toolbox, questions, whole)
    parts, learn = [], SearchTrainer._take_loss
    monkeypatch.setattr(SearchTrainer, "_take_loss", lambda *given: parts.append(len(given[3])) or learn(*given))
    cut_updates(monkeypatch, 60)
    train_through(toolbox, questions, cut)
    assert len(parts) > 3 and max(parts) < 16
    (_, before), (_, after) = curve(whole)[0], curve(cut)[0]
    assert after == pytest.approx(before, rel=1e-4, abs=1e-6)
    names = sorted(path.name for path in (whole.directory / ADAPTER).glob("*.safetensors"))
    for name in names:
        one, other = (load_file(job.directory / ADAPTER / name) for job in (whole, cut))
        # AdamW's first step is the sign of a gradient times the rate: where that is next to nothing, its sign is chance.
        apart = sum(int(((one[key] - other[key]).abs() > 1e-5).sum()) for key in one)
        assert one.keys() == other.keys() and apart <= 0.01 * sum(weight.numel() for weight in one.values())


def test_the_toy_reward_rises_and_everything_is_left_in_place(make_job, toolbox, questions):
    job = make_job(steps=16, group_size=8)
    train_through(toolbox, questions, job)
    rewards = [metrics["reward/mean"] for _, metrics in curve(job)]
    assert [step for step, _ in curve(job)] == list(range(1, 17))
    assert sum(rewards[:2]) / 2 < 0.5 and sum(rewards[-4:]) / 4 > 0.7
    metrics = read_reports(job.directory / STEPS)[0].metrics
    assert all(is_documented(name) for name in metrics)
    assert {"loss", "optim/grad_norm", "reward/std", "stop/answered", "time/rollout_s", "time/step_s"} <= set(metrics)
    manifest = json.loads((job.directory / MANIFEST).read_text())
    assert manifest["adapter_hash"] == adapter_hash(job)
    assert manifest["steps"] == 16
    settings = json.loads((job.directory / ADAPTER / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == job.config.policy.model
    assert not any("lm_head" in name for name in settings["target_modules"])


def test_sampler_and_trainer_agree_token_for_token(make_job, toolbox, questions):
    job = make_job(steps=3, temperature=0.7)
    train_through(toolbox, questions, job)
    gaps = [metrics["policy/kl_sampler"] for _, metrics in curve(job)]
    assert gaps == pytest.approx([0.0] * 3, abs=1e-5)
    assert any(gap != 0.0 for gap in gaps)  # it was measured, not left out


def test_same_seed_same_bytes_and_another_seed_others(make_job, toolbox, questions):
    first, second, third = make_job("first"), make_job("second"), make_job("third", seed=1)
    for job in (first, second, third):
        train_through(toolbox, questions, job)
    assert curve(first) == curve(second) != curve(third)
    assert adapter_hash(first) == adapter_hash(second) != adapter_hash(third)
    # File by file, because what is hashed into keys is more than the weights.
    names = sorted(path.name for path in (first.directory / ADAPTER).iterdir())
    assert all((first.directory / ADAPTER / name).read_bytes() == (second.directory / ADAPTER / name).read_bytes() for name in names)


@pytest.mark.parametrize("nodes", [0, 60])
@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"accumulation": 2}, {"algorithm": "rloo"}, {"method": "full", "learning_rate": 1e-4}),
        *({"scale_rewards": "group"}, {"scale_rewards": "batch"}),
    ],
    ids=str,
)
def test_a_step_in_which_no_group_tells_episodes_apart_moves_no_weight(make_job, toolbox, questions, monkeypatch, settings, nodes):
    """AdamW's momentum would; the step before and the one after move them. Means of 0.7 are not 0.7 in float32."""
    sample, end, seen = RolloutBridge._sample, StepCallback.on_step_end, []

    def sampling(bridge, asked, trainer):
        output = sample(bridge, asked, trainer)
        if trainer.state.global_step == 2:
            bridge.rewards = [0.7] * len(asked)
        return {**output, "episode_reward": bridge.rewards}

    def ending(callback, args, state, control, **known):
        seen.append({name: weight.detach().clone() for name, weight in known["model"].named_parameters() if weight.requires_grad})
        end(callback, args, state, control, **known)

    monkeypatch.setattr(RolloutBridge, "_sample", sampling)
    monkeypatch.setattr(StepCallback, "on_step_end", ending)
    cut_updates(monkeypatch, nodes)
    job = make_job(steps=4, group_size=8, **settings)
    train_through(toolbox, questions, job)
    moved = [any(not torch.equal(old[name], new[name]) for name in old) for old, new in pairwise(seen)]
    assert moved == [True, False, True]
    reports = read_reports(job.directory / STEPS)
    rates = [report.metrics["optim/learning_rate"] for report in reports]
    assert reports[2].metrics["optim/grad_norm"] == 0.0
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == 4, "the schedule goes on"


def test_a_resumed_run_ends_with_the_bytes_of_an_uninterrupted_one(make_job, toolbox, questions):
    settings = {"steps": 9, "checkpoint_steps": 4, "accumulation": 2}  # seven questions, two a step: the third pass begins at step 8
    whole, broken = make_job("whole", **settings), make_job("broken", **settings)
    train_through(toolbox, questions, whole)

    class Killed(BaseException):
        pass

    class DyingToolbox(Toolbox):
        def serve(self, calls, views=()):
            if len(read_reports(broken.directory / STEPS)) == 6:
                raise Killed
            return super().serve(calls, views)

    with pytest.raises(Killed):
        train_through(DyingToolbox(toolbox.library, toolbox.index, 4, 1500), questions, broken)
    checkpoint = latest_complete_checkpoint(broken.directory / CHECKPOINTS)
    assert checkpoint_step(checkpoint) == 4
    truncate_reports(broken.directory / STEPS, 4)
    train_through(toolbox, questions, broken, checkpoint)
    assert curve(broken) == curve(whole)
    assert adapter_hash(broken) == adapter_hash(whole)
    assert json.loads((broken.directory / MANIFEST).read_text())["resumed_from"] == 4


def test_killed_between_the_last_step_and_the_adapter(make_job, toolbox, questions):
    job = make_job(steps=2)
    train_through(toolbox, questions, job)
    before = adapter_hash(job)
    (job.directory / MANIFEST).unlink()
    train_through(toolbox, questions, job, latest_complete_checkpoint(job.directory / CHECKPOINTS))
    assert adapter_hash(job) == before
    assert len(curve(job)) == 2


def test_asked_to_stop_it_saves_and_says_that_it_is_not_done(make_job, toolbox, questions):
    job = make_job(steps=5, checkpoint_steps=50)
    (job.directory / STOP).touch()
    with pytest.raises(TrainingError, match="stopped at step 1 of 5"):
        train_through(toolbox, questions, job)
    assert checkpoint_step(latest_complete_checkpoint(job.directory / CHECKPOINTS)) == 1
    assert not (job.directory / MANIFEST).exists()


def test_an_adapter_can_be_trained_further(make_job, toolbox, questions):
    first = make_job("first", steps=1)
    train_through(toolbox, questions, first)
    policy = first.config.policy.model_copy(update={"adapter": str(first.directory / ADAPTER)})
    second = make_job("second", steps=1)
    object.__setattr__(second, "config", second.config.model_copy(update={"policy": policy}))
    train_through(toolbox, questions, second)
    assert adapter_hash(second) != adapter_hash(first)


def test_questions_with_the_same_text_are_trained_on_once(questions):
    double = [questions[0], questions[1], questions[0], questions[2]]
    assert select_questions(double, 0) == questions[:3]
    assert select_questions(double, 2) == questions[:2]
    with pytest.raises(TrainingError, match="no question"):
        select_questions([], 0)


def test_a_context_that_a_whole_episode_exceeds_is_refused(make_job, toolbox, questions):
    job = make_job(preflight="record")
    searcher = job.config.searcher.model_copy(update={"max_episode_tokens": 1018})  # the prompt alone would fit into the toy's 1,024
    job = replace(job, config=job.config.model_copy(update={"searcher": searcher}))
    with pytest.raises(ModelError, match=r"the model's context ends at 1024: lower searcher\.max_episode_tokens"):
        train_through(toolbox, questions, job)


def test_all_weights_can_learn_instead_of_an_adapter(make_job, toolbox, questions):
    job = make_job(method="full", steps=12, group_size=8, learning_rate=1e-3)
    train_through(toolbox, questions, job, held_out=questions[:4])
    rewards = [metrics["reward/mean"] for _, metrics in curve(job)]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:2]) / 2 + 0.1
    result = read_manifest(job.directory)
    assert result is not None and result["adapter_hash"] == file_hash(job.directory / ADAPTER / "model.safetensors")
    policy = trained_policy(job.config.policy, str(job.directory / ADAPTER))
    assert (policy.model, policy.adapter) == (str(job.directory / ADAPTER), None)
    (trained, tokenizer), (start, before) = load_model(policy), load_model(job.config.policy)
    assert before.response_template and tokenizer.response_template == before.response_template
    assert not torch.equal(trained.get_input_embeddings().weight, start.get_input_embeddings().weight)


def test_an_adapter_goes_on_the_start_of_its_run(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "start")}))
    policy = PolicyConfig(model="models/untaught")
    assert trained_policy(policy, str(tmp_path)).model == "models/untaught", "a base of another kind, or one that is gone"
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sft.json").write_text('{"start": "models/untaught"}')
    found = trained_policy(policy, str(tmp_path))
    assert (found.model, found.adapter) == (str(tmp_path / "start"), str(tmp_path))


def test_a_killed_full_run_resumes_to_the_same_bytes(make_job, toolbox, questions):
    whole, killed = make_job("whole", method="full"), make_job("killed", method="full")
    for job in (whole, killed):
        train_through(toolbox, questions, job)
    shutil.rmtree(killed.directory / ADAPTER)
    truncate_reports(killed.directory / STEPS, 2)
    train_through(toolbox, questions, killed, killed.directory / CHECKPOINTS / "checkpoint-2")
    assert file_hash(weights_file(whole.directory / ADAPTER)) == file_hash(weights_file(killed.directory / ADAPTER))


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes, of the extra gpu, is not installed")
def test_an_adapter_learns_on_weights_of_four_bits(make_job, toolbox, questions, monkeypatch):
    job = make_job(steps=2, preflight="record")
    # The toy's layers are narrower than a block of bitsandbytes.
    four_bit = job.config.policy.model_copy(update={"model": str(TINY), "load_in_4bit": True})
    rewarded = job.config.reward.model_copy(update={"kind": "random"})  # a step without a signal leaves the optimiser without moments
    job = replace(job, config=job.config.model_copy(update={"policy": four_bit, "reward": rewarded}))
    trainers = kept(monkeypatch, "make_trainer")
    train_through(toolbox, questions, job)
    trained = [weight for weight in trainers[0].model.parameters() if weight.requires_grad]
    moments = [value for state in trainers[0].optimizer.state.values() for value in state.values() if value.numel() > 1]
    assert len(moments) == 2 * len(trained) and {value.dtype for value in (*trained, *moments)} == {torch.float32}
    assert all(abs(metrics["policy/kl_sampler"]) < 1e-3 for _, metrics in curve(job))
    model, _ = load_model(trained_policy(four_bit, str(job.directory / ADAPTER)))
    assert any(type(layer).__name__ == "Linear4bit" for layer in model.modules())


def test_weights_of_four_bits_pass_a_gradient_on_after_they_have_sampled():
    model, tokenizer = load_model(PolicyConfig(model=str(TINY), device="cpu", load_in_4bit=True))
    ids, gradients = tokenizer("What is the mill?", return_tensors="pt").input_ids, []
    for _ in range(2):
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        model.train()(inputs_embeds=embedded).logits.square().mean().backward()
        gradients.append(embedded.grad)
        with torch.no_grad():
            model.eval()(input_ids=ids)
    assert gradients[0].abs().max() > 0
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_is_measured_as_it_was_trained(make_job, toolbox, questions, grouped_dir, monkeypatch, dtype):
    """Evaluation gives the tokens that it samples the log-probabilities that the trainer gives them."""
    job = make_job(steps=4, learning_rate=5e-5, preflight="record")
    policy = job.config.policy.model_copy(update={"model": str(grouped_dir), "dtype": dtype})
    job = replace(job, config=job.config.model_copy(update={"policy": policy}))
    trainers = kept(monkeypatch, "make_trainer")
    train_through(toolbox, questions, job)
    sampler = make_sampler(trained_policy(policy, str(job.directory / ADAPTER)))
    environment = SearcherEnvironment(job.config).with_tools(toolbox, ExactJudge())
    episodes = environment.play(list(questions) * 4, sampler, Sampling(temperature=1.0, seed=3, max_new_tokens=16))
    trainer = trainers[0]
    model, found, apart = trainer.model.eval(), [], []
    bodies = [getattr(m, "get_base_model", lambda m=m: m)().base_model for m in (model, sampler.model)]
    for episode in episodes:
        sampled = torch.tensor([episode.sampled_mask]) == 1
        batch = {"prompt_ids": torch.tensor([episode.prompt_ids]), "completion_ids": torch.tensor([episode.completion_ids])}
        batch |= {f"{name}_mask": torch.ones_like(batch[f"{name}_ids"]) for name in ("prompt", "completion")}
        with torch.no_grad():
            expected = trainer._score(model, batch, sampled)
            states = [body(input_ids=torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)).last_hidden_state for body in bodies]
            apart.append((states[0] - states[1]).abs().max().item())
        found.append((torch.tensor([episode.sampled_logprobs]) - expected)[sampled].abs())
    differences = torch.cat(found)
    assert len(differences) > 100
    assert differences.max() <= 1e-4 if dtype == "float32" else differences.mean() <= 0.01
    # The same way through the model gives the same: merged into bfloat16 weights a good part of a young adapter would be lost.
    assert max(apart) <= (1e-4 if dtype == "float32" else 0.0)
