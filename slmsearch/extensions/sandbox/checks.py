"""Tools and embedder through a live server: what a program gets from a tool is compared with what the toolbox gives here, over the same
corpus and index. Scripted tools check the sandbox alone.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from slmsearch.config import SandboxConfig
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW, Toolbox
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.extensions.sandbox.client import SandboxClient
from slmsearch.extensions.sandbox.execution import as_value
from slmsearch.extensions.sandbox.sessions import SessionCorpus, Tools

TITLES = 40
"""Number of pages searched for by their titles."""
MIN_FIRST = 0.95
"""Share of them that must rank first."""
MISSING = "no-such-page-or-section"


@dataclass(frozen=True, slots=True)
class SandboxFinding:
    """Result of one check."""

    name: str
    passed: bool
    found: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name:<22} {self.found}"


class ScriptedTools:
    """Toolbox that answers without a corpus, to check the sandbox: every search finds one page, named after the query."""

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Serve calls."""
        return [self.serve_one(call) for call in calls]

    def serve_one(self, call: ToolCall) -> ToolResult:
        """Serve one call; an empty argument is refused."""
        text = call.argument
        if not text:
            return ToolResult("empty argument", served=False)
        if call.name == SEARCH:
            return ToolResult(f"{text}: Page of {text}", True, (text,))
        if call.name == VIEW:
            ids = (f"{text}:first", f"{text}:second")
            return ToolResult(f"{ids[0]}: First\n{ids[1]}: Second", True, (text,), ids)
        if call.name == READ:
            return ToolResult(f"Text of {text}.", True, (text.partition(":")[0],), (text,))
        return ToolResult("no such tool", served=False)


SCRIPTED_CORPUS = SessionCorpus("0" * 20, "0" * 20, 3)
"""Corpus that a client requests; scripted tools accept any."""


def check_tools(config: SandboxConfig, indexed: SessionCorpus, toolbox: Toolbox) -> list[SandboxFinding]:
    """Check the tools of a corpus and index, which the server opens and `toolbox` has open here.

    Raises:
        SlmSearchError: the sandbox or a tool broke.
    """
    pages = list(toolbox.library.pages())
    chosen = pages[:: max(1, len(pages) // TITLES)][:TITLES]
    section = toolbox.library.sections(chosen[0].id)[-1].id
    with closing(SandboxClient(config, indexed)) as client:
        return [
            _check_titles(client, {page.title: page.id for page in chosen}),
            *(_check_value(client, toolbox, *call) for call in ((SEARCH, chosen[0].title), (VIEW, chosen[0].id), (READ, section))),
            *(_check_refusal(client, *call) for call in ((SEARCH, ""), (VIEW, MISSING), (READ, MISSING))),
            _check_loop(client, chosen[0].title),
        ]


def check_scripted(config: SandboxConfig) -> list[SandboxFinding]:
    """Check a server whose tools are scripted, so that nothing but the sandbox can fail.

    Raises:
        SlmSearchError: the sandbox broke.
    """
    with closing(SandboxClient(config, SCRIPTED_CORPUS)) as client:
        failing = client.execute("print('before')\n1 / 0")
        client.execute("import builtins\nbuiltins.left = 1")
        left = client.execute("import builtins\nprint(hasattr(builtins, 'left'))").stdout
        raised = (failing.stdout, failing.error) == ("before\n", "ZeroDivisionError: division by zero (line 2)")
        return [
            *(_check_value(client, ScriptedTools(), *call) for call in ((SEARCH, "a b"), (VIEW, "7"), (READ, "7:first"))),
            _check_loop(client, "bridge"),
            SandboxFinding("error", raised, failing.error),
            SandboxFinding("forgetting", left == "False\n", "one program knows nothing of another"),
        ]


def _check_titles(client: SandboxClient, titles: dict[str, str]) -> SandboxFinding:
    """Search for pages by their own titles, in programs of ten searches."""
    names, first = list(titles), 0
    for start in range(0, len(names), 10):
        batch = names[start : start + 10]
        ranked = client.execute(f"for title in {batch!r}:\n    print(search_pages(title)[0][0])").stdout.splitlines()
        first += sum(titles[name] == page_id for name, page_id in zip(batch, ranked, strict=False))
    return SandboxFinding("embedder", first >= MIN_FIRST * len(names), f"{first} of {len(names)} pages rank first for their own title")


def _check_value(client: SandboxClient, tools: Tools, name: str, argument: str) -> SandboxFinding:
    expected = as_value(name, tools.serve([ToolCall(name, argument)])[0])
    came_to = client.execute(f"print({name}({argument!r}))")
    same = came_to.stdout.rstrip("\n") == str(expected).rstrip("\n")[: len(came_to.stdout)] and came_to.error == ""
    counted = [(call.name, call.argument, call.served) for call in came_to.calls] == [(name, argument, True)]
    return SandboxFinding(name, same and counted, "as without a sandbox" if same else f"differs: {came_to.stdout[:100]!r} {came_to.error}")


def _check_refusal(client: SandboxClient, name: str, argument: str) -> SandboxFinding:
    came_to = client.execute(f"try:\n    {name}({argument!r})\nexcept ToolError as error:\n    print('refused:', error)")
    refused = came_to.stdout.startswith("refused: ") and [call.served for call in came_to.calls] == [False]
    return SandboxFinding(f"{name} refuses", refused, came_to.stdout.strip() or came_to.error)


def _check_loop(client: SandboxClient, query: str) -> SandboxFinding:
    """Use all three tools in one program."""
    came_to = client.execute(
        f"for page_id, title in search_pages({query!r}):\n"
        "    for section_id, heading in view_sections(page_id)[:2]:\n"
        "        print(len(read_section(section_id)))"
    )
    passed = {call.name for call in came_to.calls} == {SEARCH, VIEW, READ} and not came_to.error and came_to.stdout.split() != []
    return SandboxFinding("loop", passed, f"{len(came_to.calls)} calls in one program{came_to.error and ', ' + came_to.error}")
