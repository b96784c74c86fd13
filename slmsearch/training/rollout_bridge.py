"""The bridge between the project's rollout and TRL: what `GRPOTrainer(rollout_func=...)` calls.

TRL hands over prompts, each already repeated once per episode of its group, and wants token ids, a mask and whatever the reward
function needs, one value per prompt and in order. Episodes are played with the weights being trained, judged and scored here;
TRL's reward function only passes the number on. What TRL decodes and calls "completion" holds tool text too and is never read.

A failed episode gets no reward (None): it leaves its group, is counted, and too many of them stop training.
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import fsum
from statistics import stdev
from typing import Any, TypedDict

from accelerate.utils import gather_object

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.episodes.environment import Environment, with_task_reward
from slmsearch.episodes.episode import Episode, StopReason, ToolCall
from slmsearch.episodes.grade import judge_episodes
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import TrainingError
from slmsearch.evaluate.metrics import summarise
from slmsearch.judge import EagerJudge, Verdict
from slmsearch.judge.reply import cause_of
from slmsearch.training.monitor import Scores
from slmsearch.training.phase_timer import HELD_OUT, JUDGING, SAMPLING, PhaseTimer
from slmsearch.training.trainer_samplers import OpenSampler

MAX_FAILED_FRAC = 0.5
"""Share of failed episodes, before training or in a step of it, above which it stops with the cause: what is left is no sample any more."""


class RolloutBridge:
    """Plays a generation batch for TRL and keeps the metrics of the last one."""

    def __init__(
        self, questions: Sequence[Question], environment: Environment, open_sampler: OpenSampler, end_id: int, timer: PhaseTimer
    ) -> None:
        """Bind what an episode needs.

        Args:
            questions: all questions that may be asked for; no two with the same text, for the text is all that TRL passes on.
            environment: plays and grades.
            open_sampler: opens one that samples from the weights being trained; called once per batch.
            end_id: token that stands in for an episode that failed.
            timer: counts the time.
        """
        self.questions = {question.question: question for question in questions}
        if len(self.questions) != len(questions):
            raise ValueError("two questions have the same text")
        self.environment, self.open_sampler = environment, open_sampler
        self._end_id, self._timer = end_id, timer
        self.metrics: dict[str, float] = {}
        """Of the last batch, over all processes, under the project's names."""
        self.rewards: list[float | None] = []
        """Of the last batch, of this process, in the order of the prompts."""
        self.episodes: list[Episode] = []
        """Likewise."""
        self.rows: list[EpisodeRow] = []
        """Likewise, graded."""
        self.sampled_mask: list[list[int]] = []
        """Likewise, for each of their completion ids: 1 = the policy wrote it."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, object]:
        """Play one episode per prompt (messages, the question last), in order; see TRL's `rollout_func`.

        Raises:
            TrainingError: more than `MAX_FAILED_FRAC` of the episodes failed.
        """
        with self._timer.on(SAMPLING):
            return self._sample([self.questions[prompt[-1]["content"]] for prompt in prompts], trainer)

    def _sample(self, questions: Sequence[Question], trainer: Any) -> dict[str, object]:
        seed = step_seed(self.environment.config.train.seed, trainer.state.global_step)
        first_row = trainer.accelerator.process_index * len(questions)
        sampling = Sampling(trainer.temperature, seed, self.environment.limits.max_turn_tokens, first_row)
        started = time.perf_counter()
        with self.open_sampler(trainer) as sampler:
            episodes = self.environment.play(questions, sampler, sampling)
        self.episodes = episodes = self.environment.complete(questions, episodes)
        seconds = {"time/rollout_s": time.perf_counter() - started}
        verdicts = self._judged(questions, episodes, seconds)
        chance = random.Random(f"rewards {seed} {first_row}")
        self.rows = rows = self.environment.grade(questions, episodes, verdicts, [chance.random() for _ in episodes])
        if self.environment.config.reward.abstained_gated:
            self.rows = rows = gate_abstentions(rows, trainer.num_generations)
        self.rewards = [None if row.failed else row.reward for row in rows]
        everywhere = gather_object(rows)
        failures = Counter(cause_of(row.failure) for row in everywhere if row.failed)
        if failures.total() > MAX_FAILED_FRAC * len(everywhere):
            raise TrainingError(f"{failures.total()} of {len(everywhere)} episodes of a step failed: {failures.most_common(1)[0][0]}")
        self.metrics = {
            **summarise(everywhere),
            **summarise_groups(gather_object(self.rewards), trainer.num_generations),
            "policy/entropy": mean_negative_logprob(episodes),
            **seconds,
            **summarise_behaviour(rows, episodes, SEARCH in self.environment.tool_names),
        }
        tokens = to_tokens(episodes, self._end_id, {StopReason.MAX_TOKENS} if self.environment.config.train.mask_truncated else ())
        self.sampled_mask = tokens["sampled_mask"]
        return {name: value for name, value in tokens.items() if name != "sampled_mask"} | {"episode_reward": self.rewards}

    def _judged(self, questions: Sequence[Question], episodes: Sequence[Episode], seconds: dict[str, float]) -> list[Verdict]:
        """Collect the verdicts; a judge that takes time is timed, and leaves the device to the update."""
        judge = self.environment.judge
        if not isinstance(judge, EagerJudge):
            return judge_episodes(questions, episodes, judge)
        started = time.perf_counter()
        with self._timer.on(JUDGING):
            verdicts = judge_episodes(questions, episodes, judge)
            judge.release()
        seconds["time/judge_wait_s"] = time.perf_counter() - started
        return verdicts

    def score(self, questions: Sequence[Question], trainer: Any) -> Scores:
        """Play questions once, greedily, with the weights in place, in batches as evaluations do.

        Each process plays its share of the questions.

        Returns:
            The reward of each question, in order and the same in every process; None where a service broke.
        """
        sampling = Sampling(max_new_tokens=self.environment.limits.max_turn_tokens)
        first, processes = trainer.accelerator.process_index, trainer.accelerator.num_processes
        environment = with_task_reward(self.environment)
        own, size = questions[first::processes], environment.config.evaluate.batch_size
        batches = [own[start : start + size] for start in range(0, len(own), size)]
        with self._timer.on(HELD_OUT):
            with self.open_sampler(trainer) as sampler:
                played = [self.environment.play(batch, sampler, sampling) for batch in batches]
            pairs = list(zip(batches, played, strict=True))
            rows = [row for batch, episodes in pairs for row in environment.grade(batch, environment.complete(batch, episodes))]
            if isinstance(environment.judge, EagerJudge):
                environment.judge.release()
            shares = gather_object([[None if row.failed else row.reward for row in rows]])
        trainer._last_loaded_step = -1  # other weights may be restored before the next step: vLLM is to take them anew
        scores: Scores = [None] * len(questions)
        for process, share in enumerate(shares):
            scores[process::processes] = share
        return scores


def gate_abstentions(rows: Sequence[EpisodeRow], group_size: int) -> list[EpisodeRow]:
    """Take what `reward.abstained` pays from the groups in which an episode is right: what the policy can answer is not beyond it.

    Source: BAPO (arXiv 2601.11037).
    """
    gated = []
    for start in range(0, len(rows), group_size):
        group = rows[start : start + group_size]
        paid = any(row.correct for row in group)
        gated += [_without_pay(row) if paid and row.reward_parts.get("abstained") else row for row in group]
    return gated


def _without_pay(row: EpisodeRow) -> EpisodeRow:
    return replace(row, reward=row.reward - row.reward_parts["abstained"], reward_parts={**row.reward_parts, "abstained": 0.0})


def step_seed(seed: int, step: int) -> int:
    """Derive the sampler's seed from the run's seed and the steps done, so that a resumed run samples the same."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:8], "big") >> 1


