"""Preflight rollouts: a few groups played before training, and the checks that say whether it could learn from them.

Each check finds one way in which runs fail without a word: a parser that reads nothing, an inverted mask, a cap that cuts every
episode off, a judge that is down, rewards that are all equal, an index that answers with noise.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError, SandboxError
from slmsearch.evaluate.environments import Environment, PlannerEnvironment, SearcherEnvironment
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.judge import Judge
from slmsearch.judge.qualify import REMEDY, read_state
from slmsearch.planner.plan import Plan, Subproblem, parse_plan, render_plan
from slmsearch.planner.worker import Worker, solve_subproblem
from slmsearch.searcher.episode import Episode, StopReason, ToolCall, ToolResult
from slmsearch.searcher.parsing import parse_turn, render_answer, render_call
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

MAX_FAILED_FRAC = 0.5
"""Share of failed episodes, before training or in a step of it, above which it stops with the cause: what is left is no sample any more."""
MAX_TRUNCATED = 0.5
"""Share of preflight episodes that may be cut off by a token limit."""
MAX_MALFORMED = 0.9
"""Share that may end malformed: the format can be learnt, but not from nothing."""
MIN_FOUND = 0.5
"""Share of pages that a search for their own title must show."""
TITLES = 32
"""Titles searched for."""
NO_THOUGHT = re.compile(r"<think>\s*</think>\s*")
NONSENSE = "zzqx vrrk"
"""An answer that no judge may call right."""


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check."""

    name: str
    passed: bool
    found: str
    """What was measured, in one line."""
    remedy: str = ""
    """What to do where it has not passed."""


def check_environment(environment: Environment, questions: Sequence[Question], renderer: ChatRenderer) -> Iterator[Check]:
    """Check what is particular to an environment, before anything is played."""
    if isinstance(environment, PlannerEnvironment):
        yield check_plan(renderer)
        yield check_judge(environment.judge, questions)
        yield check_worker(environment.worker)
    elif isinstance(environment, SearcherEnvironment):
        yield check_tool_calls(renderer)
        yield check_template(renderer)
        yield check_judge(environment.judge, questions)
        yield check_index(environment.toolbox)
        if environment.config.searcher.programs:
            yield check_sandbox(environment.toolbox)


def check_plan(renderer: ChatRenderer) -> Check:
    """Send a plan through the tokenizer and the parser: what was meant must come back."""
    part = Subproblem(id="1", question="Mira: 48 divided by 2?", depends_on=())
    plan = Plan(should_decompose=True, subproblems=(part,), combine="48 plus #1")
    same = parse_plan(_through(renderer, render_plan(plan))).plan == plan
    found = "a plan survives tokenizer and parser" if same else "a plan does not survive tokenizer and parser"
    return Check("plan", same, found, "the model's tokenizer drops part of it: take another model")


def check_worker(worker: Worker) -> Check:
    """Ask the worker for a sum."""
    solution = worker.solve([solve_subproblem("What is 17 plus 25?")])[0]
    found = f"worker {worker.name} says {solution.answer or solution.failure or 'nothing'} to 17 plus 25"
    return Check("worker", not solution.failure, found, "start the worker's server, or set planner.worker")


def check_tool_calls(renderer: ChatRenderer) -> Check:
    """Send a call of every tool, and an answer, through the tokenizer and the parser: what was meant must come back."""
    calls = [ToolCall(SEARCH, 'the "Old" Mill'), ToolCall(VIEW, "4821"), ToolCall(READ, "4821:early_life")]
    messages = [render_call(call) for call in calls]
    lost = [call.name for call, text in zip(calls, messages, strict=True) if parse_turn(_through(renderer, text)).call != call]
    if parse_turn(_through(renderer, render_answer("Mount Selund"))).answer != "Mount Selund":
        lost.append("answer")
    found = f"do not survive tokenizer and parser: {', '.join(lost)}" if lost else "3 tools and an answer survive tokenizer and parser"
    return Check("tool calls", not lost, found, "the model's tokenizer or the parser drops part of a call: take another model")


