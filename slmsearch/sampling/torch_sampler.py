"""A sampler that uses a torch model in this process and keeps its key-value cache across the turns of an episode.

The model computes no token twice, except after a rejected draft token. Episodes with the same history share one line (cache slot): a
group's prompt is prefilled once, and a line is forked only where its episodes write different tokens. Between turns the sampler feeds only
the end-of-turn token and the tool result, in blocks of similar length. Lines whose rows have ended their turn leave the batch. Where few
lines are active, the sampler feeds draft tokens along and keeps those that the policy draws, too (`guesses.py`). Turns are reported as ids;
text is decoded only for the parser, and where a token may complete a stop text.

Shapes: S lines of a forward pass, N new tokens, B rows, P logit indices, V vocabulary. A place is a logit index.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slmsearch.episodes.chat_renderer import ChatRenderer, context_of, require_context
from slmsearch.episodes.sampler import Message, SampledTurn, Sampling
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from slmsearch.models.attention import exact_length
from slmsearch.processes.processor import trim_heap
from slmsearch.sampling.decoder import Decoder, Going, choose, decodes_together, run, skip_draws
from slmsearch.sampling.engine_sampler import Completion, IdSampler
from slmsearch.sampling.guesses import Guesses
from slmsearch.sampling.line_cache import LineCache

PASS_COST, PASS_COST_ON_A_CARD = 48, 2048
"""Cost of a forward pass beside that of its tokens, in tokens."""
FED_TOGETHER, FED_TO_A_CARD = 4096, 16_384
"""Largest number of tokens of a forward pass, padding included; more lines are fed in several passes."""
GUESSED, TOKENS_OF_A_PASS = 4, 32
"""Largest number of draft tokens for a line, and of tokens of a pass, draft tokens included; larger passes get none."""
IDLE_FRAC = 0.25
"""Share of idle lines from which on the others move together: moving a line takes as long as passing over it a few times."""


@dataclass(slots=True)
class _Row:
    """An open row."""

    ids: list[int]
    """All its ids: prompt, contexts, turns."""
    line: int
    """Line of the cache that holds its history, without the last id of its last turn."""
    chance: np.random.Generator
    """Generator of its draws; what a row samples does not depend on the rows beside it."""
    place: int = 0
    """Index of the logits that follow its history, among the logits of the last passes."""
    ended: bool = False
    """True if the policy ended the turn, or completed a stop text."""
    left: int = 0
    """Ids the turn may still have."""
    sampled: list[int] = field(default_factory=list)
    """Ids of the turn."""
    logprobs: list[float] = field(default_factory=list)

    @property
    def going(self) -> bool:
        """True while its turn continues."""
        return self.left > 0 and not self.ended


def is_small(model: Any) -> bool:
    """Return whether a model on a CPU has so few weights that in its short passes threads wait for each other longer than they compute."""
    return bool(model.device.type == "cpu" and sum(weight.numel() for weight in model.parameters()) <= 5_000_000)


class TorchSampler(IdSampler):
    """A sampler of turns with a causal language model of transformers."""

    def __init__(
        self, model: Any, tokenizer: Any, tool_role: str = "tool", renderer: ChatRenderer | None = None, decoder: Decoder | None = None
    ) -> None:
        """Wrap a loaded model, unchanged: the caller sets dropout, dtype, device and adapters.

        Args:
            model: a causal language model.
            tokenizer: the model's own.
            tool_role: role of tool results.
            renderer: renderer with the same tokenizer and role; None makes one.
            decoder: one that has served the same model, with its graphs and, for a small model, its cache; None makes one.
        """
        super().__init__(tokenizer, tool_role, renderer)
        self.model = model
        self._decoder = (decoder or Decoder()) if decodes_together(model) else None
        self._fed = (FED_TOGETHER, PASS_COST) if self._decoder is None else (FED_TO_A_CARD, PASS_COST_ON_A_CARD)
        self.is_small = is_small(model)
        self._holder = (decoder or Decoder()) if self.is_small else None
        """Holder of a small model's cache from batch to batch: new memory took an eighth of a rollout of the demo."""
        self.samples_beside = self.model.device.type == "cuda"
        self._completing: frozenset[int] = frozenset()
        """Ids that can complete a stop text."""
        self._opened: Tensor
        """Logits that follow the prompts (prompts, V): the first turn of a part begins after another part has sampled its own."""
        self.close()

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`; equal prompts are prefilled once."""
        with self._threads():
            return self._open(prompts, sampling)

    def _open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        ids = self.renderer.encode_prompts(prompts)
        require_context(self.model, max(map(len, ids), default=0) + 1, "the longest prompt with a first token", "shorten the system prompt")
        self._sampling = sampling
        if not ids:
            return ids
        line_of = {prompt: line for line, prompt in enumerate(dict.fromkeys(ids))}
        if self._decoder is not None:
            self._cache = self._decoder.open(self.model, self.renderer.end_ids, len(ids))
        else:
            self._cache = LineCache(self.model.device, 0) if self._holder is None else self._holder.cache
            self._cache.restart(len(ids))
        self._cache.add(len(line_of))
        self._rows = {
            row: _Row(list(prompt), line_of[prompt], np.random.default_rng([sampling.seed, sampling.first_row + row]))
            for row, prompt in enumerate(ids)
        }
        try:
            self._feed({line: prompt for prompt, line in line_of.items()})
            if not self._cache.nbytes:  # RWKV ignores it
                raise LookupError("no layer uses the cache")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            kind = f"{self.model.config.model_type}, whose layers keep more than keys and values or read another mask ({cause_of(error)})"
            raise ModelError(f"the torch sampler cannot play models of type {kind}: take another policy.model") from error
        self._opened = self._logits
        self._completing = self.renderer.completing_ids(sampling.stop)
        self._ending = np.array(sorted(self._completing | self.renderer.end_ids))
        for prompt in line_of:
            self._learn(prompt)
        return ids

    @torch.inference_mode()
    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`; episodes end where they fill the model's context."""
        held = [len(self._rows[row].ids) for row in rows]
        room = [min(left, context_of(self.model) - ids) for left, ids in zip(room, held, strict=True)]
        longest = max(map(sum, zip(held, room, strict=True)), default=0)
        if longest > (exact := exact_length(self.model)):
            cause = f"an episode may have {longest} tokens, and the sampler does not apply this model's attention window of {exact}"
            raise ModelError(f"{cause}: lower the setting max_episode_tokens, or take another policy.model")
        if self._decoder is not None:  # up to the episodes' limit: graphs are lost when buffers move
            self._cache.reserve(0, longest)
        return super().sample(rows, results, room)

    def _learn(self, ids: Sequence[int], before: Sequence[int] = ()) -> None:
        if self._decoder is None:
            self._guesses.learn(ids, before)

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Let a small model compute in one thread meanwhile."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if self.is_small else threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def _last_id(self, row: int) -> int | None:
        return self._rows[row].sampled[-1] if self._rows[row].sampled else None

    @torch.inference_mode()
    def _write(self, rows: list[int], contexts: list[tuple[int, ...]], limits: list[int]) -> list[tuple[Completion, bool]]:
        asked, size = set(rows), self._sampling.part_rows
        # Rows of this part that are left out have ended: no later call asks for them.
        self._rows = {n: row for n, row in self._rows.items() if n in asked or (size and n // size != rows[0] // size)}
        going = [self._rows[row] for row in rows]
        with self._threads():
            if any(contexts):
                self._feed_results(going, contexts)
            else:
                self._logits = self._opened
                self._guessed.clear()
            for row, limit in zip(going, limits, strict=True):
                row.ended, row.left, row.sampled, row.logprobs = False, limit, [], []
            while drawing := [row for row in going if row.going]:
                if not drawing[0].sampled:
                    self._draw(drawing)
                elif self._decoder is not None:
                    self._decode_together(drawing, self._decoder)
                else:
                    self._decode(drawing)
                    self._draw(drawing)
        for ids, before in {tuple(row.sampled): row.ids[-len(row.sampled) - 3 : -len(row.sampled)] for row in going}.items():
            self._learn(ids, before)
        return [(Completion(tuple(row.sampled), tuple(row.logprobs)), row.ended) for row in going]

    def close(self) -> None:
        """See `Sampler.close`."""
        for holder in filter(None, (self._decoder, self._holder)):
            holder.close()
        self._cache = LineCache(self.model.device, 0)
        self._opened = torch.empty(0)
        self._logits = torch.empty(0)
        """Logits of the last passes (P, V): one per line, or one per line and column after a pass with draft tokens."""
        self._guessed: dict[int, list[int]] = {}
        """Draft tokens that the last pass fed to each line."""
        self._rows = dict[int, _Row]()
        self._guesses = Guesses()
        if self.model.device.type == "cpu" and not self.is_small:
            trim_heap()  # the freed pieces are too small for the next batch's cache

    def _feed_results(self, rows: Sequence[_Row], contexts: Sequence[tuple[int, ...]]) -> None:
        """Feed the last turn's last id and the context; rows whose histories are still equal go on sharing a line."""
        blocks = [(*row.sampled[-1:], *context) for row, context in zip(rows, contexts, strict=True)]
        different = {(row.line, block): (row, context) for row, block, context in zip(rows, blocks, contexts, strict=True)}
        for row, context in different.values():
            self._learn(context, row.ids)
        fed = set(map(id, rows))
        self._branch(rows, blocks, {row.line for row in self._rows.values() if id(row) not in fed})
        for row, context in zip(rows, contexts, strict=True):
            row.ids += context
        self._feed({row.line: block for row, block in zip(rows, blocks, strict=True)})

    def _branch(self, rows: Sequence[_Row], blocks: Sequence[tuple[int, ...]], held: set[int]) -> None:
        """Give rows that share a line but continue with different ids lines of their own; held lines must not be written to."""
        branch_of: dict[tuple[int, tuple[int, ...]], int] = {}  # (line, next ids) -> line, or -1 - index into `parents` for a fork
        parents: list[int] = []
        taken = set(held)  # lines that another row will write to, or that must stay as they are
        for row, block in zip(rows, blocks, strict=True):
            if (row.line, block) not in branch_of:
                branch_of[row.line, block] = row.line if row.line not in taken else -1 - len(parents)
                parents += [row.line] if row.line in taken else []
                taken.add(row.line)
        new = self._fork(parents, [self._cache.lengths[line] for line in parents])
        for row, block in zip(rows, blocks, strict=True):
            branch = branch_of[row.line, block]
            row.line = branch if branch >= 0 else new[-1 - branch]

    def _feed(self, blocks: dict[int, tuple[int, ...]]) -> None:
        """Append a block of ids to each line, lines of similar length together."""
        by_length = sorted(blocks, key=lambda line: len(blocks[line]))
        spans = [sorted(by_length[start:end]) for start, end in split_by_length([len(blocks[line]) for line in by_length], *self._fed)]
        logits = [self._forward(lines, [blocks[line] for line in lines], 1) for lines in spans]  # (lines of the span, V) each
        self._logits, self._guessed = torch.cat(logits), {}
        places = {line: place for place, line in enumerate(chain(*spans))}  # line -> logit index
        for row in self._rows.values():
            row.place = places.get(row.line, row.place)

    @torch.inference_mode()
    def _forward(self, lines: Sequence[int], blocks: Sequence[Sequence[int]], kept: int) -> Tensor:
        """Feed each line a block of ids and keep it in the cache; return the logits of the last `kept` columns (S * kept, V)."""
        width = max(map(len, blocks))
        ids = torch.tensor([[0] * (width - len(block)) + list(block) for block in blocks], device=self.model.device)
        positions, seen = self._cache.begin(lines, [len(block) for block in blocks], width)
        # (S, N), padded on the left. Columns by index: of a slice the head, in bfloat16, would copy its weights for every line.
        return run(self.model, self._cache, ids, positions, seen, torch.arange(width - kept, width, device=ids.device))

    def _draw(self, rows: Sequence[_Row]) -> None:
        """Draw each row's next token, and more as long as they match the draft tokens; afterwards a line holds all but the last."""
        drawing, right = rows, dict[int, int]()  # `right`: accepted draft tokens by id(row): rows cannot be hashed
        for guesses in range(GUESSED + 1):
            following = []
            for row, token, logprob in zip(drawing, *self._choose(drawing), strict=True):
                row.ids.append(token)
                row.sampled.append(token)
                row.logprobs.append(logprob)
                row.left -= 1
                row.ended = self._ends(row.sampled)
                right[id(row)] = guesses
                if row.going and self._guessed.get(row.line, [])[guesses : guesses + 1] == [token]:
                    row.place += 1  # the accepted token's logits lie behind those it was drawn from
                    following.append(row)
            drawing = following
            if not drawing:
                break
        self._forget_guesses(rows, right)

    def _forget_guesses(self, rows: Sequence[_Row], right: dict[int, int]) -> None:
        """Shorten lines to the accepted draft tokens; rows that accepted fewer than others of their line get a line of their own."""
        by_line: dict[int, dict[int, list[_Row]]] = {}
        for row in rows:
            if self._guessed.get(row.line):
                by_line.setdefault(row.line, {}).setdefault(right[id(row)], []).append(row)
        forks: list[tuple[int, int, list[_Row]]] = []
        for line, groups in by_line.items():
            # `base`: tokens that are certain; `most`: draft tokens that some row of the line accepted.
            base, most = self._cache.lengths[line] - len(self._guessed[line]), max(groups)
            self._cache.lengths[line] = base + most
            self._guesses.count(len(self._guessed[line]), most)
            forks += [(line, base + fewer, group) for fewer, group in groups.items() if fewer < most]
        new = self._fork([line for line, _, _ in forks], [length for _, length, _ in forks])
        for line, (_, _, group) in zip(new, forks, strict=True):
            for row in group:
                row.line = line

    def _ends(self, sampled: Sequence[int]) -> bool:
        """Return whether the policy ended the turn with its last token, or completed a stop text with it."""
        if sampled[-1] in self.renderer.end_ids:
            return True
        return sampled[-1] in self._completing and self.renderer.is_stopped(sampled, self._sampling.stop)

    def _decode(self, rows: Sequence[_Row]) -> None:
        """Send the last token of rows through the model, once per line, with draft tokens where there is room for them."""
        # The line of a row that has ended its turn must not be written to: its next turn begins there.
        self._branch(rows, [(row.sampled[-1],) for row in rows], {row.line for row in self._rows.values() if not row.going})
        self._gather(rows)
        leading = {row.line: row for row in rows}
        room = min(GUESSED, (TOKENS_OF_A_PASS - len(leading)) // len(leading))
        self._guessed = {line: self._guesses.guess(row.ids, min(room, row.left - 1)) for line, row in leading.items()}
        lines = range(max(leading) + 1)  # idle lines between them get an empty block: the cache is then a slice
        blocks = [[leading[line].sampled[-1], *self._guessed[line]] if line in leading else [] for line in lines]
        kept = max(map(len, blocks))
        self._logits = self._forward(lines, blocks, kept)
        for row in rows:
            row.place = (row.line + 1) * kept - len(blocks[row.line])  # blocks end at the last of `kept` columns: this is its first

    def _decode_together(self, rows: Sequence[_Row], decoder: Decoder) -> None:
        """Decode the next tokens of rows on the device, each in a line of its own, and keep those up to its end."""
        held = {row.line for row in self._rows.values() if not row.going}
        self._branch(rows, [(number,) for number in range(len(rows))], held)  # different blocks: a line for each
        self._gather(rows)
        found = decoder.decode({row.line: Going(row.sampled[-1], row.left, row.chance) for row in rows}, self._sampling.temperature)
        may_end = np.isin(found[0], self._ending).tolist()  # (B, steps): only these tokens are worth decoding to text
        for row, ids, logprobs, ending in zip(rows, found[0].tolist(), found[1].tolist(), may_end, strict=True):
            kept = min(len(ids), row.left)
            for number, token in enumerate(ids[:kept], 1):
                row.sampled.append(token)
                if ending[number - 1] and self._ends(row.sampled):
                    kept, row.ended = number, True
                    break
            row.ids += ids[:kept]
            row.logprobs += logprobs[:kept]
            row.left -= kept
            self._cache.lengths[row.line] += kept
            if self._sampling.temperature > 0:
                skip_draws(row.chance, kept)

    def _gather(self, rows: Sequence[_Row]) -> None:
        """Move the lines of these rows to the front, where too many idle lines lie between them."""
        going = {row.line for row in rows}
        if self._decoder is not None:
            scattered = self._decoder.lines_of(len(going)) < self._decoder.lines_of(max(going) + 1)
        else:
            scattered = len(going) <= (1 - IDLE_FRAC) * (max(going) + 1)
        if not scattered:
            return
        idle = [line for line in range(len(going)) if line not in going]
        pairs = list(zip(idle, sorted(line for line in going if line >= len(going)), strict=True))
        self._cache.swap(pairs)
        places = {**dict(pairs), **{there: here for here, there in pairs}}
        for row in self._rows.values():
            row.line = places.get(row.line, row.line)

    def _fork(self, parents: Sequence[int], lengths: Sequence[int]) -> list[int]:
        """Copy lines, over lines that no row needs where there are any; return the copies."""
        return self._cache.fork(parents, lengths, {row.line for row in self._rows.values()}) if parents else []

    def _choose(self, rows: Sequence[_Row]) -> tuple[list[int], list[float]]:
        """Pick one token for each row; log-probabilities are under the sampled distribution (greedy: temperature 1)."""
        temperature = self._sampling.temperature
        places = list(dict.fromkeys(row.place for row in rows))
        logits = self._logits[torch.tensor(places, device=self._logits.device)]  # (P, V), equal histories once
        at = {place: n for n, place in enumerate(places)}
        which = torch.tensor([at[row.place] for row in rows], device=logits.device)  # (B,) into `logits`
        if temperature > 0:
            draws = torch.tensor([row.chance.random() for row in rows], dtype=torch.float64, device=logits.device)
            chosen, logprobs = choose(logits, draws, temperature, which)
        else:
            chosen, logprobs = (found[which] for found in choose(logits, None, temperature))
        return chosen.tolist(), logprobs.tolist()


def split_by_length(lengths: Sequence[int], together: int = FED_TOGETHER, pass_cost: int = PASS_COST) -> list[tuple[int, int]]:
    """Split lengths into spans that are fed together, with the least cost of padding and passes, by dynamic programming.

    Args:
        lengths: tokens of each line, ascending.
        together: largest number of tokens of a span, padding included.
        pass_cost: cost of a pass, in tokens.

    Returns:
        First index and end of each span, in order.
    """
    # best[n]: least cost of the first n lines; since[n]: where their last span begins.
    best, since = np.zeros(len(lengths) + 1, dtype=np.int64), [0]
    for end in range(1, len(lengths) + 1):
        least = end - max(1, together // max(1, lengths[end - 1]))  # from here on a span has at most `together` tokens
        firsts = np.arange(max(0, least), end)
        costs = best[firsts] + pass_cost + (end - firsts) * lengths[end - 1]  # padded to the longest line, which is the last
        place = int(costs.argmin())
        best[end] = costs[place]
        since.append(int(firsts[place]))
    spans, end = list[tuple[int, int]](), len(lengths)
    while end:
        spans.append((since[end], end))
        end = since[end]
    return spans[::-1]
