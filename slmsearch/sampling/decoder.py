"""Token decoding on the device: many tokens of a turn between two looks of the host, as CUDA graphs where the device has them.

A small model's step is some thousand kernels of a few microseconds. A host that launches each kernel and waits for every token leaves the
card idle. Here a step reads and writes tensors at fixed addresses only. Its random draws come in advance from the rows' own generators, so
that a row samples what it would sample token by token. One graph captures the step of a given number of lines and columns and launches it
as a whole. A graph stays valid over turns, batches and training steps, as long as nothing that it reads has moved.

Without graphs, as on a CPU, the host calls the same step. A line is a cache slot. Shapes: S lines, N new tokens, C columns, P
distributions, V vocabulary, K blocks of the vocabulary.
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
"""Tokens of a line that the device decodes before the host looks."""
FEWEST_LINES, FEWEST_COLUMNS = 8, 128
"""Smallest number of lines and of columns of a step."""
WARM_UP = 2
"""Steps run before one is captured: in the first steps libraries choose their kernels and allocate their memory."""
KEPT_FRAC, KEPT_BYTES = 0.1, 256e6
"""Most memory that cache and graphs may keep after rows are closed, as a share of a card's, and on a CPU: an update may need it."""
VALUES_OF_A_SUM = 256
"""Probabilities in one block of a sum: a running sum over a whole vocabulary in float32 would lose the small ones."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Going:
    """A row that continues its turn, in a line of its own."""

    last: int
    """Its last id, which the line does not hold yet."""
    left: int
    """Ids it may still write."""
    chance: np.random.Generator


class Decoder:
    """A cache at fixed addresses, and the steps that write into it."""

    def __init__(self, graphs: bool | None = None) -> None:
        """Begin without a model; None for `graphs` uses them on a CUDA device."""
        self._wanted, self._graphs = graphs, dict[tuple[int, int, float], Any]()
        self._addresses: tuple[object, ...] = ()
        """Addresses of the tensors that the graphs read."""
        self._size, self._ends = 0, torch.empty(0, dtype=torch.long)
        self.cache = LineCache(torch.device("cpu"), 0)

    def open(self, model: Any, end_ids: Collection[int], most: int) -> LineCache:
        """Bind a model and return the empty cache.

        Args:
            model: a causal language model.
            end_ids: tokens that end a turn.
            most: lines, at most.
        """
        device = model.device
        self._model = model
        if device != self._ends.device or sorted(end_ids) != self._ends.tolist():
            self._ends = torch.tensor(sorted(end_ids), device=device)
        self._uses_graphs = device.type == "cuda" if self._wanted is None else self._wanted
        if device != self.cache.device or not self.cache.fixed:
            self.cache, self._size = LineCache(device, most, fixed=True), 0
        self.cache.restart(max(most, FEWEST_LINES))
        if most > self._size:
            self._size = max(most, FEWEST_LINES)
            self._numbers = torch.zeros(3, self._size, dtype=torch.long, device=device)  # last id, length and ids left of each line
            self._draws = torch.zeros(self._size, TOGETHER, dtype=torch.float64, device=device)  # (lines, steps), uniform in [0, 1)
            self._tokens = torch.zeros(self._size, TOGETHER, dtype=torch.long, device=device)
            self._logprobs = torch.zeros(self._size, TOGETHER, device=device)
            self._at = torch.zeros(1, dtype=torch.long, device=device)
        return self.cache

    def close(self) -> None:
        """Drop the decoded tokens; free the memory if it is more than `KEPT_FRAC` or `KEPT_BYTES` allow."""
        self.cache.restart(0)
        device = self.cache.device
        most = KEPT_BYTES if device.type != "cuda" else KEPT_FRAC * torch.cuda.get_device_properties(device).total_memory
        if self.cache.nbytes > most:
            self.cache, self._size, self._addresses = LineCache(device, 0, self.cache.fixed), 0, ()
            self._graphs.clear()

    def lines_of(self, lines: int) -> int:
        """Return the number of lines of a step that covers the first `lines`."""
        return min(max(FEWEST_LINES, 1 << (lines - 1).bit_length()), self._size)

    def decode(self, going: Mapping[int, Going], temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """Decode the next tokens of lines: at most `TOGETHER`, and no more than any of them may have.

        The host decides which tokens it keeps: lengths and generators are left as they were.

        Returns:
            Tokens and log-probabilities, each (going, steps); values behind an end or a limit are meaningless.
        """
        steps, lines = min(TOGETHER, max(row.left for row in going.values())), list(going)
        count = self.lines_of(max(lines) + 1)
        longest = max(self.cache.lengths[line] + min(steps, row.left) for line, row in going.items())
        self.cache.reserve(count, max(longest, *self.cache.lengths[:count]) + 1)
        columns = self.cache.fill(columns_of(longest + 1))
        numbers, draws = np.zeros((3, self._size), dtype=np.int64), np.zeros((self._size, TOGETHER))
        numbers[1, : len(self.cache.lengths)] = self.cache.lengths  # idle lines, too: the step writes behind their end
        numbers[0, lines], numbers[2, lines] = [row.last for row in going.values()], [row.left for row in going.values()]
        if temperature > 0:
            for line, row in going.items():
                draws[line, :steps] = row.chance.random(steps)
                skip_draws(row.chance, -steps)  # the caller advances by the tokens that it keeps
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
        """Feed each line its last token and draw the next; a line with no ids left writes behind its end and stays unchanged."""
        last, lengths, left = (numbers[:lines] for numbers in self._numbers)  # (S,) each, views: the step updates them in place
        positions, seen = self.cache.begin_step(lengths, columns)
        logits = run(self._model, self.cache, last[:, None], positions, seen, 0)  # (S, V)
        # By a tensor, not a number: a graph would keep the number that it was captured with.
        draws = self._draws[:lines].index_select(1, self._at)[:, 0] if temperature > 0 else None  # (S,)
        tokens, logprobs = choose(logits, draws, temperature)
        self._tokens[:lines].index_copy_(1, self._at, tokens[:, None])
        self._logprobs[:lines].index_copy_(1, self._at, logprobs[:, None])
        going = left > 0
        ends = (tokens[:, None] == self._ends).any(1)  # (S,)
        lengths.add_(going)
        last.copy_(torch.where(going, tokens, last))
        left.copy_(torch.where(ends, 0, left - 1).clamp(min=0))
        self._at.add_(1)

    def _graph(self, lines: int, columns: int, temperature: float, numbers: np.ndarray) -> Any:
        """Return the graph of a step, captured now if it is missing; None where the host calls steps."""
        if not self._uses_graphs:
            return None
        kind = self.cache.device.type
        casts = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        weights = [weight.data_ptr() for weight in self._model.parameters()]
        addresses = (casts, self._size, self.cache.moves, self._ends.data_ptr(), *weights)
        if addresses != self._addresses:
            self._graphs.clear()
            self._addresses = addresses
        key = (lines, columns, temperature)  # each is a constant inside a graph
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
        """Capture a step. Graphs share their memory, because none reads another's leftovers."""
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
    """Return whether `Decoder` decodes a model's tokens: on a device that works while the host does."""
    return bool(model.device.type == "cuda")


