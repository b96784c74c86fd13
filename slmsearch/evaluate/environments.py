"""The two environments that can be trained and evaluated, behind one interface.

Trainer, evaluation, statistics and tracking know only this: messages that open an episode, episodes played with a sampler, and a graded
row for each. The searcher plays through tools, the planner through a worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import GenerationError
from slmsearch.evaluate.grade import judge_episodes, judging_ahead, make_rows
from slmsearch.evaluate.rows import EpisodeRow, make_row
from slmsearch.generate.sampler import Message, Sampler, Sampling
from slmsearch.judge import Judge, Verdict
from slmsearch.planner.independence import EmbeddingIndependence, Independence
from slmsearch.planner.judge import make_number_judge
from slmsearch.planner.model_worker import ModelWorker, make_served_worker
from slmsearch.planner.play import carry_out, write_plans
from slmsearch.planner.prompt import PLAN_PROMPT_VERSION, make_plan_prompt
from slmsearch.planner.reward import PlannedEpisode, inspect_episode, score_plan
from slmsearch.planner.worker import ArithmeticWorker, Worker, solve_directly
from slmsearch.searcher.episode import Episode, StopReason
from slmsearch.searcher.prompt import make_prompt
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import Toolbox

NO_TOKEN_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an episode may get; what memory and trainer must hold."""

    max_turn_tokens: int
    max_episode_tokens: int
    tool_role: str


class Environment(Protocol):
    """What can be trained and evaluated."""

    limits: Limits
    judge: Judge

    def prompt(self, question: Question) -> list[Message]:
        """Return the messages that open an episode, the question's text last."""
        ...

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """Let the policy play every question once, as far as it goes by itself."""
        ...

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """Do what is left when the policy's weights are given back."""
        ...

    def grade(
        self,
        questions: Sequence[Question],
        episodes: Sequence[Episode],
        verdicts: Sequence[Verdict] | None = None,
        draws: Sequence[float] = (),
    ) -> list[EpisodeRow]:
        """Score complete episodes, one row each.

        Args:
            questions: the question of each.
            episodes: what was played.
            verdicts: of `judge`, as `judge_episodes` gives them; None asks for them here.
            draws: numbers from 0 to 1, one for each; needed only where the reward is random.
        """
        ...

    def without_token_limits(self) -> "Environment":
        """Return the same without limits in tokens, for policies that write bytes."""
        ...

    def as_task(self) -> "Environment":
        """Return the same with the real reward, where the configured one is a control."""
        ...


def limits_of(config: RunConfig) -> Limits:
    """Return the limits of the configured environment."""
    if config.environment == "planner":
        return Limits(config.planner.max_plan_tokens, config.planner.max_plan_tokens, config.searcher.tool_role)
    return Limits(config.searcher.max_turn_tokens, config.searcher.max_episode_tokens, config.searcher.tool_role)


class SearcherEnvironment:
    """Searches a corpus with tools."""

    def __init__(self, toolbox: Toolbox, judge: Judge, config: RunConfig) -> None:
        """Bind tools and judge."""
        self.toolbox, self.judge, self.config = toolbox, judge, config
        self.limits = limits_of(config)

    def prompt(self, question: Question) -> list[Message]:
        """See `Environment.prompt`."""
        return make_prompt(question.question, self.config.searcher)

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """See `Environment.play`."""
        with judging_ahead(self.judge) as on_end:
            return play_episodes(questions, sampler, self.toolbox, self.config.searcher, sampling, on_end)

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """See `Environment.complete`: nothing is left."""
        return list(episodes)

    def grade(
        self,
        questions: Sequence[Question],
        episodes: Sequence[Episode],
        verdicts: Sequence[Verdict] | None = None,
        draws: Sequence[float] = (),
    ) -> list[EpisodeRow]:
        """See `Environment.grade`."""
        verdicts = judge_episodes(questions, episodes, self.judge) if verdicts is None else verdicts
        return make_rows(questions, episodes, verdicts, self.config.reward, draws)

    def without_token_limits(self) -> "SearcherEnvironment":
        """See `Environment.without_token_limits`."""
        limits = {"max_episode_tokens": NO_TOKEN_LIMIT, "max_turn_tokens": NO_TOKEN_LIMIT}
        searcher = self.config.searcher.model_copy(update=limits)
        return SearcherEnvironment(self.toolbox, self.judge, self.config.model_copy(update={"searcher": searcher}))

    def as_task(self) -> "SearcherEnvironment":
        """See `Environment.as_task`."""
        reward = self.config.reward.model_copy(update={"kind": "task"})
        return SearcherEnvironment(self.toolbox, self.judge, self.config.model_copy(update={"reward": reward}))