def _through(renderer: ChatRenderer, text: str) -> str:
    return renderer.decode([*renderer.content_ids(text), renderer.end_id])


def check_template(renderer: ChatRenderer) -> Check:
    """Compare the ids that episodes are made of with the model's own rendering of the same messages."""
    call, result = render_call(ToolCall(SEARCH, "Norwick")), "4821: Norwick"
    opening = [{"role": "user", "content": "Where is Norwick?"}]
    whole = [*opening, {"role": "assistant", "content": call}, {"role": renderer.tool_role, "content": result}]
    ids = (*renderer.encode_prompt(opening), *renderer.content_ids(call), renderer.end_id, *renderer.encode_result(result))
    rendered = renderer.tokenizer.apply_chat_template(whole, tokenize=False, add_generation_prompt=True)
    prefix = renderer.tokenizer.apply_chat_template(opening, tokenize=False, add_generation_prompt=True)
    # Templates of thinking models that do not think print an empty thought, and only in front of the newest turn.
    laid_out, rendered, prefix = (NO_THOUGHT.sub("", text) for text in (renderer.tokenizer.decode(ids), rendered, prefix))
    same = laid_out == rendered and rendered.startswith(prefix)
    found = "a conversation only grows at its end" if same else "the chat template rewrites earlier turns when a conversation grows"
    return Check("template", same, found, "use a template without that (an instruct, not a thinking model), or searcher.tool_role=user")


def check_judge(judge: Judge, questions: Sequence[Question]) -> Check:
    """Ask about gold answers and about nonsense."""
    answerable = [question for question in questions if question.answer][:4]
    verdicts = judge.judge([(q, q.answer) for q in answerable] + [(q, NONSENSE) for q in answerable])
    failures = [verdict.failure for verdict in verdicts if verdict.correct is None]
    if failures:
        return Check("judge", False, f"no verdict: {failures[0]}", "start the judge, or set judge.base_url and judge.model")
    right = [bool(verdict.correct) for verdict in verdicts]
    expected = [True] * len(answerable) + [False] * len(answerable)
    agree = sum(a == b for a, b in zip(right, expected, strict=True))
    found = f"{agree} of {len(expected)} verdicts right on gold answers and nonsense"
    return Check("judge", agree == len(expected), found, "this judge cannot tell gold from nonsense: take another judge.model")


def check_qualified(config: RunConfig) -> list[Check]:
    """Say whether a language model judge has passed its qualification; the exact judge needs none."""
    if config.judge.kind == "exact":
        return []
    try:
        state = read_state(config.judge, config.paths.data_dir)
        passed, found = state.passed, state.found
    except JudgeError as error:
        passed, found = False, str(error)
    if not passed and not config.judge.require_qualified:
        passed, found = True, f"{found}; judge.require_qualified is off"
    return [Check("judge qualified", passed, found, REMEDY)]


