"""An episode: one played question, as data.

Layout of the token ids, with the mask that training uses (1 = the policy wrote it, 0 = prompt, template or tool text):

    prompt_ids | sampled 1 | context 2 | sampled 2 | context 3 | sampled 3
       (none)  |   1 1 1   |   0 0 0   |   1 1 1   |   0 0 0   |   1 1 1

`context k` holds the template's and the tool result's tokens between two turns. An episode never ends on a context token.
"""

from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    """Reason why an episode ended."""

    ANSWERED = "answered"
    """The policy wrote an answer."""
    MAX_TURNS = "max_turns"
    """All turns were used without an answer."""
    MAX_TOKENS = "max_tokens"
    """A turn was cut off, or the episode reached its token or time limit."""
    MALFORMED = "malformed"
    """A turn held neither a call nor an answer, and, if the policy gets format feedback, the turn before it did not either."""
    FAILED = "failed"
    """A service broke; the episode is counted and left out, never graded."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed call of one tool."""

    name: str
    """One of `search_pages`, `view_sections` and `read_section`."""
    argument: str


@dataclass(frozen=True, slots=True)
class Quotation:
    """An answer that is a section of the corpus, or some of its lines."""

    section_id: str
    lines: tuple[int, int] | None = None
    """First and last line, counted from 1; None: the whole section. `environments/searcher/quoting.py` defines which lines count."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a call."""

    text: str
    """Text that the policy reads."""
    served: bool
    """False when the call could not be served (unknown page, empty query) and `text` says why."""
    page_ids: tuple[str, ...] = ()
    """Pages shown (search) or opened (view, read), best first."""
    section_ids: tuple[str, ...] = ()
    """Sections listed (view) or read (read)."""
    scores: tuple[float, ...] = ()
    """Scores of the pages that a search shows, as `Hit.score`."""
    made: "tuple[CallMade, ...]" = ()
    """Calls of a program, in order; the texts of their results stay in the sandbox."""
    tokens: int = 0
    """Tokens read and written for it by a model or a worker."""


@dataclass(frozen=True, slots=True)
class CallMade:
    """A tool call with its result."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message, and the answer to it: a tool result or format feedback."""

    text: str
    """Text of the policy, without the end-of-turn token."""
    call: ToolCall | None = None
    answer: str | None = None
    result: ToolResult | None = None
    context_ids: tuple[int, ...] = ()
    """Template and tool-result tokens before this turn (mask 0); empty for the first turn and for served models."""
    sampled_ids: tuple[int, ...] = ()
    """Tokens the policy wrote (mask 1), with its end-of-turn token if it wrote one; empty for policies without ids."""
    sampled_logprobs: tuple[float, ...] = ()
    """Log-probability of each sampled id under the sampled distribution, temperature included; may be empty."""
    program: str | None = None
    """Python that the policy wrote instead of a call."""
    quotation: Quotation | None = None
    """Part of the corpus that the policy answered with; `answer` is its text."""

    @property
    def told(self) -> bool:
        """True if the message was malformed and the result is format feedback."""
        return self.result is not None and self.call is None and self.program is None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The call, or the calls of the program."""
        return (self.call,) if self.call is not None else tuple(made.call for made in self.made)

    @property
    def made(self) -> tuple[CallMade, ...]:
        """Answered calls, with their results."""
        if self.result is None:
            return ()
        return (CallMade(self.call, self.result),) if self.call is not None else self.result.made


@dataclass(frozen=True, slots=True)
class Episode:
    """One played question."""

    question_id: str
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    prompt_ids: tuple[int, ...] = ()
    seconds: float = 0.0
    """Wall time from the first prompt to the end of this episode, shared by the batch it was played in."""
    failure: str = ""
    """For `failed`: the boundary that broke and its message."""
    sampled_tokens: int = 0
    """Tokens the policy wrote (for served models, as the server counted them)."""

    @property
    def answer(self) -> str | None:
        """The answer given, or None."""
        return self.turns[-1].answer if self.turns else None

    @property
    def quotation(self) -> Quotation | None:
        """The part of the corpus that the answer quotes, or None."""
        return self.turns[-1].quotation if self.turns else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All tool calls, in order, including unserved ones and those of programs."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def num_unserved(self) -> int:
        """Calls that could not be served, and programs that ended in an error."""
        outer = sum(turn.result is not None and not turn.result.served and not turn.told for turn in self.turns)
        return outer + sum(not made.result.served for turn in self.turns if turn.program is not None for made in turn.made)

    @property
    def num_told(self) -> int:
        """Number of malformed messages that were answered with format feedback."""
        return sum(turn.told for turn in self.turns)

    @property
    def completion_ids(self) -> list[int]:
        """All ids after the prompt."""
        return [i for turn in self.turns for i in (*turn.context_ids, *turn.sampled_ids)]

    @property
    def sampled_mask(self) -> list[int]:
        """1 where `completion_ids` was written by the policy, 0 where the template or a tool wrote it."""
        return [m for turn in self.turns for m in ([0] * len(turn.context_ids) + [1] * len(turn.sampled_ids))]

    @property
    def sampled_logprobs(self) -> list[float]:
        """One value per completion id; 0.0 at context tokens."""
        return [value for turn in self.turns for value in ([0.0] * len(turn.context_ids) + list(turn.sampled_logprobs))]
