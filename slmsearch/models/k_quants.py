"""llama.cpp's K-quants: 256 weights to a block, in sub-blocks with scales of few bits. `gguf` reads them but does not write them.

Format and search are those of ggml-quants.c (https://github.com/ggml-org/llama.cpp). Shapes: N blocks, S sub-blocks of a block, W weights
of a sub-block; S W = 256.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
"""Weights of a block."""
AT_ONCE = 1 << 13
"""Blocks that are worked on together: the search needs some twenty times their memory."""
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def in_parts(values: Floats, quantise: Callable[[Floats], Bytes]) -> Bytes:
    """Quantise (..., K) block by block, `AT_ONCE` of them together: (..., bytes of K weights)."""
    blocks = values.reshape(-1, BLOCK)
    parts = [quantise(blocks[start : start + AT_ONCE]) for start in range(0, len(blocks), AT_ONCE)]
    return np.concatenate(parts).reshape(*values.shape[:-1], -1)


def quantise_q4_k(values: Floats) -> Bytes:
    """Return blocks of 4 bits a weight with a scale and a minimum of 6 bits for every 32: (..., K) becomes (..., 144 K / 256)."""
    x = values.reshape(-1, 8, 32)
    scales, minima = _fit_affine(x, 15)
    steps, lows = (_steps(one, 63) for one in (scales, minima))
    scale, low = (one.max(1, keepdims=True) / 63 for one in (scales, minima))
    scale, low = (one.astype(np.float16).astype(np.float32) for one in (scale, low))
    step = (scale * steps)[..., None]
    shifted = x + (low * lows)[..., None]
    q = np.clip(np.rint(np.divide(shifted, step, out=np.zeros_like(x), where=step > 0)), 0, 15).astype(np.uint8)
    packed = np.zeros((len(x), 12), dtype=np.uint8)  # 8 scales and 8 minima of 6 bits
    packed[:, :4] = steps[:, :4] | (steps[:, 4:] >> 4) << 6
    packed[:, 4:8] = lows[:, :4] | (lows[:, 4:] >> 4) << 6
    packed[:, 8:] = steps[:, 4:] & 15 | (lows[:, 4:] & 15) << 4
    pairs = q.reshape(-1, 4, 2, 32)  # two sub-blocks share their bytes
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    blocks = np.concatenate([_half(scale), _half(low), packed, nibbles], axis=1)
    return cast(Bytes, blocks.reshape(*values.shape[:-1], -1))


def quantise_q6_k(values: Floats) -> Bytes:
    """Return blocks of 6 bits a weight with a scale of 8 bits for every 16: (..., K) becomes (..., 210 K / 256)."""
    x = values.reshape(-1, 16, 16)
    scales = _fit_scale(x, 32)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(1)[:, None], 1)  # (N, 1), with its sign
    d = (largest / -128).astype(np.float16).astype(np.float32)
    steps = np.clip(np.rint(np.divide(scales, d, out=np.zeros_like(scales), where=d != 0)), -128, 127)
    step = (d * steps)[..., None]
    q = np.clip(np.rint(np.divide(x, step, out=np.zeros_like(x), where=step != 0)), -32, 31).astype(np.int8) + 32
    halves = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.stack([halves[:, :, 0] & 15 | (halves[:, :, 2] & 15) << 4, halves[:, :, 1] & 15 | (halves[:, :, 3] & 15) << 4], axis=2)
    high = halves[:, :, 0] >> 4 | halves[:, :, 1] >> 4 << 2 | halves[:, :, 2] >> 4 << 4 | halves[:, :, 3] >> 4 << 6
    parts = [low.reshape(-1, 128), high.reshape(-1, 64), steps.astype(np.int8).view(np.uint8), _half(d)]
    return cast(Bytes, np.concatenate(parts, axis=1).reshape(*values.shape[:-1], -1))


def _half(values: Floats) -> Bytes:
    """Return (N, 1) as two bytes each."""
    return cast(Bytes, values.astype("<f2").view(np.uint8))


def _steps(values: Floats, most: int) -> Bytes:
    """Return (N, S) as whole shares of the block's largest value."""
    largest = values.max(1, keepdims=True)
    shares = np.divide(most * values, largest, out=np.zeros_like(values), where=largest > 0)
    return cast(Bytes, np.clip(np.rint(shares), 0, most).astype(np.uint8))


def _fit_affine(x: Floats, most: int) -> tuple[Floats, Floats]:
    """Find scale and minimum with which scale q - minimum, q = 0 ... `most`, is nearest to weights (N, S, W); both (N, S), not negative."""
    weight = np.sqrt((x * x).mean(-1, keepdims=True)) + np.abs(x)  # large weights count more
    low = np.minimum(x.min(-1, keepdims=True), 0)
    span = x.max(-1, keepdims=True) - low
    of_weight, of_x = weight.sum(-1), (weight * x).sum(-1)
    scales, minima = span[..., 0] / most, -low[..., 0]  # where all weights are equal, nothing below is better
    plain = np.clip(np.rint(np.divide(most * (x - low), span, out=np.zeros_like(x), where=span > 0)), 0, most)
    best = (weight * (scales[..., None] * plain + low - x) ** 2).sum(-1)
    for shift in (0.0, *np.arange(-1.0, 1.05, 0.1)):
        q = np.clip(np.rint(np.divide((most + shift) * (x - low), span, out=np.zeros_like(x), where=span > 0)), 0, most)
        of_q, of_squares, of_products = (weight * q).sum(-1), (weight * q * q).sum(-1), (weight * x * q).sum(-1)
        determinant = of_weight * of_squares - of_q * of_q
        usable = determinant > 0
        scale = np.divide(of_weight * of_products - of_x * of_q, determinant, out=np.zeros_like(best), where=usable)
        least = np.divide(of_squares * of_x - of_q * of_products, determinant, out=np.zeros_like(best), where=usable)
        above = least > 0
        scale = np.where(above, np.divide(of_products, of_squares, out=np.zeros_like(best), where=of_squares > 0), scale)
        least = np.where(above, 0, least)
        error = (weight * (scale[..., None] * q + least[..., None] - x) ** 2).sum(-1)
        better = usable & (error < best) & (scale >= 0)
        best, scales, minima = (np.where(better, new, old) for new, old in ((error, best), (scale, scales), (-least, minima)))
    return scales.astype(np.float32), minima.astype(np.float32)


def _fit_scale(x: Floats, most: int) -> Floats:
    """Find the scale with which scale q, q = -`most` ... `most` - 1, is nearest to weights (N, S, W); (N, S), with a sign."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    weight = x * x
    best, scales = np.zeros(x.shape[:-1], dtype=np.float32), np.zeros(x.shape[:-1], dtype=np.float32)
    for shift in (0.0, *np.arange(-0.9, 0.95, 0.1)):
        q = np.clip(np.rint(np.divide(-(most + shift) * x, extreme, out=np.zeros_like(x), where=extreme != 0)), -most, most - 1)
        of_products, of_squares = (weight * x * q).sum(-1), (weight * q * q).sum(-1)
        scale = np.divide(of_products, of_squares, out=np.zeros_like(best), where=of_squares > 0)
        gained = scale * of_products  # what of the weighted sum of squares is explained
        better = gained > best
        best, scales = np.where(better, gained, best), np.where(better, scale, scales)
    return scales