def skip_draws(chance: np.random.Generator, draws: int) -> None:
    """Advance a generator by `draws` draws; a negative number takes draws back."""
    chance.bit_generator.advance(draws)  # type: ignore[attr-defined]


def columns_of(columns: int) -> int:
    """Return the columns that a step attends to: up to an eighth more than asked, so that few different numbers occur."""
    unit = max(FEWEST_COLUMNS, (1 << columns.bit_length()) // 8)
    return -(-columns // unit) * unit


def run(model: Any, cache: LineCache, ids: Tensor, positions: Tensor, seen: Tensor, kept: int | Tensor) -> Tensor:
    """Pass ids through a model that attends to `seen` in a cache.

    Args:
        model: a causal language model.
        cache: prepared for this pass by `begin` or `begin_step`.
        ids: (S, N), padded on the left.
        positions: (S, N).
        seen: (S, 1, N, C) bool, True where a token may attend to a column.
        kept: columns whose logits are returned: a tensor of indices, or 0 for all N.

    Returns:
        (S * kept, V) float32 logits, line after line.
    """
    # transformers' eager attention adds the mask to the scores, so it must be floating: 0 or the lowest number.
    if getattr(getattr(model, "config", None), "_attn_implementation", None) == "eager":
        seen = torch.zeros(seen.shape, dtype=model.dtype, device=seen.device).masked_fill(~seen, torch.finfo(model.dtype).min)
    output = model(input_ids=ids, attention_mask=seen, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=kept)
    columns = len(kept) if isinstance(kept, Tensor) else ids.shape[1]
    logits: Tensor = output.logits[:, -columns:].flatten(0, 1).float()  # (S, kept, V) -> (S * kept, V)
    return logits


def choose(logits: Tensor, draws: Tensor | None, temperature: float, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Pick one token for each draw; greedy without draws.

    Args:
        logits: (P, V).
        draws: (n,) in [0, 1), float64; None takes the most likely token.
        temperature: divides the logits; 0 leaves them as they are.
        which: (n,) row of `logits` for each draw; None: draw i uses row i.

    Returns:
        (n,) tokens, and their (n,) log-probabilities under the sampled distribution (greedy: temperature 1).
    """
    distribution = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
    if draws is None:
        chosen = distribution.argmax(dim=-1)
        return chosen, distribution.gather(1, chosen[:, None])[:, 0]
    which = torch.arange(len(logits), device=logits.device) if which is None else which
    chosen = draw_tokens(distribution.exp(), which, draws)
    return chosen, distribution[which, chosen]


def draw_tokens(probabilities: Tensor, which: Tensor, draws: Tensor) -> Tensor:
    """Draw tokens by inverting the cumulative distribution, first over blocks and then inside one block.

    Args:
        probabilities: (P, V) float32.
        which: (n,) distribution of each draw.
        draws: (n,) in [0, 1), float64.

    Returns:
        (n,) tokens.
    """
    vocabulary = probabilities.shape[1]
    blocks = pad(probabilities, (0, -vocabulary % VALUES_OF_A_SUM)).unflatten(1, (-1, VALUES_OF_A_SUM))
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)[which]  # blocks (P, K, 256), sums (n, K)
    targets = draws * sums[:, -1]  # (n,): the last sum differs from 1 by rounding
    block = torch.searchsorted(sums, targets[:, None], right=True).clamp(max=sums.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)  # (n, 1): the mass of earlier blocks
    inside = blocks[which, block[:, 0]].double().cumsum(-1)  # (n, 256)
    token = torch.searchsorted(inside, targets[:, None] - before, right=True).clamp(max=VALUES_OF_A_SUM - 1)
    return (block * VALUES_OF_A_SUM + token)[:, 0].clamp(max=vocabulary - 1)
