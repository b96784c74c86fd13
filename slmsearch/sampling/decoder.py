"""Tokens decoded on the device, many of a turn for one look of the host, as CUDA graphs where there are any.

A small model's step is some thousand kernels of a few microseconds: a host that launches each of them, and waits for every token, leaves a
card idle. Here a step takes and leaves everything in tensors of fixed places. What it draws with was drawn before by the rows' own
generators, so that a row samples what it would sample token by token. The step of so many lines and columns is captured once, as a graph
that is launched as one, and the graph serves as long as nothing that it reads has moved: over turns, batches and steps of training.

Without graphs, as on a CPU, the same step is called. Shapes: S lines, C columns, V vocabulary.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from slmsearch.foreign import cause_of
from slmsearch.sampling.line_cache import LineCache

TOGETHER = 16
"""Tokens of a line that are decoded before the host looks."""
FEWEST_LINES, FEWEST_COLUMNS = 8, 128
"""Of a step."""
WARM_UP = 2
"""Steps before one is captured: libraries choose their kernels and take their memory in the first."""
KEPT_FRAC = 0.1
"""Share of a card's memory up to which cache and graphs stay when rows are closed; else an update may need the room."""
VALUES_OF_A_SUM = 256
"""Probabilities are added up in blocks of so many: a running sum of a whole vocabulary in float32 would lose the small ones."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Going:
    """A row that goes on writing, in a line of its own."""

    last: int
    """Its last id, which the line does not hold yet."""
    left: int
    """Ids it may still write."""
    chance: np.random.Generator


class Decoder:
    """Owns a cache whose places are fixed, and the steps that write into it."""

    def __init__(self, graphs: bool | None = None) -> None:
        """Begin without a model; graphs are wanted on a CUDA device, unless it is said."""
        self._wanted, self._graphs = graphs, dict[tuple[int, int, float], Any]()
        self._addresses: tuple[object, ...] = ()
        """What the graphs read."""
        self._size, self._ends = 0, torch.empty(0, dtype=torch.long)
        self.cache = LineCache(torch.device("cpu"), 0, fixed=True)

    def open(self, model: Any, end_ids: Collection[int], most: int) -> LineCache:
        """Begin with a model and at most so many lines; return the empty cache."""
        device = model.device
        self._model = model
        if device != self._ends.device or sorted(end_ids) != self._ends.tolist():
            self._ends = torch.tensor(sorted(end_ids), device=device)
        self._uses_graphs = device.type == "cuda" if self._wanted is None else self._wanted
        if device != self.cache.device:
            self.cache, self._size = LineCache(device, most, fixed=True), 0
        self.cache.restart(max(most, FEWEST_LINES))
        if most > self._size:
            self._size = max(most, FEWEST_LINES)
            self._numbers = torch.zeros(3, self._size, dtype=torch.long, device=device)  # last id, length and ids left of each line
            self._draws = torch.zeros(self._size, TOGETHER, dtype=torch.float64, device=device)
            self._tokens = torch.zeros(self._size, TOGETHER, dtype=torch.long, device=device)
            self._logprobs = torch.zeros(self._size, TOGETHER, device=device)
            self._at = torch.zeros(1, dtype=torch.long, device=device)
        return self.cache

    def close(self) -> None:
        """Drop what was decoded, and the memory where it is much of a card's."""
        self.cache.restart(0)
        device = self.cache.device
        if device.type != "cuda" or self.cache.nbytes > KEPT_FRAC * torch.cuda.get_device_properties(device).total_memory:
            self.cache, self._size, self._addresses = LineCache(device, 0, fixed=True), 0, ()
            self._graphs.clear()

    def lines_of(self, lines: int) -> int:
        """Return the lines of a step over so many."""
        return min(max(FEWEST_LINES, 1 << (lines - 1).bit_length()), self._size)

    def decode(self, going: Mapping[int, Going], temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Decode the next tokens of lines, at most `TOGETHER` and no more than one of them may have.

        The host decides which are kept: lengths and generators are left as they were.

        Returns:
            Tokens and log-probabilities (going x steps); what follows an end or a limit means nothing.
        """
        steps, lines = min(TOGETHER, max(row.left for row in going.values())), list(going)
        count = self.lines_of(max(lines) + 1)
        longest = max(self.cache.lengths[line] + min(steps, row.left) for line, row in going.items())
        self.cache.reserve(count, max(longest, *self.cache.lengths[:count]) + 1)
        columns = self.cache.fill(columns_of(longest + 1))
        numbers, draws = np.zeros((3, self._size), dtype=np.int64), np.zeros((self._size, TOGETHER))
        numbers[1, : len(self.cache.lengths)] = self.cache.lengths
        numbers[0, lines], numbers[2, lines] = [row.last for row in going.values()], [row.left for row in going.values()]
        if temperature > 0:
            for line, row in going.items():
                draws[line, :steps] = row.chance.random(steps)
                skip_draws(row.chance, -steps)
        graph = self._graph(count, columns, temperature, numbers)
        self._begin(numbers)
        self._draws.copy_(torch.from_numpy(draws))
        for _ in range(steps):
            graph.replay() if graph is not None else self._step(count, columns, temperature)
        return self._tokens[lines, :steps].cpu().numpy(), self._logprobs[lines, :steps].cpu().numpy()

    def _begin(self, numbers: np.ndarray) -> None:
        self._numbers.copy_(torch.from_numpy(numbers))
        self._at.zero_()

    def _step(self, lines: int, columns: int, temperature: float) -> None:
        """Feed each line its last token and draw the next; lines with nothing left write behind their end and stay as they are."""
        last, lengths, left = (numbers[:lines] for numbers in self._numbers)
        positions, seen = self.cache.begin_step(lengths, columns)
        logits = run(self._model, self.cache, last[:, None], positions, seen, 0)
        draws = self._draws[:lines].index_select(1, self._at)[:, 0] if temperature > 0 else None
        tokens, logprobs = choose(logits, draws, temperature)
        self._tokens[:lines].index_copy_(1, self._at, tokens[:, None])
        self._logprobs[:lines].index_copy_(1, self._at, logprobs[:, None])
        going = left > 0
        ends = (tokens[:, None] == self._ends).any(1)
        lengths.add_(going)
        last.copy_(torch.where(going, tokens, last))
        left.copy_(torch.where(ends, 0, left - 1).clamp(min=0))
        self._at.add_(1)

    def _graph(self, lines: int, columns: int, temperature: float, numbers: np.ndarray) -> Any:
        """Return the graph of a step, captured now if there is none; None where steps are called."""
        if not self._uses_graphs:
            return None
        kind = self.cache.device.type
        casts = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        addresses = (
            casts,
            self._size,
            self.cache.moves,
            self._ends.data_ptr(),
            *(weight.data_ptr() for weight in self._model.parameters()),
        )
        if addresses != self._addresses:
            self._graphs.clear()
            self._addresses = addresses
        key = (lines, columns, temperature)
        if key not in self._graphs:
            self._begin(numbers)
            try:
                self._graphs[key] = self._capture(*key)
            except (RuntimeError, AssertionError) as error:
                self._wanted = self._uses_graphs = False
                self._graphs.clear()
                log.warning("the torch sampler decodes without CUDA graphs, which keeps the card less busy: %s", cause_of(error))
                return None
        return self._graphs[key]

    def _capture(self, lines: int, columns: int, temperature: float) -> Any:
        """Capture a step. Graphs share their memory: none reads what another has left there."""
        kind, current = self.cache.device.type, torch.cuda.current_stream()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        # Weights that autocast has converted for passes outside would be read by the graph after they are freed.
        with torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), cache_enabled=False):
            aside = torch.cuda.Stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    self._step(lines, columns, temperature)
            current.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                self._step(lines, columns, temperature)
        return graph


def decodes_together(model: Any) -> bool:
    """Say whether a model's tokens are decoded so: where the host and the device work side by side."""
    return bool(model.device.type == "cuda")


def skip_draws(chance: np.random.Generator, draws: int) -> None:
    """Let a generator stand where it would after so many draws more, or fewer."""
    chance.bit_generator.advance(draws)  # type: ignore[attr-defined]


def columns_of(columns: int) -> int:
    """Return the columns that a step over so many attends to: an eighth more at most, so that there are few different ones."""
    unit = max(FEWEST_COLUMNS, (1 << columns.bit_length()) // 8)
    return -(-columns // unit) * unit


def run(model: Any, cache: LineCache, ids: Tensor, positions: Tensor, seen: Tensor, kept: int | Tensor) -> Tensor:
    """Pass ids through a model that attends to what is seen in a cache; return the logits of the columns kept (S * kept x V)."""
    # transformers' eager attention adds what it is given to the scores.
    if getattr(getattr(model, "config", None), "_attn_implementation", None) == "eager":
        seen = torch.zeros(seen.shape, dtype=model.dtype, device=seen.device).masked_fill(~seen, torch.finfo(model.dtype).min)
    output = model(input_ids=ids, attention_mask=seen, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=kept)
    columns = len(kept) if isinstance(kept, Tensor) else ids.shape[1]
    logits: Tensor = output.logits[:, -columns:].flatten(0, 1).float()
    return logits


def choose(logits: Tensor, draws: Tensor | None, temperature: float, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Pick a token for each draw, of the logits `which` says, or of each logits; greedy without draws.

    Returns:
        Tokens, and their log-probabilities under what is sampled from (greedy: temperature 1).
    """
    distribution = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
    if draws is None:
        chosen = distribution.argmax(dim=-1)
        return chosen, distribution.gather(1, chosen[:, None])[:, 0]
    which = torch.arange(len(logits), device=logits.device) if which is None else which
    chosen = draw_tokens(distribution.exp(), which, draws)
    return chosen, distribution[which, chosen]


def draw_tokens(probabilities: Tensor, which: Tensor, draws: Tensor) -> Tensor:
    """Draw tokens by inverting the cumulated distribution, first block by block and then inside of one.

    Args:
        probabilities: (distributions x V) float32.
        which: (n,) distribution of each draw.
        draws: (n,) in [0, 1), float64.

    Returns:
        (n,) tokens.
    """
    vocabulary = probabilities.shape[1]
    blocks = pad(probabilities, (0, -vocabulary % VALUES_OF_A_SUM)).unflatten(1, (-1, VALUES_OF_A_SUM))
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)[which]
    targets = draws * sums[:, -1]
    block = torch.searchsorted(sums, targets[:, None], right=True).clamp(max=sums.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[which, block[:, 0]].double().cumsum(-1)
    token = torch.searchsorted(inside, targets[:, None] - before, right=True).clamp(max=VALUES_OF_A_SUM - 1)
    return (block * VALUES_OF_A_SUM + token)[:, 0].clamp(max=vocabulary - 1)
