"""The interface of samplers, which sample the next turn of an episode.

A sampler holds one row per open episode. It renders prompt and tool results itself, so that the ids that it fed and sampled
are exactly the ids that it reports: no text is decoded and tokenised again between turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Message = Mapping[str, str]
"""A message `{"role": ..., "content": ...}`, as chat templates take it. The first of an opening may hold `tools`, their declarations as
JSON, and one of the policy `call`: `{"name": ..., "arguments": {...}}` as JSON, with an empty content."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of sampling."""

    temperature: float = 0.0
    """0 is greedy; otherwise logits are divided by it."""
    seed: int = 0
    """Seed of the draws if `temperature` > 0; the same seed and row give the same draws, whatever else is in the batch."""
    max_new_tokens: int = 64
    """Largest number of tokens of a turn."""
    first_row: int = 0
    """Number of the first row among those of all processes that sample with this seed."""
    stop: tuple[str, ...] = ()
    """Texts that end a turn with the token that completes one of them, outside of `<think>`; the sampled text is kept as it is."""
    part_rows: int = 0
    """Size of a part of the rows; parts are sampled in turn, and the calls of one are served while another is sampled. 0: one part."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One sampled turn."""

    text: str
    """Decoded text without the end-of-turn token."""
    ended: bool
    """True if the policy ended the turn or a stop text did, False if a token limit cut it off."""
    context_ids: tuple[int, ...] = ()
    """Ids fed before sampling (template and tool result), mask 0. They begin with the end-of-turn token if the previous turn lacks it."""
    sampled_ids: tuple[int, ...] = ()
    """Sampled ids, mask 1; the end-of-turn token is among them if the policy sampled it."""
    sampled_logprobs: tuple[float, ...] = ()
    num_tokens: int = 0
    """Number of sampled tokens; it differs from `len(sampled_ids)` only for servers that report a count but no ids."""
    shown: str | None = None
    """Tool result as it was fed, if there was too little room for all of it."""
    failure: str = ""
    """Failure of the service behind this row, which ends the episode as `failed`; empty otherwise."""


class Sampler(Protocol):
    """An object that samples turns for a batch of episodes."""

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """Start one row per prompt; return each prompt's ids (empty tuples where ids are unknown)."""
        ...

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """Sample the next turn of rows.

        Args:
            rows: indices into `open`'s prompts, all of one part (`Sampling.part_rows`); no later call names a row of the part that is left
                out.
            results: tool result to feed first, None on the first turn.
            room: tokens each episode may still hold, tool result included. A tool result that leaves too little room for a turn is
                shortened; a row without room for one token is returned with `ended=False` and no ids.
        """
        ...

    def close(self) -> None:
        """Drop all rows."""
        ...
