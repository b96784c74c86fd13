"""Turns written by a torch model here, with a key-value cache kept across the turns of an episode.

No token is prefilled twice: a prompt shared by a group is prefilled once, and between turns only the end-of-turn token and
the tool result are fed. Columns of the cache that a row does not use are masked; they are squeezed out between turns. What is
sampled is reported as ids; text is decoded only for the parser.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache

from slmsearch.generate.dialogue import Dialogue
from slmsearch.generate.writer import Message, Sampling, Written


class TorchWriter:
    """Writes turns with a causal language model of transformers."""

    def __init__(self, model: Any, tokenizer: Any, tool_role: str = "tool") -> None:
        """Wrap a loaded model; it is used as it is (dropout, dtype, device and adapters are the caller's)."""
        self.model = model
        self.dialogue = Dialogue(tokenizer, tool_role)
        self._rows: list[int] = []
        self._pending: list[tuple[int, ...]] = []
        """The last id of each row's turn, sampled but not yet fed."""
        self._sampling = Sampling()
        self.close()

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Writer.open`; equal prompts are prefilled once."""
        ids = [self.dialogue.encode_prompt(prompt) for prompt in prompts]
        self._sampling = sampling
        self._generator = torch.Generator(device=self.model.device).manual_seed(sampling.seed)
        if not ids:
            return ids
        unique = list(dict.fromkeys(ids))
        position = {prompt: i for i, prompt in enumerate(unique)}
        self._cache = DynamicCache()
        self._mask = torch.zeros(len(unique), 0, dtype=torch.bool, device=self.model.device)
        logits = self._feed(unique)
        picks = torch.tensor([position[prompt] for prompt in ids], device=self.model.device)
        self._rows = list(range(len(ids)))
        self._select(picks)
        self._logits = logits[picks]
        self._pending = [() for _ in ids]
        return ids

    @torch.no_grad()
    def write(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[Written]:
        """See `Writer.write`."""
        contexts: list[tuple[int, ...]] = [() if result is None else self.dialogue.encode_result(result) for result in results]
        limits = [min(self._sampling.max_new_tokens, left - len(context)) for context, left in zip(contexts, room, strict=True)]
        going = [k for k, limit in enumerate(limits) if limit > 0]
        written = [Written("", ended=False) for _ in rows]
        if not going:
            return written
        self._keep([rows[k] for k in going])
        if any(contexts[k] for k in going):
            self._squeeze()
            self._logits = self._feed([(*self._pending[n], *contexts[k]) for n, k in enumerate(going)])
        sampled, logprobs = self._sample([limits[k] for k in going])
        for n, k in enumerate(going):
            ended = sampled[n][-1] == self.dialogue.end_id
            text = self.dialogue.decode(sampled[n])
            written[k] = Written(text, ended, contexts[k], tuple(sampled[n]), tuple(logprobs[n]), len(sampled[n]))
            self._pending[n] = (sampled[n][-1],)
        return written

    def close(self) -> None:
        """See `Writer.close`."""
        self._cache = DynamicCache()
        self._rows, self._pending = [], []
        self._mask = self._logits = torch.empty(0)

    def _feed(self, blocks: Sequence[Sequence[int]]) -> Tensor:
        """Append one block of ids per row, padded on the left; return the logits after each row's last id."""
        width = max(len(block) for block in blocks)
        ids = torch.tensor([[0] * (width - len(block)) + list(block) for block in blocks])
        real = torch.tensor([[False] * (width - len(block)) + [True] * len(block) for block in blocks])
        return self._forward(ids.to(self.model.device), real.to(self.model.device))

    @torch.no_grad()
    def _forward(self, ids: Tensor, real: Tensor) -> Tensor:
        """Run the model on new columns (ids and which of them are real, both rows x new) and keep them in the cache."""
        positions = (self._mask.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, real], dim=1)
        attended = self._mask[:, None, None, :]
        new, past = ids.shape[1], self._mask.shape[1] - ids.shape[1]
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

    def _sample(self, limits: list[int]) -> tuple[list[list[int]], list[list[float]]]:
        """Sample every row until it ends its turn or reaches its limit; return ids and their log-probabilities."""
        sampled: list[list[int]] = [[] for _ in limits]
        logprobs: list[list[float]] = [[] for _ in limits]
        going = torch.ones(len(limits), dtype=torch.bool, device=self.model.device)
        limit = torch.tensor(limits, device=self.model.device)
        for count in range(1, max(limits) + 1):
            chosen, logprob = self._choose(self._logits)
            for n, (alive, token, value) in enumerate(zip(going.tolist(), chosen.tolist(), logprob.tolist(), strict=True)):
                if alive:
                    sampled[n].append(token)
                    logprobs[n].append(value)
            going = going & (chosen != self.dialogue.end_id) & (limit > count)
            if not going.any():
                break
            self._logits = self._forward(chosen[:, None], going[:, None])
        return sampled, logprobs

    def _choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Pick one token per row; its log-probability is under the distribution sampled from (greedy: temperature 1)."""
        temperature = self._sampling.temperature
        distribution = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        if temperature > 0:
            chosen = torch.multinomial(distribution.exp(), 1, generator=self._generator)[:, 0]
        else:
            chosen = distribution.argmax(dim=-1)
        return chosen, distribution.gather(1, chosen[:, None])[:, 0]

    def _keep(self, rows: Sequence[int]) -> None:
        """Drop every row that is not asked for; the cache follows the order of `rows`."""
        if list(rows) == self._rows:
            return
        place = {row: n for n, row in enumerate(self._rows)}
        picks = [place[row] for row in rows]
        self._select(torch.tensor(picks, device=self.model.device))
        self._logits = self._logits[picks]
        self._pending = [self._pending[n] for n in picks]
        self._rows = list(rows)

    def _select(self, picks: Tensor) -> None:
        self._mask = self._mask[picks]
        self._cache.batch_select_indices(picks)

    def _squeeze(self) -> None:
        """Move every row's used columns to the right end of the cache and cut off what no row uses."""
        width = int(self._mask.sum(1).max())
        # A stable sort by "used" keeps the order of the used columns; positions were fixed when they were computed.
        columns = self._mask.to(torch.uint8).argsort(dim=1, stable=True)[:, -width:]
        self._mask = self._mask.gather(1, columns)
        layers: list[Any] = self._cache.layers
        for layer in layers:
            index = columns[:, None, :, None].expand(-1, layer.keys.shape[1], -1, layer.keys.shape[3])
            layer.keys, layer.values = layer.keys.gather(2, index), layer.values.gather(2, index)