def check_index(toolbox: Toolbox) -> Check:
    """Search for pages by their own titles, spread over the corpus."""
    pages = list(toolbox.library.pages())
    chosen = pages[:: max(1, len(pages) // TITLES)][:TITLES]
    hits = toolbox.index.search([page.title for page in chosen], max(toolbox.top_k, 5))
    found = mean(page.id in {hit.page_id for hit in shown} for page, shown in zip(chosen, hits, strict=True)) if chosen else 0.0
    figures = f"{found:.0%} of {len(chosen)} pages found by their own title"
    return Check("index", found >= MIN_FOUND, figures, "index and embedder do not belong together: slmsearch reindex")


def check_sandbox(toolbox: Toolbox) -> Check:
    """Run a program that searches."""
    page = next(iter(toolbox.library.pages()))
    program = f"print(len(search_pages({page.title!r})))"
    result = toolbox.programs.run([program])[0] if toolbox.programs is not None else SandboxError("these tools have no sandbox")
    passed = isinstance(result, ToolResult) and result.served and [made.result.served for made in result.made] == [True]
    found = result.text if isinstance(result, ToolResult) else str(result)
    figures = "a program searched, and what it printed came back" if passed else f"a program that searches came to: {found}"
    return Check("sandbox", passed, figures, "slmsearch sandbox up, or searcher.programs=false")


def check_mask(episodes: Sequence[Episode], ids: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], renderer: ChatRenderer) -> Check:
    """Decode what will be trained on: it must be what the policy wrote, and nothing else.

    Args:
        episodes: played episodes.
        ids: completion ids of each, as the trainer gets them.
        masks: 1 where a completion id is trained on.
        renderer: decodes.
    """
    sampled = context = wrong = 0
    for episode, completion, mask in zip(episodes, ids, masks, strict=True):
        if episode.stop_reason is StopReason.FAILED:
            continue
        runs = groupby(zip(completion, mask, strict=True), key=lambda pair: pair[1])
        # Turn by turn: some tokenizers drop the space that a text begins with.
        sampled_text = "".join(renderer.decode([i for i, _ in run]) for trained, run in runs if trained)
        # A turn that was cut off in the middle of a character decodes otherwise alone than with what follows.
        wrong += sampled_text.replace("\ufffd", "") != "".join(turn.text for turn in episode.turns).replace("\ufffd", "")
        sampled += sum(mask)
        context += len(mask) - sum(mask)
    found = f"{sampled} tokens written, {context} tokens shown"
    if wrong:
        found += f"; in {wrong} of {len(episodes)} episodes the trained tokens are not what the policy wrote"
    return Check("mask", not wrong and sampled > 0, found, "sampled ids and mask have come apart: report it, do not train")


def check_episodes(rows: Sequence[EpisodeRow], rewards: Sequence[float | None], config: RunConfig) -> list[Check]:
    """Look at how the preflight's episodes ended and whether their rewards differ inside any group."""
    size = config.train.group_size
    failed = [row.failure for row in rows if row.failed]
    truncated = mean(row.stop_reason == StopReason.MAX_TOKENS for row in rows)
    malformed = mean(row.stop_reason == StopReason.MALFORMED for row in rows)
    planning = config.environment == "planner"
    silent = mean(row.measured.get("plan/decomposed_frac", 0.0) == 0 if planning else row.tool_calls == 0 for row in rows)
    groups = [[r for r in rewards[i : i + size] if r is not None] for i in range(0, len(rewards), size)]
    equal = mean(len(set(group)) < 2 for group in groups)
    return [
        Check(
            "services",
            len(failed) <= MAX_FAILED_FRAC * len(rows),
            f"{len(failed)} of {len(rows)} episodes failed" + (f" ({failed[0]})" if failed else ""),
            "fix the service that failed",
        ),
        Check(
            "truncated",
            truncated <= MAX_TRUNCATED,
            f"{truncated:.0%} of {len(rows)} episodes cut off",
            "raise planner.max_plan_tokens" if planning else "raise searcher.max_episode_tokens and searcher.max_turn_tokens",
        ),
        Check(
            "malformed",
            malformed <= MAX_MALFORMED,
            f"{malformed:.0%} of {len(rows)} episodes malformed",
            "the model does not know the format: train it with `slmsearch sft` first, or take another model",
        ),
        Check(
            "planning" if planning else "searching",
            silent < 1.0,
            f"{silent:.0%} of {len(rows)} episodes without a {'subproblem' if planning else 'tool call'}",
            f"the model never {'splits a problem' if planning else 'searches'}: check {config.environment}.system_prompt, or train it with "
            f"`slmsearch {'planner sft' if planning else 'sft'}` first",
        ),
        Check(
            "equal rewards",
            equal < 1.0,
            f"{equal:.0%} of {len(groups)} groups have no two different rewards",
            "nothing can be learnt from equal rewards: check reward and judge, raise train.temperature, or take other questions",
        ),
    ]


def colour_episode(episode: Episode, renderer: ChatRenderer, paint: Callable[[str, bool], str]) -> str:
    """Print an episode token by token as training sees it.

    Args:
        episode: a played episode.
        renderer: decodes.
        paint: takes a text and whether it is trained on.
    """
    parts = []
    for token, mask in zip(episode.completion_ids, episode.sampled_mask, strict=True):
        parts.append(paint(renderer.tokenizer.decode([token]), bool(mask)))
    return "".join(parts)
