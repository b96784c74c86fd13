"""The contract with TRL: order, ids, masks; an outage is counted and never graded."""

import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from slmsearch.config import EvaluateConfig, RewardConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode, StopReason, Turn
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import TrainingError
from slmsearch.judge import ExactJudge, Verdict
from slmsearch.judge.llm import make_judge
from slmsearch.training.phase_timer import JUDGING, SAMPLING, PhaseTimer
from slmsearch.training.rollout_bridge import RolloutBridge, episode_reward, mean_negative_logprob, step_seed, summarise_groups
from slmsearch.training.trainer_samplers import merged, sampling_mode
from tests.judge_server import Behaviour, JudgeServer
from tests.slmsearch.judge.stubs import hasty_judge

END = 3
CONFIG = RunConfig(train=TrainConfig(group_size=2), reward=RewardConfig(call_cost=0.1))


class OneTrainer:
    """As much of a trainer as the bridge looks at."""

    def __init__(self, step=0):
        self.model = self.model_wrapped = torch.nn.Linear(1, 1)
        self.temperature, self.num_generations = 1.0, 2
        self.state = SimpleNamespace(global_step=step)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1, autocast=nullcontext, unwrap_model=lambda model: model)


@pytest.fixture(autouse=True)
def plain_unwrapping(monkeypatch):
    monkeypatch.setattr("slmsearch.training.trainer_samplers.unwrap_model_for_generation", lambda model, _: nullcontext(model))


def make_bridge(questions, toolbox, script, config=CONFIG, judge=None):
    seen = []

    @contextmanager
    def open_sampler(trainer):
        with sampling_mode(trainer) as model:
            seen.append((model.training, torch.is_grad_enabled()))
            yield ScriptedSampler(script)

    environment = SearcherEnvironment(config).with_tools(toolbox, judge or ExactJudge())
    bridge = RolloutBridge(questions, environment, open_sampler, END, PhaseTimer())
    bridge.seen = seen
    return bridge


def prompts(questions, config=CONFIG):
    return [make_prompt(question.question, config.searcher) for question in questions]


def script(question, results):
    """Question 0 is answered at once, question 1 after a search, question 2 breaks the index."""
    if "Mira 0" in question or results:
        return "<answer>1823</answer>"
    return f'<tool>search_pages("{"broken" if "Mira 2" in question else "Mira"}")</tool>'


def test_one_completion_per_prompt_in_order_with_the_policys_tokens_masked_in(questions, toolbox):
    q0, q1 = questions[:2]
    bridge = make_bridge(questions, toolbox, script)
    out = bridge(prompts([q1, q1, q0, q0]), OneTrainer())
    call, result, answer = '<tool>search_pages("Mira")</tool>', "mira: Mira\ndunmar: Dunmar", "<answer>1823</answer>"
    # call 1 1 1 | result 0 0 0 | answer 1 1 1
    layout = [1] * len(call) + [0] * len(result) + [1] * len(answer)
    assert [bytes(ids).decode() for ids in out["completion_ids"]] == [call + result + answer] * 2 + [answer] * 2
    assert out["env_mask"] == [layout, layout, [1] * len(answer), [1] * len(answer)]
    assert [bytes(ids).decode() for ids in out["prompt_ids"]] == [q1.question, q1.question, q0.question, q0.question]
    assert [len(values) for values in out["logprobs"]] == [len(ids) for ids in out["completion_ids"]]
    assert out["episode_reward"] == pytest.approx([0.9, 0.9, 1.0, 1.0])
    assert bridge.metrics["reward/mean"] == pytest.approx(0.95)
    assert bridge.metrics["group/zero_advantage_frac"] == 1.0


