"""`slmsearch bench gpu`: every preset for a GPU on this machine's card, with random weights in the shape of the model it names.

Two updates each, by the command that a user gives. Rows are as long as the preset allows, so that memory is that of the worst step. What
was planned is compared with what the device lost meanwhile, which counts everything: weights, caches, contexts, fragmentation.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

from slmsearch.bench.learning import with_settings
from slmsearch.bench.published import PUBLISHED, shape_of, write_model, write_shape
from slmsearch.bench.result import Say
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from slmsearch.learn.memory import GIB, SFT, MemoryPlan, measure_available, plan_memory
from slmsearch.learn.shape import measure_shape

LAYERS = 4
"""Of a model where nothing else is said: what is left of the real one has its widths, and is written and loaded in seconds."""
LIMIT_S = 900.0
"""Longest that one preset may take."""
POLL_S = 0.1
"""Time between two looks at the device's memory."""
SPARE = 2 * GIB
"""Bytes that a plan need not explain: on a device the context and libraries' workspaces, on a CPU Python with its libraries."""
NEEDS = {"train.vllm.mode": ("vllm", "off"), "policy.load_in_4bit": ("bitsandbytes", "false")}
"""Settings that need a package of the extra `gpu`, and what is tried without it."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One preset to be tried."""

    name: str
    files: tuple[Path, ...]
    """Its file, and what is laid over it."""
    config: RunConfig
    """As the files say."""
    real: RunConfig
    """The preset alone."""


def require_card() -> None:
    """Refuse a machine without a CUDA device.

    Raises:
        ServiceError: there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise ServiceError(f"no CUDA device here (torch {torch.__version__}): nothing to check; on a GPU machine run make gpu-check")


def run_gpu(presets: Sequence[Preset], tokenizer_dir: Path, work: Path, device: str, layers: int, say: Say) -> dict[str, Any]:
    """Try presets.

    Args:
        presets: what to try.
        tokenizer_dir: a fast tokenizer with a chat template.
        work: models and data go here.
        device: `cuda`, or `cpu` with narrow models, which tries the check itself.
        layers: of each model; 0 takes as many as the real one has.
        say: told what is being done.
    """
    started = time.perf_counter()
    found = {preset.name: _try(preset, tokenizer_dir, work / preset.name, device, layers, say) for preset in presets}
    facts = {"device": _name(device), "layers": layers, "seconds": round(time.perf_counter() - started, 1)}
    return {**facts, "passed": all(preset["passed"] for preset in found.values()), "presets": found}


def render_gpu(result: dict[str, Any]) -> str:
    """Write the result as lines."""
    lines = [f"{result['device']}, {result['seconds']:.0f} s"]
    for name, found in result["presets"].items():
        verdict = "ok  " if found["passed"] else "FAIL"
        planned, measured = f"planned {found['planned_gib']:.2f} GiB", f"measured {found['measured_gib']:.2f} GiB"
        whole = f"whole model {found['whole_gib']:.1f} of {found['available_gib']:.1f} GiB"
        lines.append(f"{verdict} {name}: {found['updates']} updates, {planned}, {measured}; {whole}")
        lines += [f"     {note}" for note in found["notes"]]
    return "\n".join(lines)


def _try(preset: Preset, tokenizer_dir: Path, work: Path, device: str, layers: int, say: Say) -> dict[str, Any]:
    model, small, notes = preset.config.policy.model, device == "cpu", list[str]()
    say(f"{preset.name}: making {layers or 'all'} layers of {model}")
    dtype = "float32" if small else "bfloat16"
    made = write_model(shape_of(model, layers, small), tokenizer_dir, work / "model", dtype, device)
    flags = {"policy.model": str(made), "policy.device": device, "policy.dtype": dtype, **_longest(preset, small)}
    flags |= {"paths.data_dir": str(work / "data"), "paths.mlruns_dir": str(work / "mlruns")}
    for setting, (package, without) in NEEDS.items():
        if attrgetter(setting)(preset.config) not in ("off", False) and (small or find_spec(package) is None):
            flags[setting] = without
            notes.append(
                f"{setting} {without}: " + ("a CPU has none" if small else f"{package} is not installed, uv pip install -e '.[gpu]'")
            )
    is_sft = preset.config.planner.sft.enabled
    available = measure_available()
    planned = needed(plan_memory(with_settings(preset.config, flags), measure_shape(preset.config, str(made)), available))
    command = ["planner", "sft", "--out", str(work / "out")] if is_sft else ["train"]
    files = [part for file in preset.files for part in ("--config", str(file))]
    arguments = [*command, *files, *(f"--{name}={value}" for name, value in flags.items()), "--json"]
    say(f"{preset.name}: slmsearch {' '.join(command)}, two updates")
    outcome, measured, seconds = _watch([sys.executable, "-m", "flows", *arguments], device)
    updates = int(outcome.get("steps", 0))
    if "error" in outcome:
        notes.append(str(outcome["error"]))
    fits = measured <= planned + SPARE
    if not fits:
        notes.append("more memory was taken than planned")
    whole = _plan_whole(preset, work, available, device)
    if device == "cuda" and whole > available[device]:
        notes.append(f"the whole model needs {whole / GIB:.1f} GiB, this card has {available[device] / GIB:.1f} free")
    return {
        "model": model,
        "updates": updates,
        "planned_gib": round(planned / GIB, 2),
        "measured_gib": round(measured / GIB, 2),
        "whole_gib": round(whole / GIB, 2),
        "available_gib": round(available[device] / GIB, 2),
        "seconds": round(seconds, 1),
        "notes": notes,
        "passed": updates == 2 and fits,
    }


def _longest(preset: Preset, small: bool) -> dict[str, str]:
    """Return settings with which random weights, that never end a turn, fill a row as far as the preset lets a real model."""
    chance = {"reward.kind": "random", "planner.reward.kind": "random"}  # equal rewards would leave the update nothing to do
    if small:
        return chance
    searcher, train = preset.real.searcher.max_episode_tokens, preset.real.train
    return {
        **chance,
        "train.questions_per_step": str(train.questions_per_step),
        "train.group_size": str(train.group_size),
        "train.accumulation": str(train.accumulation),
        "searcher.max_turn_tokens": str(searcher),
        "searcher.max_episode_tokens": str(searcher),
        "planner.max_plan_tokens": str(preset.real.planner.max_plan_tokens),
    }


def _plan_whole(preset: Preset, work: Path, available: Mapping[str, float], device: str) -> float:
    """Plan the preset as it is, for the real model."""
    shape = measure_shape(preset.real, str(write_shape(shape_of(preset.real.policy.model), work / "shape")))
    return needed(plan_memory(with_settings(preset.real, {"policy.device": device}), shape, available))


def needed(plan: MemoryPlan) -> float:
    """Return the bytes that a preset's command needs: of supervised training where it is a preset for that, else of the worst phase."""
    return plan.needs(SFT) if SFT in plan.phases else plan.peak


