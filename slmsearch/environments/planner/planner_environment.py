"""The planner: it writes plans that a frozen worker carries out."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, Self

from slmsearch.config import CorpusConfig, PlannerConfig, RetrievalConfig, RunConfig, SftConfig
from slmsearch.corpus.data_report import DataReport
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import read_rows
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment, through
from slmsearch.environments.planner.plan import DIRECT, MAX_QUESTION_CHARS, Plan, Subproblem, parse_plan, render_plan
from slmsearch.environments.planner.plan_demonstrations import TINY_PLANNER, make_plan_demonstrations
from slmsearch.environments.planner.plan_prompt import COMBINE, DIRECT_SOLUTION, PLAN_PROMPT_VERSION, SUBPROBLEM, Task, make_plan_prompt
from slmsearch.environments.planner.plan_reward import (
    PLAN_RULES_VERSION,
    Independence,
    NumberJudge,
    PlannedEpisode,
    compared_texts,
    inspect_episode,
    score_plan,
)
from slmsearch.environments.planner.play import carry_out, write_plans
from slmsearch.environments.planner.problem_sources import check_problems, load_problems, problems_parts
from slmsearch.environments.planner.worker import ArithmeticWorker, ModelWorker, Worker, make_served_worker
from slmsearch.environments.question_set import QuestionSet
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.controls import Controls
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.grade import judge_episodes
from slmsearch.episodes.playable import Check, Limits
from slmsearch.episodes.rows import EpisodeRow, make_row
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.teaching import Teaching
from slmsearch.errors import CorpusError
from slmsearch.judge import Judge, Verdict
from slmsearch.judge.exact import RULES_VERSION

WORKER_ALONE, PLAN_IS_QUESTION, PLANS_SHUFFLED = "worker-alone", "plan-is-question", "plans-shuffled"


class PlannerData(QuestionSet):
    """Maths problems: a file, a data set of the Hub, or generated."""

    label = "problems"
    code = ("corpus", "environments/planner")
    unused = ("corpus.", "reward.", "control.", "searcher.")
    output = "planner"

    def sources(self) -> dict[str, str | None]:
        return {"planner.problems": self.config.planner.problems}

    def load_questions(self) -> list[Question]:
        return load_problems(self.config.planner)

    def key_parts(self) -> Mapping[str, object] | None:
        return problems_parts(self.config.planner)

    @classmethod
    def collect_again(cls, config: CorpusConfig, recorded: Mapping[str, Any]) -> Mapping[str, object] | None:
        if "kind" not in recorded:
            return None
        if config.questions is None:
            return problems_parts(PlannerConfig(limit=recorded["limit"] or recorded["count"], seed=recorded["seed"]))
        return problems_parts(PlannerConfig(problems=config.questions, limit=recorded["limit"]))

    def check(self, corpora_dir: Path, digest: str) -> DataReport:
        return check_problems(digest, load_questions(corpora_dir, digest))

    def describe(self) -> str:
        return self.config.planner.problems or f"problems:{self.config.planner.seed}"

    def fresh(self, seed: int, pages: int, questions: int) -> RunConfig:
        """Configure other generated problems."""
        return self.config.changed({"planner.problems": None, "planner.limit": max(60, questions), "planner.seed": seed})

    def servers(self) -> Mapping[str, bool]:
        planner = self.config.planner
        worker_served = planner.worker.kind in ("openai", "ollama")
        embedder_served = self.config.retrieval.embedder.base_url is not None and bool(planner.reward.independence)
        return {"planner.": worker_served, "retrieval.embedder.": embedder_served, "retrieval.chroma": False, "sandbox.": False}


class PlannerTeaching(Teaching["PlannerEnvironment"]):
    """Demonstrations of plans, of generated problems or from a file."""

    tiny = TINY_PLANNER
    seed_offset = 100
    advice = "raise planner.sft.max_tokens"

    def demonstrations(self, settings: SftConfig) -> Iterator[Demonstration]:
        """Demonstrate plans of fresh random problems."""
        return make_plan_demonstrations(settings.recipe, settings.seed)

    def examples(self, source: str, wrong: Mapping[str, Episode] | None = None) -> tuple[list[Demonstration], Counter[str]]:
        """Load prompts and plans from a file or the Hub.

        Raises:
            CorpusError: the source is missing, or a row lacks a column.
        """
        return [plan for plan in _read_plans(self.config.planner, source) if wrong is None or plan.question in wrong], Counter()

    def settings(self, examples: int) -> SftConfig:
        """Return the settings; where `epochs` is set, with the number of steps that it takes."""
        epochs, sft = self.config.planner.sft.epochs, self.config.sft
        steps = max(1, round(epochs * examples / sft.batch_size)) if epochs and sft.batch_size else sft.steps
        return sft.model_copy(update={"steps": steps})

    def start_sources(self) -> tuple[str, ...]:
        source = self.config.planner.sft.source
        return ("demonstrations" if source == "generated" else source,)

    def start_parts(self, digest: str) -> Mapping[str, object] | None:
        plans = self.config.planner.sft
        if not plans.enabled:
            return None
        return {
            "problems": digest if plans.source == "own" else "",
            "plans": plans.key_parts(exclude={"enabled"}),
            "prompt": {"version": PLAN_PROMPT_VERSION, "system": self.config.planner.system_prompt},
        }


class PlannerControls(Controls["PlannerEnvironment"]):
    """Controls: everything left to the worker, the problem as the only part, the plans of other problems."""

    baselines = (WORKER_ALONE, PLAN_IS_QUESTION)
    reference = WORKER_ALONE
    derived = (PLANS_SHUFFLED,)

    def sampler(self, environment: "PlannerEnvironment", name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        if name == WORKER_ALONE:
            return ScriptedSampler(lambda problem, results: render_plan(DIRECT))
        if name == PLAN_IS_QUESTION:
            return ScriptedSampler(lambda problem, results: render_plan(restate(problem)))
        if name == PLANS_SHUFFLED:
            plans = shuffle_plans(questions, written, self.config.evaluate.seed)
            return ScriptedSampler(lambda problem, results: plans[problem])
        return super().sampler(environment, name, questions, written)


class PlannerEnvironment(Environment):
    """The planner environment: the policy writes plans that a frozen worker executes."""

    does = "splits a problem for a frozen worker"
    name = "planner"
    reward_kind = "planner.reward.kind"
    tool_names = (SUBPROBLEM, COMBINE, DIRECT_SOLUTION)
    data = PlannerData
    teaching = PlannerTeaching
    controls = PlannerControls
    worker: Worker
    independence: Independence | None
    """Measure of independence; None where its weight is 0: no embedder is loaded or asked."""
    _alone: dict[str, bool]
    """Problem -> whether the worker alone is right."""

    def __init__(self, config: RunConfig) -> None:
        """See `Playable`; a worker that samples from the policy's base is known before it is opened, because it is part of keys."""
        super().__init__(config)
        if config.planner.worker.kind == "base":
            self.base_user = ModelWorker("base", None, config.planner.worker.max_new_tokens)

    def with_worker(self, worker: Worker, judge: Judge, independence: Independence | None) -> Self:
        """Return a copy that is open, with this worker, this judge and this measure of independence."""
        opened = copy(self)
        opened.worker, opened.judge, opened.independence = worker, judge, independence
        opened.base_user = worker if isinstance(worker, ModelWorker) else None
        opened._alone = {}
        return opened

    def make_limits(self) -> Limits:
        planner = self.config.planner
        most, settings = planner.max_plan_tokens, ("planner.max_plan_tokens",)
        return Limits(most, most, self.config.searcher.tool_role, settings, max_example_tokens=planner.sft.max_tokens)

    def opening(self, question: str) -> list[Message]:
        return make_plan_prompt(question, self.config.planner)

    def key_parts(self, index_key: str) -> Mapping[str, object]:
        config, planner = self.config, self.config.planner
        read = {"arithmetic": {"max_operations"}, "base": {"max_new_tokens"}}
        used = read.get(planner.worker.kind, {"model", "base_url", "max_new_tokens"})
        asked = {"kind", "model", "base_url"} if config.judge.kind != "exact" else set()
        judge = {**config.judge.model_dump(mode="json", include=asked), "rules": RULES_VERSION} if asked else {}
        return {
            "prompt": {"version": PLAN_PROMPT_VERSION, "system": planner.system_prompt},
            "max_plan_tokens": planner.max_plan_tokens,
            "worker": {name: value for name, value in planner.worker.key_parts().items() if name == "kind" or name in used},
            "independence": make_independence(config.retrieval).name if planner.reward.independence else None,
            "reward": {"rules": PLAN_RULES_VERSION, **planner.reward.key_parts()},
            "judge": {"kind": "numbers", **judge},
        }

    def open(self, judge: Judge, digest: str | None = None, index_key: str | None = None) -> Self:
        """Open the environment; no model is loaded and no server contacted yet."""
        config = self.config
        of_numbers = NumberJudge(None if config.judge.kind == "exact" else judge)
        independence = make_independence(config.retrieval) if config.planner.reward.independence else None
        return self.with_worker(make_worker(config.planner), of_numbers, independence)

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        """Let the policy write the plans."""
        return write_plans(questions, sampler, self.config.planner, sampling)

    def complete(self, questions: Sequence[Question], episodes: Sequence[Episode]) -> list[Episode]:
        """Let the worker execute the plans."""
        return carry_out(questions, episodes, self.worker)

    def grade(
        self,
        questions: Sequence[Question],
        episodes: Sequence[Episode],
        verdicts: Sequence[Verdict] | None = None,
        draws: Sequence[float] = (),
    ) -> list[EpisodeRow]:
        verdicts = judge_episodes(questions, episodes, self.judge) if verdicts is None else verdicts
        unknown = self.solve_alone([questions[i] for i, episode in enumerate(episodes) if episode.stop_reason is not StopReason.FAILED])
        planned = [inspect_episode(episode, question.question) for question, episode in zip(questions, episodes, strict=True)]
        texts = [compared_texts(p.plan) if p.plan else [] for p in planned]
        apart = self.independence.score(texts) if self.independence else [None] * len(texts)
        rows = []
        for i, (question, episode, verdict) in enumerate(zip(questions, episodes, verdicts, strict=True)):
            worker_right, reward, draw = self._alone.get(question.id, False), None, draws[i] if draws else 0.0
            verdict = unknown.get(question.id, verdict)
            if verdict.correct is not None:
                verdict = replace(verdict, correct=verdict.correct and not planned[i].hacks)
                paid = 0.0 if worker_right else apart[i] or 0.0
                reward = score_plan(episode, planned[i], bool(verdict.correct), paid, self.config.planner.reward, draw)
            row = make_row(question, episode, verdict, reward)
            mode = "" if row.failed or row.correct else _find_failure_mode(episode, planned[i])
            measured = {} if row.failed else _measure(episode, planned[i], row.correct, worker_right, apart[i])
            right = row.correct
            rows.append(replace(row, exact_match=right, typed_match=right, f1=right, failure_mode=mode, measured=measured))
        return rows

    def solve_alone(self, questions: Sequence[Question]) -> dict[str, Verdict]:
        """Let the worker alone solve each new problem; return the verdicts that are missing because a service broke, by question id."""
        new = list({question.id: question for question in questions if question.id not in self._alone}.values())
        solutions = self.worker.solve([Task(DIRECT_SOLUTION, question.question) for question in new])
        pairs = list(zip(new, solutions, strict=True))
        why = "worker: the worker alone could not be asked ({}); fix it, or choose another planner.worker.kind"
        found = {question.id: Verdict(None, failure=why.format(made.failure)) for question, made in pairs if made.failure}
        answered = [(question, made.answer) for question, made in pairs if not made.failure]
        found |= {question.id: verdict for (question, _), verdict in zip(answered, self.judge.judge(answered), strict=True)}
        self._alone |= {name: verdict.correct for name, verdict in found.items() if verdict.correct is not None}
        return {name: verdict for name, verdict in found.items() if verdict.correct is None}

    def checks(self, renderer: ChatRenderer) -> Iterable[Check]:
        """Check that a plan survives tokenizer and parser, and that the worker answers a sum."""
        part = Subproblem(id="1", question="Mira: 48 divided by 2?", depends_on=())
        plan = Plan(should_decompose=True, subproblems=(part,), combine="48 plus #1")
        same = parse_plan(through(renderer, self.message(render_plan(plan)))).plan == plan
        found = "a plan survives tokenizer and parser" if same else "a plan does not survive tokenizer and parser"
        yield Check("plan", same, found, "the model's tokenizer drops part of it: take another model")
        solution = self.worker.solve([Task(SUBPROBLEM, "What is 17 plus 25?")])[0]
        found = f"worker {self.worker.name} says {solution.answer or solution.failure or 'nothing'} to 17 plus 25"
        yield Check("worker", not solution.failure, found, "start the worker's server, or set planner.worker")

    def check_rows(self, rows: Sequence[EpisodeRow]) -> Iterable[Check]:
        silent = mean(row.measured.get("plan/decomposed_frac", 0.0) == 0 for row in rows)
        found = f"{silent:.0%} of {len(rows)} episodes without a subproblem"
        remedy = "the model never splits a problem: check planner.system_prompt, or train it with `slmsearch planner sft` first"
        yield Check("planning", silent < 1.0, found, remedy)