def test_an_outage_is_counted_and_never_graded(questions, toolbox):
    q0, q2 = questions[0], questions[2]
    bridge = make_bridge(questions, toolbox, script)
    out = bridge(prompts([q0, q0, q2, q2]), OneTrainer())
    assert out["episode_reward"] == [1.0, 1.0, None, None]
    assert out["completion_ids"][2:] == [[END], [END]]
    assert out["env_mask"][2:] == [[0], [0]]
    assert bridge.metrics["stop/failed"] == 0.5
    assert bridge.metrics["errors/index"] == 2
    assert bridge.metrics["reward/mean"] == 1.0
    assert episode_reward(completions=[], **{"episode_reward": out["episode_reward"]}) == [1.0, 1.0, None, None]


def test_malformed_episodes_are_graded(questions, toolbox):
    config = RunConfig(train=TrainConfig(group_size=2), reward=RewardConfig(malformed=-0.1))
    bridge = make_bridge(questions, toolbox, lambda question, results: "well" if "0" in question else "<answer>1823</answer>", config)
    out = bridge(prompts([questions[0]] * 2 + [questions[1]] * 2, config), OneTrainer())
    assert out["episode_reward"] == [-0.1, -0.1, 1.0, 1.0] == bridge.rewards
    assert bridge.metrics["stop/malformed"] == 0.5


def test_held_out_questions_are_played_in_batches_as_evaluations_do(questions, toolbox):
    config = CONFIG.model_copy(update={"evaluate": EvaluateConfig(batch_size=2)})
    bridge, played = make_bridge(questions, toolbox, script, config), []
    play = bridge.environment.play
    bridge.environment.play = lambda batch, sampler, sampling: played.append(len(batch)) or play(batch, sampler, sampling)
    # Question 2 breaks the index for the batch that searches with it: no reward, which is not a reward of 0.
    assert bridge.score(questions[:5], OneTrainer()) == pytest.approx([1.0, 0.9, None, None, 0.9])
    assert played == [2, 2, 1]
    assert len(bridge.seen) == 1, "the weights are lent once"


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_held_out_questions_and_all_get_every_score(questions, toolbox, processes, monkeypatch):
    shares, asked = [], []

    def gather(own):
        shares.extend(own)
        return list(shares)

    def answer(question, results):
        asked.append(question)
        return f"<answer>{1823 if 'Mira 0' in question or 'Mira 3' in question else 'no idea'}</answer>"

    monkeypatch.setattr("slmsearch.training.rollout_bridge.gather_object", gather)
    for process in range(processes):
        bridge, trainer = make_bridge(questions, toolbox, answer), OneTrainer()
        trainer.accelerator.process_index, trainer.accelerator.num_processes = process, processes
        scores = bridge.score(questions[:5], trainer)  # the last process waits for the others
    assert scores == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert sorted(asked) == sorted(question.question for question in questions[:5]), "nobody plays what another plays"


def test_calls_are_counted_by_episode_and_over_all_questions(questions, toolbox):
    search, view = '<tool>search_pages("Mira")</tool>', '<tool>view_sections("mira")</tool>'

    def read(question, results):
        wanted = {"0": [], "1": [search]}.get(question[len("When was Mira ")], [search, view])
        return wanted[len(results)] if len(results) < len(wanted) else "<answer>1823</answer>"

    bridge = make_bridge(questions, toolbox, read)
    bridge(prompts([questions[0], questions[1], questions[3], questions[4]]), OneTrainer())
    assert bridge.metrics["episode/single_call_frac"] == 0.25
    assert bridge.metrics["episode/common_call_frac"] == 0.75, "the search"


@pytest.mark.parametrize("masked", [False, True])
def test_an_episode_whose_tool_result_had_no_room_is_known_by_its_stop_reason(questions, toolbox, masked):
    """Its last id is the end of a whole call: by its ids it looks as if the policy had ended it."""
    searcher = SearcherConfig(max_episode_tokens=48)  # a call has 33 bytes, its result 25
    config = RunConfig(searcher=searcher, train=TrainConfig(group_size=2, mask_truncated=masked), reward=CONFIG.reward)
    bridge = make_bridge(questions, toolbox, script, config)
    out = bridge(prompts([questions[0], questions[1]], config), OneTrainer())
    assert [episode.stop_reason for episode in bridge.episodes] == [StopReason.ANSWERED, StopReason.MAX_TOKENS]
    whole = [1] * len("<answer>1823</answer>")
    call = [1] * len('<tool>search_pages("Mira")</tool>')
    assert bytes(out["completion_ids"][1]).endswith(b"</tool>")
    assert out["env_mask"] == [whole, [0] * len(call) if masked else call]
    assert bridge.sampled_mask == [whole, call]  # what the policy wrote stays known
    assert out["episode_reward"] == [1.0, 0.0]  # the other is compared with it