def _watch(command: list[str], device: str) -> tuple[dict[str, Any], float, float]:
    """Run a command to its end; return its JSON, the most memory it took (bytes), and its time (s)."""
    started, before = time.perf_counter(), _taken(device, None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most, ended = 0.0, threading.Event()

    def look() -> None:
        nonlocal most
        while not ended.wait(POLL_S):
            most = max(most, _taken(device, process.pid) - before)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        printed, said = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        printed, said = process.communicate()[0] or "", f"took longer than {LIMIT_S:.0f} s"
    except BaseException:
        process.terminate()
        raise
    finally:
        ended.set()
        watcher.join()
    try:
        outcome: dict[str, Any] = json.loads(printed)
    except ValueError:
        outcome = {"error": said.strip().rpartition("\n")[2] or f"ended with exit code {process.returncode}"}
    return outcome, most, time.perf_counter() - started


def _taken(device: str, pid: int | None) -> float:
    """Return the bytes in use on a CUDA device, or by the heaviest process among one and its children."""
    if device == "cuda":
        import torch

        free, total = torch.cuda.mem_get_info()
        return float(total - free)
    import psutil

    if pid is None:
        return 0.0
    heaviest = 0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            heaviest = max(heaviest, process.memory_info().rss)
    except psutil.Error:
        pass
    return float(heaviest)


def _name(device: str) -> str:
    if device == "cpu":
        return "cpu"
    import torch

    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / GIB:.1f} GiB"


def is_gpu_preset(config: RunConfig) -> bool:
    """Say whether a file is a preset of this check: it wants a CUDA device and names a model whose shape is known."""
    return config.policy.device == "cuda" and config.policy.model in PUBLISHED
