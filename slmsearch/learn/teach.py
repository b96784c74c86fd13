"""Train a model by supervision and publish it as a directory that `policy.model` can name."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.config import RunConfig, SftConfig
from slmsearch.errors import TrainingError
from slmsearch.generate.load import load_model, merge_adapter
from slmsearch.learn.child import release_memory
from slmsearch.learn.encoding import Encoded
from slmsearch.learn.sft import train_sft

OnLog = Callable[[int, dict[str, float]], None]


@contextmanager
def writing_alone(out: Path, waits: bool = False) -> Iterator[None]:
    """Be the only process that writes a model directory.

    Raises:
        TrainingError: another one writes it, and this one does not wait.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        lock.acquire(timeout=-1 if waits else 0)
    except Timeout as error:
        raise TrainingError(f"another process is writing {out}; wait for its end, or write to another directory") from error
    try:
        yield
    finally:
        lock.release()


def load_student(config: RunConfig) -> tuple[Any, Any]:
    """Load the model that is to learn, and its tokenizer.

    All weights learn in float32, as their steps are smaller than what bfloat16 can hold. Below an adapter the weights lie as
    `policy.dtype` says; where `policy.adapter` has to be merged into them first they are float32, too.
    """
    policy = config.policy
    if not config.sft.lora:
        policy = policy.model_copy(update={"load_in_4bit": False})
    keep = config.sft.lora and not policy.adapter
    return load_model(policy if keep else policy.model_copy(update={"dtype": "float32"}))


def teach(
    config: RunConfig,
    settings: SftConfig,
    student: tuple[Any, Any],
    stream: Callable[[], Iterator[Encoded]],
    out: Path,
    facts_name: str,
    facts: dict[str, Any],
    on_log: OnLog | None = None,
    even: bool = False,
) -> dict[str, Any]:
    """Train a loaded model, and write it to a directory, replaced as a whole when everything is done.

    With `sft.lora` an adapter learns. It is merged in float32 into weights loaded anew, so that nothing is rounded; they are saved as
    float32, twice the size of bfloat16. Rounding them to bfloat16 would lose most of a small adapter.

    Args:
        config: policy, shape of the adapter, gradient checkpointing.
        settings: how to train.
        student: model and tokenizer, as `load_student` gives them.
        stream: begins an endless stream of episodes.
        out: model directory.
        facts_name: file in it for the facts.
        facts: what it shall say beside steps, seconds and start.
        on_log: progress, as in `train_sft`.
        even: weigh every token alike, as in `train_sft`.

    Returns:
        Facts with steps and seconds.
    """
    started = time.perf_counter()
    model, tokenizer = student
    if settings.lora:
        from peft import get_peft_model

        from slmsearch.learn.grpo import make_adapter_config

        model = get_peft_model(model, make_adapter_config(config.train.lora))
    with writing_alone(out), replaced_directory(out, sealed=True) as temporary:
        scratch = temporary / "scratch"
        train_sft(model.train(), tokenizer, settings, scratch, stream, on_log, even, config.train.gradient_checkpointing)
        if settings.lora:
            model.save_pretrained(scratch / "adapter")
            release_memory()
            model = _merge(config, scratch / "adapter")
        shutil.rmtree(scratch, ignore_errors=True)
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        facts = {**facts, "steps": settings.steps, "seconds": round(time.perf_counter() - started, 1)}
        (temporary / facts_name).write_text(json.dumps({**facts, "start": config.policy.model}, indent=2) + "\n")
    return facts


def _merge(config: RunConfig, adapter: Path) -> Any:
    base, _ = load_model(config.policy.model_copy(update={"dtype": "float32", "load_in_4bit": False, "device": "cpu"}))
    return merge_adapter(base, str(adapter))