class PlannerEnvironment:
    """Writes plans that a frozen worker carries out."""

    def __init__(self, worker: Worker, judge: Judge, independence: Independence, config: RunConfig) -> None:
        """Bind worker, judge and the measure of independence."""
        self.worker, self.judge, self.independence, self.config = worker, judge, independence, config
        self.limits = limits_of(config)
        self._alone: dict[str, bool] = {}
        """Whether the worker alone is right, by problem."""

    def prompt(self, question: Question) -> list[Message]:
        """See `Environment.prompt`."""
        return make_plan_prompt(question.question, self.config.planner)

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """See `Environment.play`: the plans."""
        return write_plans(questions, sampler, self.config.planner, sampling)

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """See `Environment.complete`: the worker carries them out."""
        return carry_out(questions, episodes, self.worker)

    def without_token_limits(self) -> "PlannerEnvironment":
        """See `Environment.without_token_limits`."""
        return self._changed(max_plan_tokens=NO_TOKEN_LIMIT)

    def as_task(self) -> "PlannerEnvironment":
        """See `Environment.as_task`."""
        return self._changed(reward=self.config.planner.reward.model_copy(update={"kind": "task"}))

    def _changed(self, **settings: Any) -> "PlannerEnvironment":
        planner = self.config.planner.model_copy(update=settings)
        same = PlannerEnvironment(self.worker, self.judge, self.independence, self.config.model_copy(update={"planner": planner}))
        same._alone = self._alone
        return same

    def grade(
        self,
        questions: Sequence[Question],
        episodes: Sequence[Episode],
        verdicts: Sequence[Verdict] | None = None,
        draws: Sequence[float] = (),
    ) -> list[EpisodeRow]:
        """See `Environment.grade`."""
        verdicts = judge_episodes(questions, episodes, self.judge) if verdicts is None else verdicts
        alone = self.solve_alone([questions[i] for i, episode in enumerate(episodes) if episode.stop_reason is not StopReason.FAILED])
        planned = [inspect_episode(episode, question.question) for question, episode in zip(questions, episodes, strict=True)]
        apart = self.independence.score([[part.question for part in p.plan.subproblems] if p.plan else [] for p in planned])
        return [
            self._grade(
                question, episode, planned[i], verdicts[i], alone.get(question.id, False), apart[i], draws[i] if draws else 0.0
            )
            for i, (question, episode) in enumerate(zip(questions, episodes, strict=True))
        ]  # fmt: skip

    def solve_alone(self, questions: Sequence[Question]) -> dict[str, bool]:
        """Say of each problem whether the worker alone gets it right; each is tried once.

        Raises:
            GenerationError: the worker's service broke.
        """
        new = list({question.id: question for question in questions if question.id not in self._alone}.values())
        solutions = self.worker.solve([solve_directly(question.question) for question in new])
        broken = next((solution.failure for solution in solutions if solution.failure), "")
        if broken:
            raise GenerationError(f"the worker alone could not be asked ({broken}); fix it, or choose another planner.worker.kind")
        verdicts = self.judge.judge([(question, solution.answer) for question, solution in zip(new, solutions, strict=True)])
        self._alone |= {question.id: bool(verdict.correct) for question, verdict in zip(new, verdicts, strict=True)}
        return {question.id: self._alone[question.id] for question in questions}

    def _grade(
        self, question: Question, episode: Episode, planned: PlannedEpisode, verdict: Verdict, alone: bool, apart: float, draw: float
    ) -> EpisodeRow:
        scored = None
        if verdict.correct is not None:
            scored = score_plan(episode, planned, verdict.correct, alone, apart, self.config.planner.reward, draw)
        row = make_row(question, episode, verdict, scored)
        right = row.correct
        return replace(
            row,
            exact_match=right,
            f1=right,
            failure_mode="" if row.failed or right else _find_failure_mode(episode, planned),
            measured={} if row.failed else _measure(episode, planned, right, alone, apart),
        )


