"""Library warnings that do not help a user of this product, each with the reason; all others are shown.

Every process that loads models calls `silence_noise` first: the command line, the child that computes, the one that trains.
"""

import logging
import re
import warnings
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noise:
    """One message to hide."""

    message: str
    """Regular expression for its beginning."""
    reason: str
    category: type[Warning] | None = None
    """Class of a warning."""
    logger: str = ""
    """Logger of a log record."""


NOISE = (
    Noise(
        "`is_gradient_checkpointing` is deprecated",
        "peft asks transformers by the old name, at every adapter that is put on a model; which is right decide those two",
        category=FutureWarning,
    ),
    Noise(
        r"Failed to load CPU gemm_4bit_forward from kernels-community",
        "bitsandbytes would fetch a faster kernel from a hub; it is imported with every adapter, also where no weight has four bits",
        logger="bitsandbytes.backends.cpu.ops",
    ),
)


def silence_noise() -> None:
    """Hide the messages in `NOISE` from the terminal and from logs; a repetition changes nothing."""
    for noise in NOISE:
        logger = logging.getLogger(noise.logger)
        if noise.category is not None:
            warnings.filterwarnings("ignore", noise.message, noise.category)
        elif not any(isinstance(found, _Silenced) for found in logger.filters):
            logger.addFilter(_Silenced(noise.message))


class _Silenced(logging.Filter):
    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = re.compile(message)

    def filter(self, record: logging.LogRecord) -> bool:
        return self._message.match(str(record.msg)) is None
