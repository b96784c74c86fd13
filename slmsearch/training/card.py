"""Use of a CUDA card in each phase of a training process: the most memory that torch held, and how busy the card was."""

import logging
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from slmsearch.foreign import cause_of
from slmsearch.training.memory import GIB
from slmsearch.training.phase_timer import CardUse

logger = logging.getLogger(__name__)

EVERY_S = 0.5
"""Time between two samples of how busy a card is, in seconds."""
TIMEOUT_S = 10.0

TakePeaks = Callable[[], tuple[float, float]]
"""Function that returns the most bytes that were allocated and reserved since the last call."""
ReadBusy = Callable[[], float]
"""Function that returns the share of time in which the card computed, over a moment up to now."""


class CardWatch:
    """A record of a card's use by phase; `PhaseTimer` announces every change of the phase."""

    def __init__(self, take_peaks: TakePeaks) -> None:
        """Start watching now."""
        self._take_peaks, self._phase = take_peaks, ""
        self._peaks: dict[str, tuple[float, float]] = {}
        self._busy: dict[str, list[float]] = {}
        take_peaks()

    def turn(self, phase: str) -> None:
        """Record the use of the current phase, and continue with another or the same."""
        if self._phase:
            before, now = self._peaks.get(self._phase, (0.0, 0.0)), self._take_peaks()
            self._peaks[self._phase] = (max(before[0], now[0]), max(before[1], now[1]))
        self._phase = phase

    def sample(self, read_busy: ReadBusy) -> None:
        """Sample how busy the card is, for the current phase."""
        phase, busy = self._phase, read_busy()
        if phase == self._phase:  # a sample across a change belongs to neither phase
            self._busy.setdefault(phase, []).append(busy)

    def read(self) -> dict[str, CardUse]:
        """Return the use of each phase up to now."""
        self.turn(self._phase)
        found: dict[str, CardUse] = {}
        for phase, (allocated, reserved) in self._peaks.items():
            found[phase] = {"allocated_gib": round(allocated / GIB, 3), "reserved_gib": round(reserved / GIB, 3)}
            if samples := self._busy.get(phase):
                found[phase]["busy_frac"] = round(sum(samples) / len(samples), 3)
        return found

    def metrics(self) -> dict[str, float]:
        """Return the same as metrics of a step."""
        return {f"card/{phase}_{name}": float(value) for phase, use in self.read().items() for name, value in use.items()}  # type: ignore[arg-type]


def peaks_of_torch() -> tuple[float, float]:
    """Return the peaks of the current CUDA device, and reset them."""
    peaks = float(torch.cuda.max_memory_allocated()), float(torch.cuda.max_memory_reserved())
    torch.cuda.reset_peak_memory_stats()
    return peaks


def busy_reader() -> ReadBusy | None:
    """Find a way to see how busy the current CUDA device is: NVML where its package is there, else `nvidia-smi`; None: neither is."""
    if find_spec("pynvml") is not None:
        return lambda: torch.cuda.utilization() / 100
    if shutil.which("nvidia-smi") is None:
        return None
    card = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    command = ["nvidia-smi", f"--id={card}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    return lambda: float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout) / 100


@contextmanager
def watching_card(use_cpu: bool) -> Iterator[CardWatch | None]:
    """Watch the current CUDA device while the context lasts; on a CPU yield None."""
    if use_cpu or not torch.cuda.is_available():
        yield None
        return
    torch.cuda.init()
    with sampling_busy(CardWatch(peaks_of_torch), busy_reader()) as watch:
        yield watch


@contextmanager
def sampling_busy(watch: CardWatch, read_busy: ReadBusy | None) -> Iterator[CardWatch]:
    """Sample how busy a card is in a thread while the context lasts; on an error the figure is left out, with one warning."""
    ended = threading.Event()

    def sample() -> None:
        while read_busy is not None and not ended.wait(EVERY_S):
            try:
                watch.sample(read_busy)
            except Exception as error:  # a driver's own kinds of error: training goes on without the figure
                logger.warning("the card's utilisation cannot be read and is not recorded: %s", cause_of(error))
                return

    if read_busy is None:
        logger.warning("the card's utilisation cannot be read and is not recorded: install nvidia-ml-py, or put nvidia-smi on the PATH")
    thread = threading.Thread(target=sample, daemon=True, name="card")
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