def _measure(episode: Episode, planned: PlannedEpisode, right: float, alone: bool, apart: float) -> dict[str, float]:
    """Measure what only a planner's episode has."""
    measured = {
        "plan/decomposed_frac": float(planned.decomposed),
        "plan/subproblems": float(planned.subproblems),
        "plan/single_frac": float(planned.subproblems == 1),
        "plan/alone_frac": float(alone),
        "plan/gain": right - float(alone),
        "plan/worker_tokens": float(planned.worker_tokens),
        "plan/tokens": float(planned.worker_tokens + episode.sampled_tokens),
        "plan/hacked_frac": float(bool(planned.hacks)),
        **{f"plan/{hack}_frac": float(hack in planned.hacks) for hack in ("leaked", "restated", "trivial", "duplicated")},
        **{f"faults/{fault}": 1.0 for fault in planned.faults},
    }
    asked = [turn.result.served for turn in episode.turns if turn.call is not None and turn.call.name == "solve_subproblem" and turn.result]
    if planned.subproblems > 1:
        measured["plan/independence"] = apart
    if asked:
        measured["plan/answerable_frac"] = sum(asked) / planned.subproblems
    return measured


def _find_failure_mode(episode: Episode, planned: PlannedEpisode) -> str:
    """Name where a wrong episode broke: no plan, cut off, a reward hack, no split, a part without an answer, or the plan itself."""
    if planned.plan is None:
        return "cut_off" if episode.stop_reason is StopReason.MAX_TOKENS else "malformed"
    if planned.hacks:
        return "guarded"
    if not planned.decomposed:
        return "not_split"
    return "misplanned" if episode.answer else "unanswerable_part"


def make_worker(config: RunConfig) -> Worker:
    """Make the configured worker; nothing is loaded or contacted yet."""
    worker = config.planner.worker
    if worker.kind == "arithmetic":
        return ArithmeticWorker(worker.max_operations)
    if worker.kind == "base":
        return ModelWorker("base", None, worker.max_new_tokens)
    return make_served_worker(worker)


def make_independence(config: RunConfig) -> Independence:
    """Make the measure; an embedder is found and named, but loaded only when the first text comes."""
    from slmsearch.retrieval.embedders import load_embedder

    # Only queries are encoded: the name must not change with the precision of passages.
    return EmbeddingIndependence(load_embedder(config.retrieval.embedder.model_copy(update={"precision": "float32"})))


def make_planner(config: RunConfig) -> PlannerEnvironment:
    """Make the configured planner."""
    return PlannerEnvironment(
        make_worker(config), make_number_judge(config.judge, config.paths.data_dir), make_independence(config), config
    )


def planner_sources(config: RunConfig) -> dict[str, Any]:
    """Collect what decides how plans are asked for, carried out and graded; part of every key of the planner."""
    planner = config.planner
    used = {"arithmetic": {"max_operations"}, "base": {"max_new_tokens"}}.get(planner.worker.kind, {"model", "base_url", "max_new_tokens"})
    judge = {"kind": "numbers"}
    if config.judge.kind != "exact":
        judge |= config.judge.model_dump(mode="json", include={"kind", "model", "base_url"})
    return {
        "system": "planner",
        "prompt": {"version": PLAN_PROMPT_VERSION, "system": planner.system_prompt},
        "max_plan_tokens": planner.max_plan_tokens,
        "worker": {name: value for name, value in planner.worker.key_parts().items() if name == "kind" or name in used},
        "independence": make_independence(config).name if planner.reward.independence else None,
        "reward": planner.reward.key_parts(),
        "judge": judge,
    }