class Tokens(TypedDict):
    """Episodes as TRL wants them, a list for each, and which of their ids the policy wrote."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    env_mask: list[list[int]]
    """1: trained on."""
    sampled_mask: list[list[int]]
    """1: the policy wrote it."""
    logprobs: list[list[float]] | None
    """Those of the sampler, only for measuring how far it is from the trainer."""


def to_tokens(episodes: Sequence[Episode], end_id: int, left_out: Collection[StopReason] = ()) -> Tokens:
    """Lay episodes out as TRL wants them.

    A failed episode becomes a single end token with mask 0, because TRL cannot take an empty completion.

    An episode that ended for a reason in `left_out` has `env_mask` 0 throughout, and keeps its place and reward in its group: what the
    others are compared with stays the mean reward of the policy as it is, cut-off episodes included, so that to finish is still better
    than not to. Had it left the group, a group whose finished episodes are all right would teach nothing just where finishing is what
    there is to learn. TRL's own flag goes by the last token, which is an end token where a tool result had no room left.
    """
    completions, sampled, masks, logprobs = [], [], [], []
    for episode in episodes:
        usable = episode.stop_reason is not StopReason.FAILED and bool(episode.completion_ids)
        completions.append(episode.completion_ids if usable else [end_id])
        sampled.append(episode.sampled_mask if usable else [0])
        masks.append([0] * len(sampled[-1]) if episode.stop_reason in left_out else sampled[-1])
        logprobs.append(episode.sampled_logprobs if usable else [0.0])
    known = all(len(a) == len(b) for a, b in zip(completions, logprobs, strict=True))
    return {
        "prompt_ids": [list(episode.prompt_ids) or [end_id] for episode in episodes],
        "completion_ids": completions,
        "env_mask": masks,
        "sampled_mask": sampled,
        "logprobs": logprobs if known else None,
    }


def mean_negative_logprob(episodes: Sequence[Episode]) -> float:
    """Estimate the policy's entropy (nats): mean of -log p over all tokens sampled, in all processes.

    TRL measures it where it computes log-probabilities, which here leaves out every group without advantage.
    """
    logprobs = [value for episode in episodes for turn in episode.turns for value in turn.sampled_logprobs]
    sums: list[tuple[float, int]] = gather_object([(fsum(logprobs), len(logprobs))])
    return -fsum(total for total, _ in sums) / max(1, sum(count for _, count in sums))


PLAYED, SINGLE = "played", "single call"
"""What is counted beside each call: episodes, and those with exactly one call."""


def summarise_behaviour(rows: Sequence[EpisodeRow], episodes: Sequence[Episode], searches: bool = True) -> dict[str, float]:
    """Measure what changes before the reward does, over all processes: likelihood of right and wrong episodes, searches, calls, answers.

    A mean over nothing is left out.
    """
    sums = {name: [0.0, 0.0] for name in ("policy/logprob_right", "policy/logprob_wrong", "episode/searches", "answer/words")}
    behaviour = Counter[str | ToolCall]()
    for row, episode in zip(rows, episodes, strict=True):
        if row.failed:
            continue
        behaviour.update({PLAYED, *episode.calls})
        behaviour[SINGLE] += row.tool_calls == 1
        logprobs = [value for turn in episode.turns for value in turn.sampled_logprobs]
        likelihood = sums["policy/logprob_right" if row.correct else "policy/logprob_wrong"]
        likelihood[0] += fsum(logprobs)
        likelihood[1] += len(logprobs)
        if searches:
            sums["episode/searches"][0] += sum(call.name == SEARCH for call in episode.calls)
            sums["episode/searches"][1] += 1
        if episode.answer is not None:
            sums["answer/words"][0] += len(episode.answer.split())
            sums["answer/words"][1] += 1
    everywhere = gather_object([(sums, behaviour)])
    totals = {name: [fsum(part[name][k] for part, _ in everywhere) for k in (0, 1)] for name in sums}
    means = {name: total / count for name, (total, count) in totals.items() if count}
    behaviour = sum((part for _, part in everywhere), Counter())
    if played := behaviour[PLAYED]:
        common = max((count for call, count in behaviour.items() if isinstance(call, ToolCall)), default=0)
        means |= {"episode/single_call_frac": behaviour[SINGLE] / played, "episode/common_call_frac": common / played}
    return means


def summarise_groups(rewards: Sequence[float | None], group_size: int) -> dict[str, float]:
    """Measure the spread of rewards inside groups; None has left its group, and a group under two teaches nothing."""
    groups = [[reward for reward in rewards[i : i + group_size] if reward is not None] for i in range(0, len(rewards), group_size)]
    spreads = [stdev(group) if len(group) > 1 else 0.0 for group in groups]
    silent = sum(len(set(group)) < 2 for group in groups)
    return {"reward/std": fsum(spreads) / len(groups), "group/zero_advantage_frac": silent / len(groups)}


def episode_reward(completions: list[Any], episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """Pass on the rewards that the bridge computed; TRL's reward function."""
    return episode_reward
