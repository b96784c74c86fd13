"""`slmsearch bench gpu`: every preset for a GPU on this machine's card, with random weights in the shape of its model.

Two updates each, by the ordinary command. A step holds as many tokens as the longest that the preset allows, so that memory is that of the
worst step; if torch samples, which takes a pass through the model for every token of a row, they lie in more and shorter rows. The plan is
compared with the free memory that the device lost meanwhile, which counts everything: weights, caches, contexts, fragmentation; and by
phase with the memory that torch held, which counts neither contexts nor other libraries.
"""

import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

from slmsearch.config import PlannerConfig, RunConfig
from slmsearch.errors import ServiceError
from slmsearch.extensions.bench.result import Result, Say, tabulate
from slmsearch.processes.call import release_memory
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.training.memory import GIB, PROMPT_TOKENS, SFT, MemoryPlan, measure_available, measure_shape, plan_memory

LIMIT_S = 900.0
"""Time limit for one preset."""
POLL_S = 0.1
"""Time between two measurements of the device's memory."""
MOST_SAMPLED = 512
"""Tokens of a row where torch samples: two updates with their pre-flight and held-out rewards are some 4,000 passes then, not 28,000."""
SHORT_PROMPT = 64
"""Maximum number of tokens of an opening without instructions."""
SPARE = 2 * GIB
"""Bytes that a plan need not explain: on a device the context and libraries' workspaces, on a CPU Python with its libraries."""
NEEDS = {"train.vllm.mode": ("vllm", "off"), "policy.load_in_4bit": ("bitsandbytes", "false")}
"""Settings that need a package of the extra `gpu`, and the values tried without it."""
PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads(
    files("slmsearch.extensions.bench").joinpath("published.toml").read_text(encoding="utf-8")
)
"""Hub id -> shape in its `config.json`."""
CHANCE = {"reward.kind": "random", "planner.reward.kind": "random"}
"""Reward settings of the trial: equal rewards would leave the update without work."""
TRAINED_ON = 16
"""Minimum number of questions."""
UNSEEN = ("runtime", "vLLM", "judge")
"""Parts of a plan that torch's own figures do not contain."""
_SMALL = {"intermediate_size": 128, "vocab_size": 1536, "max_position_embeddings": 4096}
_SMALL_HEAD = 16
COLUMNS = {
    "preset": "{preset}",
    "": "{verdict}",
    "updates": "{updates}",
    "planned, GiB": "{planned_gib:.2f}",
    "measured, GiB": "{measured_gib:.2f}",
    "whole model, GiB": "{whole_gib:.1f} of {available_gib:.1f}",
}


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset to try."""

    name: str
    files: tuple[Path, ...]
    """Its file, and the overlay."""
    config: RunConfig
    """Settings of the files."""
    real: RunConfig
    """Settings of the preset alone."""


@dataclass(frozen=True, slots=True)
class PresetTrial:
    """Result of one preset."""

    model: str
    updates: int
    planned_gib: float
    measured_gib: float
    whole_gib: float
    """Planned bytes for the unchanged preset, with the whole model."""
    available_gib: float
    phases: dict[str, dict[str, float]]
    """Memory that torch held in each phase, beside the plan; empty without a card."""
    seconds: float
    notes: list[str]
    passed: bool


def require_card(remedy: str) -> None:
    """Refuse a machine without a CUDA device; `remedy` is the alternative.

    Raises:
        ServiceError: there is none.
    """
    if not torch.cuda.is_available():
        raise ServiceError(f"no CUDA device here (torch {torch.__version__}): {remedy}")


def run_gpu(presets: Sequence[Preset], tokenizer_dir: Path, work: Path, device: str, layers: int, say: Say) -> Result:
    """Try presets.

    Args:
        presets: presets to try.
        tokenizer_dir: a fast tokenizer with a chat template.
        work: models and data go here.
        device: `cuda`, or `cpu` with narrow models, which tries the check itself.
        layers: layers of each model; 0 takes as many as the real one has.
        say: receives a line about the present step.
    """
    started, small = time.perf_counter(), device == "cpu"
    trials: dict[str, PresetTrial] = {}
    for preset in presets:
        model, home = preset.config.policy.model, work / preset.name
        say(f"{preset.name}: {layers or 'all'} layers of {model}, two updates")
        made = write_model(shape_of(model, layers, small), tokenizer_dir, home / "model", "float32" if small else "bfloat16", device)
        trials[preset.name] = _try(preset, made, home, device)
    values = {
        "device": name_of(device),
        "layers": layers,
        "seconds": round(time.perf_counter() - started, 1),
        "passed": all(trial.passed for trial in trials.values()),
        "presets": {name: asdict(trial) for name, trial in trials.items()},
    }
    rows = ({"preset": name, "verdict": "ok" if trial.passed else "FAIL", **asdict(trial)} for name, trial in trials.items())
    notes = [f"{name}: {note}" for name, trial in trials.items() for note in trial.notes]
    return Result(values, (tabulate(COLUMNS, rows),), [f"{values['device']}, {values['seconds']:.0f} s", *notes])


def shape_of(model: str, layers: int = 0, small: bool = False) -> PretrainedConfig:
    """Return the settings of a model of a published shape, a key of `PUBLISHED`; 0 layers take all.

    A `small` one is narrow, with few heads that share key heads as the real ones do, and a small vocabulary.
    """
    shape = dict(PUBLISHED[model])
    if small:
        shared = min(4, shape["num_attention_heads"] // shape["num_key_value_heads"])
        shape |= {**_SMALL, "num_attention_heads": 2 * shared, "num_key_value_heads": 2, "hidden_size": 2 * shared * _SMALL_HEAD}
        shape |= {"head_dim": _SMALL_HEAD} if "head_dim" in shape else {}
    return AutoConfig.for_model(**{**shape, "num_hidden_layers": layers or shape["num_hidden_layers"]})


def write_model(shape: PretrainedConfig, tokenizer_dir: Path, directory: Path, dtype: str, device: str) -> Path:
    """Write random weights of a shape, drawn on a device, and a tokenizer with a token for every id.

    The tokenizer is the given fast one with a chat template, its vocabulary filled up with meaningless words.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_dir)
    shape.update({"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None})
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(shape, dtype=getattr(torch, dtype))
    model.save_pretrained(directory)
    del model
    release_memory()  # which this process would hold while the presets run
    tokenizer.save_pretrained(directory)
    file = directory / "tokenizer.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    words["model"]["vocab"] |= {f"qz{i}": i for i in range(len(tokenizer), shape.vocab_size)}
    file.write_text(json.dumps(words), encoding="utf-8")
    return directory


def _try(preset: Preset, made: Path, work: Path, device: str) -> PresetTrial:
    """Run two updates of a preset with a model of random weights."""
    small, notes = device == "cpu", list[str]()
    flags = {"policy.model": str(made), "policy.device": device, "policy.dtype": "float32" if small else "bfloat16"}
    flags |= {"paths.data_dir": str(work / "data"), "paths.mlruns_dir": str(work / "mlruns")}
    for setting, (package, without) in NEEDS.items():
        if attrgetter(setting)(preset.config) not in ("off", False) and (small or find_spec(package) is None):
            flags[setting] = without
            reason = "a CPU has none" if small else f"{package} is not installed, uv pip install -e '.[gpu]'"
            notes.append(f"{setting} {without}: {reason}")
    flags |= CHANCE if small else CHANCE | longest(preset.real, flags.get("train.vllm.mode", preset.real.train.vllm.mode) == "off")
    available = measure_available()
    flagged = RunConfig.model_validate(preset.config.changed(flags).model_dump(warnings=False))  # flags are texts
    prompt = PROMPT_TOKENS if flagged.searcher.system_prompt else SHORT_PROMPT
    plan = plan_memory(flagged, measure_shape(preset.config, str(made)), available, prompt)
    planned = needed(plan, flagged.planner)
    command = ["planner", "sft", "--out", str(work / "out")] if preset.config.planner.sft.enabled else ["train"]
    laid = [part for file in preset.files for part in ("--config", str(file))]
    arguments = [*command, *laid, *(f"--{name}={value}" for name, value in flags.items()), "--json"]
    started = time.perf_counter()
    outcome, measured = _watch(arguments, work / "log", device)
    seconds, updates = time.perf_counter() - started, int(str(outcome.get("steps", 0)))
    if "error" in outcome:
        notes.append(str(outcome["error"]))
    fits = measured <= planned + SPARE
    if not fits:
        notes.append("more memory was taken than planned")
    whole, free = _plan_whole(preset, work, available, device), available[device]
    if device == "cuda" and whole > free:
        notes.append(f"the whole model needs {whole / GIB:.1f} GiB, this card has {free / GIB:.1f} free")
    sizes = {"planned": planned, "measured": measured, "whole": whole, "available": free}
    gib = {f"{name}_gib": round(size / GIB, 2) for name, size in sizes.items()}
    passed = updates == 2 and fits
    phases = compare_phases(plan, outcome.get("card"))
    return PresetTrial(preset.config.policy.model, updates, **gib, phases=phases, seconds=round(seconds, 1), notes=notes, passed=passed)


def longest(real: RunConfig, sampled_by_torch: bool) -> dict[str, str]:
    """Return settings with which random weights, which never end a turn, fill a step up to the preset's limits.

    Where torch samples and rows would be longer than `MOST_SAMPLED`, there are several times more rows, as many times shorter: the cache
    and the update hold as many tokens. Their openings are short then, since rows of a group share theirs.
    """
    searcher, train = real.searcher.max_episode_tokens, real.train
    times = max(1, round(searcher / MOST_SAMPLED)) if sampled_by_torch and real.environment == "searcher" else 1
    tokens, questions = str(-(-searcher // times)), train.questions_per_step * times
    return {
        "train.questions_per_step": str(questions),
        "train.limit": str(max(questions, TRAINED_ON)),
        "train.group_size": str(train.group_size),
        "train.accumulation": str(train.accumulation),
        "evaluate.batch_size": str(real.evaluate.batch_size * times),
        "searcher.max_turn_tokens": tokens,
        "searcher.max_episode_tokens": tokens,
        "planner.max_plan_tokens": str(real.planner.max_plan_tokens),
        **({"searcher.system_prompt": ""} if times > 1 else {}),
    }


def compare_phases(plan: MemoryPlan, card: object) -> dict[str, dict[str, float]]:
    """Compare planned memory of each phase, without the parts that torch does not see, with the memory that the training reports."""
    found: dict[str, dict[str, float]] = {}
    for phase, use in card.items() if isinstance(card, Mapping) else ():
        if phase in plan.phases:
            planned = sum(part.num_bytes for part in plan.phases[phase] if part.name not in UNSEEN) / GIB
            ratio = {"ratio": round(planned / use["allocated_gib"], 2)} if use["allocated_gib"] else {}
            found[phase] = {"planned_gib": round(planned, 3), "measured_gib": use["allocated_gib"], **ratio, **use}
    return found


def _plan_whole(preset: Preset, work: Path, available: Mapping[str, float], device: str) -> float:
    """Plan the unchanged preset, for the real model."""
    shape_of(preset.real.policy.model).save_pretrained(work / "shape")
    shape = measure_shape(preset.real, str(work / "shape"))
    real = preset.real.changed({"policy.device": device})
    return needed(plan_memory(real, shape, available), real.planner)


def needed(plan: MemoryPlan, planner: PlannerConfig) -> float:
    """Return the bytes that a preset's command needs: those of supervised training if the preset is for that, else of the worst phase."""
    return plan.needs(SFT) if planner.sft.enabled else plan.peak


def _watch(arguments: Sequence[str], log: Path, device: str) -> tuple[Mapping[str, object], float]:
    """Run a command of slmsearch to its end; return its JSON, and its peak memory (bytes)."""
    most, before, deadline = 0.0, _taken(device), time.monotonic() + LIMIT_S
    child = ChildProcess("slmsearch", ["-m", "flows", *arguments], log, ProcessSettings(same_code=True))
    try:
        while child.wait(POLL_S) is None and time.monotonic() < deadline:
            most = max(most, _taken(device, child.pid) - before)
        if child.is_alive:
            return {"error": f"took longer than {LIMIT_S:.0f} s"}, most
    finally:
        child.stop()
    last = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    try:
        outcome: dict[str, object] = json.loads(last)
    except ValueError:
        outcome = {"error": last or f"ended with exit code {child.process.returncode}"}
    return outcome, most


def _taken(device: str, pid: int | None = None) -> float:
    """Return the bytes in use on a CUDA device, or by the heaviest process among one and its children."""
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        return float(total - free)
    heaviest = 0
    with suppress(psutil.Error):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)) if pid else ():
            heaviest = max(heaviest, process.memory_info().rss)
    return float(heaviest)


def name_of(device: str) -> str:
    """Name a device, a card with its memory."""
    if device == "cpu":
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / GIB:.1f} GiB"
