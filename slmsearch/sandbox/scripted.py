"""Tools without a corpus, for checking the sandbox alone: every search finds one page, named after the query."""

from collections.abc import Sequence

from slmsearch.sandbox.sessions import IndexedCorpus
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.tools import READ, SEARCH, VIEW

SCRIPTED_CORPUS = IndexedCorpus("0" * 20, "0" * 20, 3)
"""What a client asks for; scripted tools take any."""


class ScriptedTools:
    """Answers from the call alone; an empty argument is refused."""

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Serve calls."""
        return [self.serve_one(call) for call in calls]

    def serve_one(self, call: ToolCall) -> ToolResult:
        """Serve one call."""
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
