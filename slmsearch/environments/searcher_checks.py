"""What of a searcher is checked before training: calls, chat template, index, sandbox."""

import re
from collections.abc import Sequence
from statistics import mean

from slmsearch.environments.environment import Check, through
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import SandboxError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.parsing import parse_turn, render_answer, render_call
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

MIN_FOUND = 0.5
"""Share of pages that a search for their own title must show."""
TITLES = 32
"""Titles searched for."""
NO_THOUGHT = re.compile(r"<think>\s*</think>\s*")


def check_tool_calls(renderer: ChatRenderer) -> Check:
    """Send a call of every tool, and an answer, through the tokenizer and the parser: what was meant must come back."""
    calls = [ToolCall(SEARCH, 'the "Old" Mill'), ToolCall(VIEW, "4821"), ToolCall(READ, "4821:early_life")]
    messages = [render_call(call) for call in calls]
    lost = [call.name for call, text in zip(calls, messages, strict=True) if parse_turn(through(renderer, text)).call != call]
    if parse_turn(through(renderer, render_answer("Mount Selund"))).answer != "Mount Selund":
        lost.append("answer")
    found = f"do not survive tokenizer and parser: {', '.join(lost)}" if lost else "3 tools and an answer survive tokenizer and parser"
    return Check("tool calls", not lost, found, "the model's tokenizer or the parser drops part of a call: take another model")


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


def check_searching(rows: Sequence[EpisodeRow]) -> Check:
    """Look whether any episode of the preflight makes a call."""
    silent = mean(row.tool_calls == 0 for row in rows)
    found = f"{silent:.0%} of {len(rows)} episodes without a tool call"
    remedy = "the model never searches: check searcher.system_prompt, or train it with `slmsearch sft` first"
    return Check("searching", silent < 1.0, found, remedy)
