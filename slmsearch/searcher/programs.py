"""Programs that the policy writes in the place of a call: who runs them, and what the policy reads of what they came to.

They are run by the sandbox (`slmsearch/sandbox`), and nothing else here or elsewhere executes what a model wrote.
"""

from collections.abc import Sequence
from typing import Protocol

from slmsearch.errors import SlmSearchError
from slmsearch.searcher.episode import ToolResult

NOTHING_PRINTED = "(the program printed nothing)"


class ProgramRunner(Protocol):
    """Runs programs; `sandbox.client.SandboxClient` does."""

    def run(self, programs: Sequence[str]) -> list[ToolResult | SlmSearchError]:
        """Run programs together, and return one result each, in order.

        A program's own error is a result that was not `served`. A sandbox, or a tool behind it, that broke is returned as the error.
        """
        ...


def render_outcome(stdout: str, error: str) -> str:
    """Write what a program printed, and its error in a line of its own, as the policy reads them."""
    printed = stdout.rstrip()
    if error:
        return f"{printed}\nerror: {error}" if printed else f"error: {error}"
    return printed or NOTHING_PRINTED
