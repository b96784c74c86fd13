"""The rollout loop for training and evaluation, and its simple case of a single message.

It knows neither torch nor rewards: a `Sampler` writes turns, a `Toolbox` answers them, and the loop returns `Episode`s. A badly played
episode is data; a broken service ends its episodes as `failed`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, repeat
from typing import TypeAlias

from slmsearch.config import SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.evidence import read_sections
from slmsearch.environments.searcher.parsing import CUT_OFF, NO_TAGS, NOTHING, PROGRAM_STOP, TOOL_STOPS, ParsedTurn, parse_turn
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.episode import Episode, StopReason, ToolResult, Turn
from slmsearch.episodes.grade import OnEnd
from slmsearch.episodes.sampler import Message, SampledTurn, Sampler, Sampling
from slmsearch.errors import ConfigError, SandboxError, SlmSearchError

HALVED_FROM = 128
"""Number of episodes from which on a sampler on a card samples one half while the other's calls are served; fewer take as long whole."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks in the thread that plays, while other episodes continue; they must return at once."""

    on_end: OnEnd | None = None
    """Callback for each episode, as soon as it has ended."""
    on_turn: Callable[[Question, Turn], None] | None = None
    """Callback for each turn, as soon as it has its result."""


@dataclass(slots=True)
class _Row:
    """An open episode."""

    question: Question
    prompt_ids: tuple[int, ...]
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason | None = None
    failure: str = ""
    tokens: int = 0
    """Tokens after the prompt, tool results included."""
    sampled_tokens: int = 0
    seconds: float = 0.0


_Waiting: TypeAlias = tuple[_Row, SampledTurn, ParsedTurn]