def _read_plans(planner: PlannerConfig, source: str) -> Iterator[Demonstration]:
    plans = planner.sft
    for row, where in read_rows(source, "planner.sft.source"):
        wanted = (plans.prompt_column, plans.completion_column)
        if any(not isinstance(row.get(column), str) for column in wanted):
            has = ", ".join(sorted(map(str, row)))
            raise CorpusError(f"{where}: columns {' and '.join(wanted)} must be texts; it holds {has}: rename them")
        problem, system = row[plans.prompt_column], row.get(plans.environment_column)
        prompt: tuple[Message, ...] = ()
        if isinstance(system, str) and system:
            prompt = ({"role": "system", "content": system}, {"role": "user", "content": problem})
        yield Demonstration(problem, ((row[plans.completion_column], ""),), prompt)


def restate(problem: str) -> Plan:
    """Make the plan whose only part is the problem; of one that is too long for a part, its end, which asks the question."""
    end = problem[-MAX_QUESTION_CHARS:]
    words = end if end == problem else end.partition(" ")[2]
    part = Subproblem(id="1", question=words or end, depends_on=())
    return Plan(should_decompose=True, subproblems=(part,), combine="#1")


def shuffle_plans(questions: Sequence[Question], written: Mapping[str, str], seed: int) -> dict[str, str]:
    """Give every problem a plan that was written for another one, at random but never its own."""
    order = [question.id for question in questions]
    random.Random(f"shuffled plans {seed}").shuffle(order)
    after = dict(zip(order, order[1:] + order[:1], strict=True))
    return {question.question: written.get(after[question.id], "") for question in questions}