def test_random_rewards_follow_the_step_and_nothing_else(questions, toolbox):
    config = RunConfig(train=TrainConfig(group_size=2), reward=RewardConfig(kind="random"))

    def rewards(step):
        return make_bridge(questions, toolbox, script, config)(prompts([questions[0]] * 2, config), OneTrainer(step))["episode_reward"]

    assert rewards(3) == rewards(3) != rewards(4)
    assert len(set(rewards(3))) == 2
    assert all(0 <= reward < 1 for reward in rewards(3))


def test_a_missing_verdict_is_no_wrong_answer(questions, toolbox):
    class SilentJudge:
        def judge(self, items):
            return [Verdict(None, "judge", "judge: no reply") if "Mira 1" in question.question else Verdict(True) for question, _ in items]

    bridge = make_bridge(questions, toolbox, script, judge=SilentJudge())
    out = bridge(prompts([questions[0], questions[1]]), OneTrainer())
    assert out["episode_reward"] == [1.0, None]
    assert bridge.metrics["errors/judge"] == 1


def test_too_many_failures_stop_training_with_their_cause(questions, toolbox):
    bridge = make_bridge(questions, toolbox, script)
    with pytest.raises(TrainingError, match="3 of 4 episodes of a step failed: index: index gone: build it again"):
        bridge(prompts([questions[0], questions[2], questions[2], questions[2]]), OneTrainer())


def test_played_in_eval_mode_without_gradients_then_restored(questions, toolbox):
    bridge, trainer = make_bridge(questions, toolbox, script), OneTrainer()
    trainer.model.train()
    bridge(prompts(questions[:2]), trainer)
    assert bridge.seen == [(False, False)]
    assert trainer.model.training and torch.is_grad_enabled()


def test_an_episode_without_a_token_still_has_one_for_trl(questions, toolbox):
    config = CONFIG.model_copy(update={"searcher": SearcherConfig(max_episode_tokens=16)})
    bridge = make_bridge(questions, toolbox, lambda question, results: "", config)
    out = bridge(prompts(questions[:1], config), OneTrainer())
    assert out["completion_ids"] == [[END]] and out["env_mask"] == [[0]]


def test_seeds_differ_by_run_and_step_only():
    seeds = {step_seed(seed, step) for seed in range(3) for step in range(5)}
    assert len(seeds) == 15
    assert step_seed(0, 4) == step_seed(0, 4)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_questions_of_the_same_text_cannot_be_told_apart(questions, toolbox):
    with pytest.raises(ValueError, match="same text"):
        make_bridge([questions[0], questions[0]], toolbox, script)


def test_spread_is_that_inside_groups():
    rewards = [0.0, 1.0, 5.0, 5.0, None, 7.0]
    # Groups of two: {0, 1} has deviation sqrt(1/2); {5, 5} and {7} have none and teach nothing.
    assert summarise_groups(rewards, 2) == {"reward/std": pytest.approx(0.5**0.5 / 3), "group/zero_advantage_frac": pytest.approx(2 / 3)}