def play_episodes(
    questions: Sequence[Question], sampler: Sampler, toolbox: Toolbox, config: SearcherConfig, sampling: Sampling, watch: Watch = Watch()
) -> list[Episode]:
    """Play each question once, all of them together; repeat a question to play a group.

    The sampler's rows are closed at the end. The stop texts are set here.

    Args:
        questions: B questions.
        sampler: sampler of the policy.
        toolbox: serves the calls.
        config: limits in turns and in tokens, and the kind of reading.
        sampling: temperature, seed and tokens of a turn.
        watch: callbacks.

    Returns:
        B episodes, in the order of the questions.

    Raises:
        ConfigError: the policy may write programs, and a question has a view.
        SandboxError: the policy may write programs, and the tools have no sandbox.
    """
    if config.programs and any(question.view for question in questions):
        raise ConfigError("programs see all of the corpus: set searcher.programs to false, or twins off (train.twins_frac, evaluate.views)")
    if config.programs and toolbox.programs is None:
        raise SandboxError("searcher.programs is on and these tools have no sandbox, so no program is run; set it to false")
    started = time.perf_counter()
    prompts = open_prompts(questions, toolbox, config)
    size = -(-len(prompts) // 2) if getattr(sampler, "samples_beside", False) and len(prompts) >= HALVED_FROM else 0
    sampling = replace(sampling, stop=(*TOOL_STOPS, PROGRAM_STOP) if config.programs else TOOL_STOPS, part_rows=size)
    try:
        rows = [_Row(question, ids) for question, ids in zip(questions, sampler.open(prompts, sampling), strict=True)]
        parts = [range(start, min(start + size, len(rows))) for start in range(0, len(rows), size)] if size else [range(len(rows))]
        _take_turns([_play_part(rows, part, sampler, toolbox, config, watch, started) for part in parts])
    finally:
        sampler.close()
    return [_finish(row) for row in rows]


def _play_part(
    rows: list[_Row], part: Sequence[int], sampler: Sampler, toolbox: Toolbox, config: SearcherConfig, watch: Watch, started: float
) -> Iterator[Callable[[], None]]:
    """Play a part of the rows; after each sampled turn, yield the function that serves its calls and must run before the next turn."""
    most = config.max_turns if config.reads == "tools" else 1
    for number in range(1, most + 1):
        active = [i for i in part if rows[i].stop_reason is None]
        if not active:
            return
        yield partial(_serve, _sample_turn(rows, active, sampler, toolbox, config, last=number == most), toolbox)
        elapsed = time.perf_counter() - started
        for i in active:
            rows[i].seconds = elapsed
            if watch.on_turn is not None and len(rows[i].turns) == number:
                watch.on_turn(rows[i].question, rows[i].turns[-1])
            if watch.on_end is not None and rows[i].stop_reason is not None:
                watch.on_end(rows[i].question, _finish(rows[i]))


def _take_turns(parts: Sequence[Iterator[Callable[[], None]]]) -> None:
    """Play one part, or several in turn: a thread serves the calls of each while this thread samples the next."""
    if len(parts) == 1:
        for serve in parts[0]:
            serve()
        return
    with ThreadPoolExecutor(1, "serve") as thread:
        waiting = deque((part, thread.submit(lambda: None)) for part in parts)
        while waiting:
            part, served = waiting.popleft()
            served.result()
            waiting.extend((part, thread.submit(serve)) for serve in islice(part, 1))


def open_prompts(questions: Sequence[Question], toolbox: Toolbox, config: SearcherConfig) -> list[list[Message]]:
    """Make the messages that open episodes; a reader gets the text that a search for its question finds.

    Args:
        questions: B questions.
        toolbox: searches for a reader.
        config: kind of reading.
    """
    texts = [question.question for question in questions]
    shown = toolbox.show(texts, [question.view for question in questions]) if config.reads == "shown" else [""] * len(texts)
    prompts = [make_prompt(text, config, found) for text, found in zip(texts, shown, strict=True)]
    for question, prompt in zip(questions, prompts, strict=True):
        if question.traceparent:
            prompt[0] = {**prompt[0], "traceparent": question.traceparent}
    return prompts


def _sample_turn(
    rows: list[_Row], active: list[int], sampler: Sampler, toolbox: Toolbox, config: SearcherConfig, last: bool
) -> list[_Waiting]:
    """Let the policy write one turn in every active row; return the rows that wait for a result."""
    results = [_told(rows[i], toolbox) for i in active]
    room = [config.max_episode_tokens - rows[i].tokens for i in active]  # tokens left for context and turn of each row
    turns = sampler.sample(active, results, room)
    waiting: list[_Waiting] = []
    plain = config.reads != "tools" or config.format == "native"  # a message without a call is the answer
    for i, turn in zip(active, turns, strict=True):
        row = rows[i]
        if turn.shown is not None and row.turns:  # the shortened result that the policy saw replaces the whole one
            before = row.turns[-1]
            row.turns[-1] = replace(before, result=replace(before.result, text=turn.shown)) if before.result else before
        row.tokens += len(turn.context_ids) + max(len(turn.sampled_ids), turn.num_tokens)
        row.sampled_tokens += max(len(turn.sampled_ids), turn.num_tokens)
        parsed = parse_turn(turn.text, config.programs, plain=plain and turn.ended)
        parsed = _quote(parsed, row, toolbox)
        if parsed.malformed:
            problem = parsed.problem if turn.ended else CUT_OFF
            parsed = ParsedTurn(problem=problem.replace(NOTHING, NO_TAGS if config.format == "native" else NOTHING))
        told = bool(row.turns) and row.turns[-1].told
        row.stop_reason = _stop_reason(turn, parsed, last, end_malformed=told)
        row.failure = turn.failure
        if row.stop_reason is None:
            waiting.append((row, turn, parsed))
        elif turn.sampled_ids or turn.text:
            row.turns.append(_make_turn(turn, parsed, None))
    return waiting


def _told(row: _Row, toolbox: Toolbox) -> str | None:
    """Return what a row's policy is told of its last call; None before the first turn."""
    result = row.turns[-1].result if row.turns else None
    if result is None:
        return None
    return toolbox.remind(result.text, row.question.question) if result.served else result.text


def _quote(parsed: ParsedTurn, row: _Row, toolbox: Toolbox) -> ParsedTurn:
    """Make the text that a message quotes its answer; a message that quotes what was not shown is malformed."""
    if parsed.quotation is None:
        return parsed
    shown = {section_id for turn in row.turns for section_id in read_sections(turn)}
    result = toolbox.quote(parsed.quotation, shown, row.question.view)
    if not result.served:
        return ParsedTurn(problem=result.text)
    return replace(parsed, answer=result.text, quotation=replace(parsed.quotation, section_id=result.section_ids[0]))


def _serve(waiting: list[_Waiting], toolbox: Toolbox) -> None:
    """Serve all calls together, and all programs."""
    calls = [(parsed.call, row.question.view) for row, _, parsed in waiting if parsed.call is not None]
    try:
        served: Iterator[ToolResult | SlmSearchError] = iter(toolbox.serve([call for call, _ in calls], [view for _, view in calls]))
    except SlmSearchError as error:
        served = repeat(error)
    programs = [parsed.program for _, _, parsed in waiting if parsed.program is not None]
    ran = iter(toolbox.programs.run(programs) if programs and toolbox.programs is not None else [])
    for row, turn, parsed in waiting:
        refused = ToolResult(f"error: {parsed.problem}", served=False) if parsed.malformed else None
        result = refused or next(served if parsed.call is not None else ran)
        if isinstance(result, SlmSearchError):
            row.stop_reason, row.failure = StopReason.FAILED, f"{result.boundary}: {result}"
        row.turns.append(_make_turn(turn, parsed, None if isinstance(result, SlmSearchError) else result))


def _stop_reason(turn: SampledTurn, parsed: ParsedTurn, last: bool, end_malformed: bool) -> StopReason | None:
    """Return why an episode ends with this turn, or None; a cut-off turn that holds a complete call counts as that call."""
    if turn.failure:
        return StopReason.FAILED
    if parsed.answer is not None:
        return StopReason.ANSWERED
    if not parsed.malformed:
        return StopReason.MAX_TURNS if last else None
    if not turn.text and not turn.sampled_ids and not turn.ended:  # no room was left
        return StopReason.MAX_TOKENS
    if last or end_malformed:
        return StopReason.MALFORMED if turn.ended else StopReason.MAX_TOKENS
    return None


def _make_turn(turn: SampledTurn, parsed: ParsedTurn, result: ToolResult | None) -> Turn:
    ids = (turn.context_ids, turn.sampled_ids, turn.sampled_logprobs)
    return Turn(turn.text, parsed.call, parsed.answer, result, *ids, parsed.program, parsed.quotation)


def _finish(row: _Row) -> Episode:
    reason = row.stop_reason or StopReason.MAX_TURNS
    return Episode(row.question.id, tuple(row.turns), reason, row.prompt_ids, row.seconds, row.failure, row.sampled_tokens)
