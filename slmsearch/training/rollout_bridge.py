"""The bridge between the project's rollout and TRL: the callable of `GRPOTrainer(rollout_func=...)`.

TRL passes prompts, each already repeated once per episode of its group. It expects token ids, a mask and the inputs of the reward function,
one value per prompt and in order. The bridge plays, judges and scores episodes with the weights being trained; TRL's reward function only
passes the reward on. The text that TRL decodes and calls "completion" also holds tool text and is never read.

A failed episode gets no reward (None): it leaves its group, is counted, and too many failures stop training.
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import fsum
from statistics import stdev
from typing import Any, TypedDict

from accelerate.utils import gather_object

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.episodes.episode import Episode, StopReason, ToolCall
from slmsearch.episodes.grade import judge_episodes
from slmsearch.episodes.playable import Playable, with_task_reward
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import TrainingError
from slmsearch.evaluate.metrics import summarise
from slmsearch.judge import EagerJudge, Verdict
from slmsearch.judge.exact import cause_of
from slmsearch.training.phase_timer import HELD_OUT, JUDGING, SAMPLING, PhaseTimer

MAX_FAILED_FRAC = 0.5
"""Share of failed episodes, in preflight rollouts or a step, above which training stops with the cause: the rest is no sample any more."""
OpenSampler = Callable[[Any], AbstractContextManager[Sampler]]
"""Trainer -> sampler that samples from its weights, for as long as the context lasts."""


class RolloutBridge:
    """A callable that plays a generation batch for TRL and keeps the metrics of the last one."""

    def __init__(
        self, questions: Sequence[Question], environment: Playable, open_sampler: OpenSampler, end_id: int, timer: PhaseTimer
    ) -> None:
        """Bind the parts that episodes need.

        Args:
            questions: all questions that may occur, no two with the same text, because TRL passes on only the text.
            environment: plays and grades.
            open_sampler: opens one that samples from the weights being trained; called once per batch.
            end_id: token that represents a failed episode.
            timer: counts the time.
        """
        self.questions = {question.question: question for question in questions}
        if len(self.questions) != len(questions):
            raise ValueError("two questions have the same text")
        self.environment, self.open_sampler = environment, open_sampler
        self._end_id, self._timer = end_id, timer
        self.metrics: dict[str, float] = {}
        """Metrics of the last batch, over all processes, under the project's names."""
        self.rewards: list[float | None] = []
        """Rewards of the last batch, of this process, in the order of the prompts."""
        self.episodes: list[Episode] = []
        """Episodes of the last batch, of this process, in the same order."""
        self.rows: list[EpisodeRow] = []
        """Graded rows of these episodes."""
        self.sampled_mask: list[list[int]] = []
        """Mask over the completion ids of each of these episodes: 1 = the policy wrote it."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, object]:
        """Play one episode per prompt (messages, the question last), in order; see TRL's `rollout_func`.

        Raises:
            TrainingError: more than `MAX_FAILED_FRAC` of the episodes failed.
        """
        with self._timer.on(SAMPLING):
            return self._sample([self.questions[prompt[-1]["content"]] for prompt in prompts], trainer)

    def _sample(self, questions: Sequence[Question], trainer: Any) -> dict[str, object]:
        seed = step_seed(self.environment.config.train.seed, trainer.state.global_step)
        first_row = trainer.accelerator.process_index * len(questions)  # rows are numbered over all processes: draws differ
        sampling = Sampling(trainer.temperature, seed, self.environment.limits.max_turn_tokens, first_row)
        started = time.perf_counter()
        with self.open_sampler(trainer) as sampler:  # only for sampling: a colocated engine then frees its memory
            episodes = self.environment.play(questions, sampler, sampling)
        self.episodes = episodes = self.environment.complete(questions, episodes)
        seconds = {"time/rollout_s": time.perf_counter() - started}
        verdicts = self._judged(questions, episodes, seconds)
        chance = random.Random(f"rewards {seed} {first_row}")  # for `reward.kind` random alone
        self.rows = rows = self.environment.grade(questions, episodes, verdicts, [chance.random() for _ in episodes])
        if self.environment.config.reward.abstained_gated:
            self.rows = rows = gate_abstentions(rows, trainer.num_generations)
        self.rewards = [None if row.failed else row.reward for row in rows]  # (B,), group after group
        everywhere = gather_object(rows)  # of all processes, so that all raise or none
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
        """Collect the verdicts; a judge that takes time is timed, and releases the device for the update."""
        judge = self.environment.judge
        if not isinstance(judge, EagerJudge):
            return judge_episodes(questions, episodes, judge)
        started = time.perf_counter()
        with self._timer.on(JUDGING):
            verdicts = judge_episodes(questions, episodes, judge)
            judge.release()
        seconds["time/judge_wait_s"] = time.perf_counter() - started
        return verdicts

    def score(self, questions: Sequence[Question], trainer: Any) -> list[float | None]:
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
        scores: list[float | None] = [None] * len(questions)
        for process, share in enumerate(shares):
            scores[process::processes] = share  # dealt out in turn above, restored in turn
        return scores


def gate_abstentions(rows: Sequence[EpisodeRow], group_size: int) -> list[EpisodeRow]:
    """Remove the reward part `reward.abstained` from groups in which an episode is right: the policy can answer that question.

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
    """Episodes in TRL's form, a list for each, and the mask of ids that the policy wrote."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    env_mask: list[list[int]]
    """Mask of the loss, 1: trained on."""
    sampled_mask: list[list[int]]
    """Mask of the sampler, 1: the policy wrote it."""
    logprobs: list[list[float]] | None
    """Log-probabilities of the sampler, used only to measure its distance from the trainer."""


def to_tokens(episodes: Sequence[Episode], end_id: int, left_out: Collection[StopReason] = ()) -> Tokens:
    """Convert episodes to TRL's form.

    A failed episode becomes a single end token with mask 0, because TRL cannot take an empty completion.

    An episode that ended for a reason in `left_out` has `env_mask` 0 throughout, but keeps its place and reward in its group. The others
    are still compared with the mean reward of the policy as it is, cut-off episodes included, so that finishing remains better than not
    finishing. Without it a group whose finished episodes are all right would have no variance, just where the policy could learn to finish.
    TRL's own flag looks at the last token, which is an end token where a tool result had no room left.

    Args:
        episodes: all episodes of a batch.
        end_id: token that represents a failed episode.
        left_out: stop reasons of episodes that are not trained on.
    """
    completions, sampled, masks, logprobs = [], [], [], []
    for episode in episodes:
        usable = episode.stop_reason is not StopReason.FAILED and bool(episode.completion_ids)
        completions.append(episode.completion_ids if usable else [end_id])
        sampled.append(episode.sampled_mask if usable else [0])
        # ids, both masks and log-probabilities of an episode have one length.
        masks.append([0] * len(sampled[-1]) if episode.stop_reason in left_out else sampled[-1])
        logprobs.append(episode.sampled_logprobs if usable else [0.0])
    # A sampler without log-probabilities leaves fewer values than ids.
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
"""Keys of two counts beside those of calls: episodes, and episodes with exactly one call."""


def summarise_behaviour(rows: Sequence[EpisodeRow], episodes: Sequence[Episode], searches: bool = True) -> dict[str, float]:
    """Measure behaviour that changes before the reward does, over all processes: likelihood of episodes, searches, calls, answers.

    A metric without values is left out.

    Args:
        rows: graded, of this process.
        episodes: one per row.
        searches: whether the environment has the search tool.
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
    """Measure the spread of rewards inside groups; None has left its group, and a group under two has no variance."""
    # (B,) -> groups of G, without the failed ones
    groups = [[reward for reward in rewards[i : i + group_size] if reward is not None] for i in range(0, len(rewards), group_size)]
    spreads = [stdev(group) if len(group) > 1 else 0.0 for group in groups]
    silent = sum(len(set(group)) < 2 for group in groups)
    return {"reward/std": fsum(spreads) / len(groups), "group/zero_advantage_frac": silent / len(groups)}


def episode_reward(completions: list[Any], episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """Return the rewards that the bridge computed; TRL's reward function."""
    return episode_reward