def test_entropy_is_the_mean_surprise_at_sampled_tokens():
    turns = [Turn("a", sampled_ids=(1, 2), sampled_logprobs=(-1.0, -3.0)), Turn("b", sampled_ids=(1,), sampled_logprobs=(-0.5,))]
    episodes = [Episode("q", tuple(turns), StopReason.ANSWERED), Episode("q", (), StopReason.FAILED)]
    assert mean_negative_logprob(episodes) == pytest.approx(1.5)
    assert mean_negative_logprob([]) == 0.0


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_merging_changes_no_value_and_leaves_no_trace(model_dir, dtype, tolerance):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear")).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        adapted = model(ids).logits
        with merged(model) as plain:
            assert not any("lora" in name for name, _ in plain.named_modules())
            torch.testing.assert_close(plain(ids).logits, adapted, atol=tolerance, rtol=tolerance)
        assert torch.equal(model(ids).logits, adapted)
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert [weight.requires_grad for weight in model.parameters()].count(True) > 0


def say_what_was_read(question, results):
    """Question 0 is answered rightly at once, the others wrongly after a search, each with words of its own."""
    if "Mira 0" in question:
        return "<answer>1823</answer>"
    return f"<answer>after {question}</answer>" if results else '<tool>search_pages("Mira")</tool>'


def served_judge(server):
    return make_judge(hasty_judge(retries=1)(kind="ollama", model="judge", base_url=server.url, timeout_s=5))


def test_a_judge_that_takes_time_is_waited_for_and_then_leaves_the_device(questions, toolbox):
    with JudgeServer(Behaviour(truth=lambda prompt: "Mira 1" in prompt)) as server:
        bridge = make_bridge(questions, toolbox, say_what_was_read, judge=served_judge(server))
        out = bridge(prompts([questions[0], questions[1], questions[2]]), OneTrainer())
        assert server.counts == {"/api/chat": 2, "/api/generate": 1}
    assert out["episode_reward"] == pytest.approx([1.0, 0.9, 0.0])
    assert bridge.metrics["time/judge_wait_s"] >= 0
    assert {SAMPLING, JUDGING} <= set(bridge._timer.seconds)


def test_the_exact_judge_leaves_no_trace_of_waiting(questions, toolbox):
    bridge = make_bridge(questions, toolbox, script)
    bridge(prompts(questions[:2]), OneTrainer())
    assert "time/judge_wait_s" not in bridge.metrics
    assert JUDGING not in bridge._timer.seconds


def test_judging_is_done_while_others_are_still_sampled(questions, toolbox):
    """The last turn is written only when the judge has been asked about the episode that ended before it."""
    with JudgeServer(Behaviour(truth=lambda prompt: True)) as server:

        def script(question, results):
            if "Mira 1" in question and results:
                deadline = time.monotonic() + 10
                while not server.counts["/api/chat"] and time.monotonic() < deadline:
                    time.sleep(0.002)
                return f"<answer>{'asked' if server.counts['/api/chat'] else 'not asked'}</answer>"
            return '<tool>search_pages("Mira")</tool>' if "Mira 1" in question else "<answer>early</answer>"

        bridge = make_bridge(questions, toolbox, script, judge=served_judge(server))
        bridge(prompts(questions[:2]), OneTrainer())
    assert [episode.answer for episode in bridge.episodes] == ["early", "asked"]


def test_verdicts_that_are_missing_leave_their_group_and_are_never_zero(questions, toolbox):
    with JudgeServer(Behaviour(truth=lambda prompt: True, fault_frac=1.0, faults=("status",))) as server:
        bridge = make_bridge(questions, toolbox, say_what_was_read, judge=served_judge(server))
        out = bridge(prompts([questions[0], questions[1]]), OneTrainer())
    assert out["episode_reward"] == [1.0, None]
    assert (bridge.metrics["errors/judge"], bridge.metrics["stop/failed"]) == (1, 0.5)


def test_a_judge_that_is_down_stops_training_with_the_cause(questions, toolbox):
    with JudgeServer(Behaviour(fault_frac=1.0, faults=("closed",))) as server:
        bridge = make_bridge(questions, toolbox, say_what_was_read, judge=served_judge(server))
        with pytest.raises(
            TrainingError, match=r"2 of 3 episodes of a step failed: judge: Ollama at http://127\.0\.0\.1:\d+ gave no verdict"
        ):
            bridge(prompts(questions[:3]), OneTrainer())