def _measure(episode: Episode, planned: PlannedEpisode, right: float, alone: bool, apart: float | None) -> dict[str, float]:
    """Measure the metrics that only a planner's episode has."""
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
    asked = [turn.result.served for turn in episode.turns if turn.call and turn.call.name == SUBPROBLEM and turn.result]
    if planned.subproblems > 1 and apart is not None:
        measured["plan/independence"] = apart
    if asked:
        measured["plan/answerable_frac"] = sum(asked) / planned.subproblems
    return measured


def _find_failure_mode(episode: Episode, planned: PlannedEpisode) -> str:
    """Return a wrong episode's failure mode: no plan, cut off, a reward hack, no split, a part without an answer, or the plan itself."""
    if planned.plan is None:
        return "cut_off" if episode.stop_reason is StopReason.MAX_TOKENS else "malformed"
    if planned.hacks:
        return "guarded"
    if not planned.decomposed:
        return "not_split"
    return "misplanned" if episode.answer else "unanswerable_part"


def make_worker(planner: PlannerConfig) -> Worker:
    """Make the configured worker; no model is loaded and no server contacted yet."""
    worker = planner.worker
    if worker.kind == "arithmetic":
        return ArithmeticWorker(worker.max_operations)
    if worker.kind == "base":
        return ModelWorker("base", None, worker.max_new_tokens)
    return make_served_worker(worker)


def make_independence(retrieval: RetrievalConfig) -> Independence:
    """Make the measure; its embedder is named now, but loaded only for the first text."""
    from slmsearch.retrieval.embedders import load_embedder

    # Only queries are encoded: the name must not change with the precision of passages.
    return Independence(load_embedder(retrieval.embedder.model_copy(update={"precision": "float32"})))
