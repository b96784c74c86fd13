"""The second suite: every tool, and the embedder's quality, through a live server.

What a program gets from a tool is compared with what the toolbox gives here, over the same corpus and index.
"""

from collections.abc import Callable
from dataclasses import dataclass

from slmsearch.config import SandboxConfig
from slmsearch.sandbox.client import SandboxClient
from slmsearch.sandbox.execution import as_value
from slmsearch.sandbox.scripted import SCRIPTED_CORPUS, ScriptedTools
from slmsearch.sandbox.sessions import IndexedCorpus, Tools
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

TITLES = 40
"""Pages searched for by their titles."""
MIN_FIRST = 0.95
"""Share of them that must rank first."""
MISSING = "no-such-page-or-section"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    passed: bool
    found: str


def check_tools(config: SandboxConfig, indexed: IndexedCorpus, toolbox: Toolbox) -> list[Finding]:
    """Check the tools of a corpus.

    Args:
        config: where the server is.
        indexed: corpus and index, which the server opens.
        toolbox: the same, opened here.

    Raises:
        SlmSearchError: the sandbox or a tool broke.
    """
    client = SandboxClient(config, indexed)
    try:
        pages = list(toolbox.library.pages())
        chosen = pages[:: max(1, len(pages) // TITLES)][:TITLES]
        section = toolbox.library.sections(chosen[0].id)[-1].id
        return [
            _check_titles(client, {page.title: page.id for page in chosen}),
            *(_check_value(client, toolbox, *call) for call in ((SEARCH, chosen[0].title), (VIEW, chosen[0].id), (READ, section))),
            *_check_refusals(client),
            _check_loop(client, chosen[0].title),
        ]
    finally:
        client.close()


def check_scripted(config: SandboxConfig) -> list[Finding]:
    """Check a server whose tools are scripted, so that nothing but the sandbox can fail.

    Raises:
        SlmSearchError: the sandbox broke.
    """
    client, tools = SandboxClient(config, SCRIPTED_CORPUS), ScriptedTools()
    try:
        values = [_check_value(client, tools, name, argument) for name, argument in ((SEARCH, "a b"), (VIEW, "7"), (READ, "7:first"))]
        return [*values, _check_loop(client, "bridge"), _check_error(client), _check_forgetting(client)]
    finally:
        client.close()


def _check_titles(client: SandboxClient, titles: dict[str, str]) -> Finding:
    """Search for pages by their own titles, in programs of ten searches."""
    names, first = list(titles), 0
    for start in range(0, len(names), 10):
        batch = names[start : start + 10]
        answer = client.execute(f"for title in {batch!r}:\n    print(search_pages(title)[0][0])")
        ranked = answer["stdout"].splitlines()
        first += sum(titles[name] == page_id for name, page_id in zip(batch, ranked, strict=False))
    return Finding("embedder", first >= MIN_FIRST * len(names), f"{first} of {len(names)} pages rank first for their own title")


def _check_value(client: SandboxClient, tools: Tools, name: str, argument: str) -> Finding:
    call = ToolCall(name, argument)
    expected = as_value(name, tools.serve([call])[0])
    answer = client.execute(f"print({name}({argument!r}))")
    same = answer["stdout"].rstrip("\n") == str(expected).rstrip("\n")[: len(answer["stdout"])] and answer["error"] == ""
    counted = [(made["name"], made["argument"], made["served"]) for made in answer["calls"]] == [(name, argument, True)]
    return Finding(name, same and counted, "as without a sandbox" if same else f"differs: {answer['stdout'][:100]!r} {answer['error']}")


def _check_refusals(client: SandboxClient) -> list[Finding]:
    findings = []
    for name, argument in ((SEARCH, ""), (VIEW, MISSING), (READ, MISSING)):
        answer = client.execute(f"try:\n    {name}({argument!r})\nexcept ToolError as error:\n    print('refused:', error)")
        refused = answer["stdout"].startswith("refused: ") and [made["served"] for made in answer["calls"]] == [False]
        findings.append(Finding(f"{name} refuses", refused, answer["stdout"].strip() or answer["error"]))
    return findings


def _check_loop(client: SandboxClient, query: str) -> Finding:
    """Use all three tools in one program."""
    program = (
        f"for page_id, title in search_pages({query!r}):\n"
        "    for section_id, heading in view_sections(page_id)[:2]:\n"
        "        print(len(read_section(section_id)))"
    )
    answer = client.execute(program)
    names = {made["name"] for made in answer["calls"]}
    passed = names == {SEARCH, VIEW, READ} and not answer["error"] and answer["stdout"].split() != []
    return Finding("loop", passed, f"{len(answer['calls'])} calls in one program{answer['error'] and ', ' + answer['error']}")


def _check_error(client: SandboxClient) -> Finding:
    answer = client.execute("print('before')\n1 / 0")
    passed = answer["stdout"] == "before\n" and answer["error"] == "ZeroDivisionError: division by zero (line 2)"
    return Finding("error", passed, answer["error"])


def _check_forgetting(client: SandboxClient) -> Finding:
    """Check that nothing stays of a program."""
    client.execute("import builtins\nbuiltins.left = 1")
    answer = client.execute("import builtins\nprint(hasattr(builtins, 'left'))")
    return Finding("forgetting", answer["stdout"] == "False\n", "one program knows nothing of another")


def render_findings(findings: list[Finding], mark: Callable[[bool], str] = lambda passed: "ok  " if passed else "FAIL") -> str:
    """Render one line each."""
    return "\n".join(f"{mark(finding.passed)} {finding.name:<22} {finding.found}" for finding in findings)
