"""Turns sampled by a torch model in this process, with a key-value cache kept across the turns of an episode.

No token is computed twice. Episodes with the same history share one line of the cache: a group's prompt is prefilled once, and
a line is forked only where its episodes write different tokens; between turns only the end-of-turn token and the tool result are
fed. Columns that a line does not use are masked; they are squeezed out between turns. What is sampled is reported as ids; text is
decoded only for the parser, and where a token may complete a stop text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from slmsearch.generate.chat_renderer import require_context
from slmsearch.generate.engine_sampler import Completion, IdSampler
from slmsearch.generate.line_cache import LineCache
from slmsearch.generate.sampler import Message, Sampling


class TorchSampler(IdSampler):
    """Samples turns with a causal language model of transformers."""

    def __init__(self, model: Any, tokenizer: Any, tool_role: str = "tool") -> None:
        """Wrap a loaded model; it is used as it is (dropout, dtype, device and adapters are the caller's)."""
        super().__init__(tokenizer, tool_role)
        self.model = model
        self._lines: dict[int, int] = {}
        """The line of the cache that holds each open row's history."""
        self._pending: dict[int, int | None] = {}
        """The last id of each row's turn, sampled but not yet fed."""
        self._completing: frozenset[int] = frozenset()
        """Ids that can complete a stop text."""
        self._chance: dict[int, np.random.Generator] = {}
        """Draws of each row: what it samples does not depend on the rows beside it."""
        self.close()

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`; equal prompts are prefilled once."""
        ids = [self.renderer.encode_prompt(prompt) for prompt in prompts]
        require_context(self.model, max(map(len, ids), default=0) + 1, "the longest prompt with a first token", "shorten the system prompt")
        self._sampling = sampling
        if not ids:
            return ids
        unique = list(dict.fromkeys(ids))
        line_of = {prompt: line for line, prompt in enumerate(unique)}
        self._cache = LineCache(len(unique), self.model.device, len(ids))
        self._logits = self._feed(unique)
        self._lines = {row: line_of[prompt] for row, prompt in enumerate(ids)}
        self._pending = dict.fromkeys(self._lines)
        self._completing = self.renderer.completing_ids(sampling.stop)
        self._chance = {row: np.random.default_rng([sampling.seed, sampling.first_row + row]) for row in self._lines}
        return ids

    def _last_id(self, row: int) -> int | None:
        return self._pending[row]

    @torch.no_grad()
    def _write(self, rows: list[int], contexts: list[tuple[int, ...]], limits: list[int]) -> list[tuple[Completion, bool]]:
        if any(contexts):
            self._feed_results(rows, contexts)
        sampled, logprobs = self._sample(rows, limits)
        self._pending |= {row: ids[-1] for row, ids in zip(rows, sampled, strict=True)}
        return [(Completion(tuple(ids), tuple(values)), self._ends(ids)) for ids, values in zip(sampled, logprobs, strict=True)]

    def close(self) -> None:
        """See `Sampler.close`."""
        self._cache = LineCache(0, self.model.device, 0)
        self._logits = torch.empty(0)
        """What follows each line's last token (lines x vocabulary)."""
        self._lines, self._pending, self._chance = {}, {}, {}

    def _feed_results(self, rows: list[int], contexts: list[tuple[int, ...]]) -> None:
        """Feed the last turn's last id and the context; rows whose histories are still equal go on sharing a line."""
        pending = [() if (last := self._pending[row]) is None else (last,) for row in rows]
        histories = [(self._lines[row], (*last, *context)) for row, last, context in zip(rows, pending, contexts, strict=True)]
        unique = list(dict.fromkeys(histories))
        line_of = {history: line for line, history in enumerate(unique)}
        self._cache.arrange([line for line, _ in unique])
        self._lines = {row: line_of[history] for row, history in zip(rows, histories, strict=True)}
        self._logits = self._feed([block for _, block in unique])

    def _feed(self, blocks: Sequence[Sequence[int]]) -> Tensor:
        """Append one block of ids per line, padded on the left; return the logits after each line's last id."""
        width = max(len(block) for block in blocks)
        ids = torch.tensor([[0] * (width - len(block)) + list(block) for block in blocks])
        real = torch.tensor([[False] * (width - len(block)) + [True] * len(block) for block in blocks])
        return self._forward(ids.to(self.model.device), real.to(self.model.device))

    @torch.no_grad()
    def _forward(self, ids: Tensor, real: Tensor) -> Tensor:
        """Run the model on new columns (ids and which of them are real, both lines x new) and keep them in the cache."""
        positions = self._cache.append(real)
        attended = self._cache.mask[:, None, None, :]
        new, past = ids.shape[1], self._cache.mask.shape[1] - ids.shape[1]
        if new > 1:
            causal = torch.ones(new, past + new, dtype=torch.bool, device=ids.device).tril(past)
            # A padded query attends to itself: a softmax over nothing would put NaN into the cache.
            itself = pad(torch.eye(new, dtype=torch.bool, device=ids.device), (past, 0))
            attended = (attended & causal) | itself
        output = self.model(
            input_ids=ids,
            attention_mask=attended,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def _sample(self, rows: list[int], limits: list[int]) -> tuple[list[list[int]], list[list[float]]]:
        """Sample every row until it ends its turn or reaches its limit; return ids and their log-probabilities."""
        sampled: list[list[int]] = [[] for _ in rows]
        logprobs: list[list[float]] = [[] for _ in rows]
        going = list(range(len(rows)))
        finished: set[int] = set()
        """Lines on which a row has ended its turn: what comes after must not be written into them."""
        while True:
            chosen, logprob = self._choose([rows[n] for n in going])
            for n, token, value in zip(going, chosen, logprob, strict=True):
                sampled[n].append(token)
                logprobs[n].append(value)
            done = {n for n in going if len(sampled[n]) >= limits[n] or self._ends(sampled[n])}
            finished |= {self._lines[rows[n]] for n in done}
            going = [n for n in going if n not in done]
            if not going:
                return sampled, logprobs
            self._decode([rows[n] for n in going], [sampled[n][-1] for n in going], finished)

    def _ends(self, sampled: list[int]) -> bool:
        """Say whether the policy ended the turn with its last token, or completed a stop text with it."""
        if sampled[-1] in self.renderer.end_ids:
            return True
        return sampled[-1] in self._completing and self.renderer.stop_length(sampled, self._sampling.stop) is not None

    def _decode(self, rows: list[int], tokens: list[int], finished: set[int]) -> None:
        """Feed one token per row; a line whose rows want different tokens, or one of which has finished, is forked."""
        count = len(self._cache.mask)
        fed: dict[int, int] = {}
        branch_of: dict[tuple[int, int], int] = {}
        parents: list[int] = []
        for row, token in zip(rows, tokens, strict=True):
            line = self._lines[row]
            branch = branch_of.get((line, token))
            if branch is None:
                branch = line
                if line in finished or line in fed:
                    branch = count + len(parents)
                    parents.append(line)
                branch_of[line, token] = branch
                fed[branch] = token
            self._lines[row] = branch
        if parents:
            self._cache.fork(parents)
        every = range(count + len(parents))
        ids, real = torch.tensor([[fed.get(line, 0)] for line in every]), torch.tensor([[line in fed] for line in every])
        self._logits = self._forward(ids.to(self.model.device), real.to(self.model.device))

    def _choose(self, rows: list[int]) -> tuple[list[int], list[float]]:
        """Pick one token for each row; log-probabilities are under what is sampled from (greedy: temperature 1)."""
        temperature = self._sampling.temperature
        distribution = torch.log_softmax(self._logits / temperature if temperature > 0 else self._logits, dim=-1)
        distribution = distribution[torch.tensor([self._lines[row] for row in rows], device=distribution.device)]
        if temperature > 0:
            draws = torch.tensor([[self._chance[row].random()] for row in rows], dtype=torch.float64, device=distribution.device)
            cumulated = distribution.double().exp().cumsum(-1)
            chosen = torch.searchsorted(cumulated, draws * cumulated[:, -1:], right=True).clamp(max=distribution.shape[1] - 1)
        else:
            chosen = distribution.argmax(dim=-1, keepdim=True)
        return chosen[:, 0].tolist(), distribution.gather(1, chosen)[:, 0].tolist()
