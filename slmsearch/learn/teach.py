"""Train a model by supervision and publish it as a directory that `policy.model` can name."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Lesson:
    """A loaded model and what it is taught."""

    model: Any
    tokenizer: Any
    settings: SftConfig
    stream: Callable[[], Iterator[Encoded]]
    """Begins an endless stream of episodes."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What is written down of it beside steps and seconds."""
    even: bool = False
    """Weigh every token alike, as in `train_sft`."""
    card: Callable[[dict[str, Any]], str] | None = None
    """Writes a model card from the facts."""


def teach(
    config: RunConfig, out: Path, record: str, prepare: Callable[[], Lesson], on_log: OnLog | None = None, once: bool = False
) -> dict[str, Any]:
    """Train a model by supervision and publish it as a directory, replaced as a whole when everything is done.

    With `sft.lora` an adapter learns. It is merged in float32 into weights loaded anew, so that nothing is rounded; they are saved as
    float32, twice the size of bfloat16. Rounding them to bfloat16 would lose most of a small adapter.

    Args:
        config: policy, shape of the adapter, gradient checkpointing.
        out: model directory.
        record: file in it for the facts.
        prepare: loads the model and says what it is taught.
        on_log: progress, as in `train_sft`.
        once: wait for another process that writes the same directory, and return the facts of a finished one as they are.

    Returns:
        Facts with steps and seconds.

    Raises:
        TrainingError: another process writes the directory.
    """
    with writing_alone(out, waits=once):
        if once and (out / record).is_file():
            found: dict[str, Any] = json.loads((out / record).read_text())
            return found
        lesson = prepare()
        started = time.perf_counter()
        with replaced_directory(out, sealed=True) as temporary:
            model = _train(config, lesson, temporary / "scratch", on_log)
            model.save_pretrained(temporary)
            lesson.tokenizer.save_pretrained(temporary)
            facts = {**lesson.facts, "steps": lesson.settings.steps, "seconds": round(time.perf_counter() - started, 1)}
            (temporary / record).write_text(json.dumps(facts, indent=2) + "\n")
            if lesson.card is not None:
                (temporary / "README.md").write_text(lesson.card(facts))
    return facts


def _train(config: RunConfig, lesson: Lesson, scratch: Path, on_log: OnLog | None) -> Any:
    """Train the model, or an adapter of it that is then merged; return what is to be saved."""
    model, settings = lesson.model, lesson.settings
    if settings.lora:
        from peft import get_peft_model

        from slmsearch.learn.grpo import make_adapter_config

        model = get_peft_model(model, make_adapter_config(config.train.lora))
    train_sft(
        model.train(), lesson.tokenizer, settings, scratch, lesson.stream, on_log, lesson.even, config.train.gradient_checkpointing
    )  # fmt: skip
    if settings.lora:
        model.save_pretrained(scratch / "adapter")
        release_memory()
        base, _ = load_model(config.policy.model_copy(update={"dtype": "float32", "load_in_4bit": False, "device": "cpu"}))
        model = merge_adapter(base, str(scratch / "adapter"))
    shutil.rmtree(scratch, ignore_errors=True)
    return model
