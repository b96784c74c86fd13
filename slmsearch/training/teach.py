"""Supervised training of a model, published as a directory that `policy.model` can name.

Three kinds of examples teach a model to play before it is trained by reward (`slmsearch sft`). Demonstrations of generated questions,
and those of a source of the environment (gold sections, a set of plans), are for a model that does not know the format. The model's
own right episodes (rejection sampling) are for one that does. Small models need one of them: reward teaches nothing where no episode
is ever right.

The control of every training run is supervised training continued from the same checkpoint. It measures what reinforcement learning
adds: same start, same scripted reader, at least the same minutes, all weights trained (its strongest form). Its demonstrations are
fresh ones of the reader that made the checkpoint, never of the evaluated world.
"""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from transformers import set_seed

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.config import LoraSection, PolicyConfig, RunConfig, TrainConfig
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.teaching import BESIDE
from slmsearch.errors import TrainingError
from slmsearch.judge.qualify import require_qualified
from slmsearch.keys import content_key
from slmsearch.models.hashes import read_start
from slmsearch.models.load import check_base, load_adapter, load_model, load_tokenizer, merge_adapter
from slmsearch.processes.call import release_memory
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.encoding import Encoded, encode_demonstration, fits
from slmsearch.training.files import ADAPTER, scratch_of
from slmsearch.training.gold_parts import collect_gold
from slmsearch.training.held_out import make_score
from slmsearch.training.job import CONTROL_VERSION, START_VERSION, control_settings, deciding_versions
from slmsearch.training.own_episodes import make_own_episodes
from slmsearch.training.sft import Lesson, OnLog, OnPhase, TrainingFacts, tell_nobody, train_sft
from slmsearch.training.streams import demonstrated, in_turn, repeated, within_context
from slmsearch.training.update_times import UpdateTimes

DEMONSTRATIONS, OWN, GOLD = "demonstrations", "own", "gold"
TRIED_UPDATES = 24
"""Largest number of updates of the control whose time decides its number of steps."""
FACTS, CONTROL_FACTS = "sft.json", "control.json"
STEPS = "steps.json"
"""File in the scratch directory of a control: its number of steps, once measured."""
SHOWN = 64
"""Episodes of an endless stream that represent it in the key of a training."""
Say = Callable[[str], None]


@contextmanager
def writing_alone(out: Path, waits: bool = False) -> Iterator[None]:
    """Hold the lock of a model directory, so that only this process writes it.

    Raises:
        TrainingError: another process writes it, and `waits` is not set.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        held = lock.acquire(timeout=-1 if waits else 0)
    except Timeout as error:
        raise TrainingError(f"another process is writing {out}; wait for its end, or write to another directory") from error
    with held:
        yield


def load_student(policy: PolicyConfig, lora: bool) -> tuple[Any, Any]:
    """Load the model to be trained and its tokenizer: all of it, or an adapter (`lora`), the policy's own if it has one.

    What learns is float32, because its steps are smaller than bfloat16 can represent; weights below an adapter have `policy.dtype`.

    Raises:
        ModelError: see `load_model`; the adapter cannot be merged, as what is learnt will be.
    """
    if not lora:
        return load_model(policy.model_copy(update={"dtype": "float32", "load_in_4bit": False}))
    if policy.adapter:
        check_base(policy, load_tokenizer(policy))
        _merged(policy, policy.adapter)
    model, tokenizer = load_model(policy.model_copy(update={"adapter": None}))
    return load_adapter(model, policy.adapter, trainable=True) if policy.adapter else model, tokenizer


def teach(
    policy: PolicyConfig,
    train: TrainConfig,
    out: Path,
    record: str,
    prepare: Callable[[], Lesson],
    on_log: OnLog | None = None,
    on_phase: OnPhase = tell_nobody,
    once: bool = False,
) -> TrainingFacts:
    """Train a model by supervision and publish it as a directory, replaced as a whole at the end.

    With `sft.lora` an adapter learns, the policy's own if it has one. It is merged in float32 into reloaded weights, which are saved as
    float32, twice the size of bfloat16: rounding them would lose most of a small adapter.

    A killed training resumes when it is called again for the same directory: its checkpoints are beside it (`scratch_of`) until the
    directory is published.

    Args:
        policy: model that learns.
        train: shape of the adapter, gradient checkpointing.
        out: model directory.
        record: file in it for the facts.
        prepare: loads the model and its examples.
        on_log: as in `train_sft`.
        on_phase: as in `train_sft`.
        once: wait for another process that writes the same directory, and return the facts of a finished one as they are.

    Returns:
        Facts with steps and seconds, those of killed processes included.

    Raises:
        TrainingError: another process writes the directory.
    """
    scratch = scratch_of(out)
    with writing_alone(out, waits=once):
        if not (once and (out / record).is_file()):
            lesson = prepare()
            started = time.perf_counter()
            with replaced_directory(out, sealed=True) as temporary:
                lesson = with_adapter(lesson, train.lora)
                key = _key_of(lesson, None if policy.adapter else train.lora)  # an adapter that goes on has its own shape
                earlier_s = train_sft(lesson, scratch, on_log, train.gradient_checkpointing, key=key, on_phase=on_phase)
                model = _merge(policy, lesson.model, temporary) if lesson.settings.lora else lesson.model
                model.save_pretrained(temporary)
                lesson.tokenizer.save_pretrained(temporary)
                seconds = round(earlier_s + time.perf_counter() - started, 1)
                facts: TrainingFacts = {**lesson.facts, "steps": lesson.settings.steps, "seconds": seconds}
                (temporary / record).write_text(json.dumps(facts, indent=2) + "\n")
                if lesson.card is not None:
                    (temporary / "README.md").write_text(lesson.card(facts))
        shutil.rmtree(scratch, ignore_errors=True)
        found: TrainingFacts = json.loads((out / record).read_text())
    return found


def _merge(policy: PolicyConfig, model: Any, out: Path) -> Any:
    """Keep a trained adapter beside the model, and merge it into reloaded weights."""
    model.peft_config["default"].base_model_name_or_path = policy.model  # one that went on learning may name another place
    model.save_pretrained(out / ADAPTER)
    release_memory()
    return _merged(policy, str(out / ADAPTER))


def _merged(policy: PolicyConfig, adapter: str) -> Any:
    base, _ = load_model(policy.model_copy(update={"adapter": None, "dtype": "float32", "load_in_4bit": False, "device": "cpu"}))
    return merge_adapter(base, adapter)


def _key_of(lesson: Lesson, lora: LoraSection | None) -> str:
    """Name a training by its inputs: a killed run is resumed only if settings, weights and episodes are unchanged."""
    digest = hashlib.sha256()
    for encoded in islice(lesson.stream(), lesson.facts.get("episodes") or SHOWN):
        digest.update(np.array([encoded.ids, encoded.labels]).tobytes())
    for name, weight in lesson.model.named_parameters():
        digest.update(repr((name, weight.shape, weight.dtype, float(weight.detach().float().sum()))).encode())
    return content_key(
        versions=[START_VERSION, CONTROL_VERSION, *deciding_versions().values()],
        facts=lesson.facts,
        settings=lesson.settings.key_parts(),
        even=lesson.even,
        lora=lora.key_parts() if lora and lesson.settings.lora else None,
        content=digest.hexdigest(),
    )


def with_adapter(lesson: Lesson, lora: LoraSection) -> Lesson:
    """Add an adapter to the model if the settings ask for one and it has none; its first weights follow from the seed."""
    from peft import PeftModel, get_peft_model

    from slmsearch.training.grpo_settings import make_adapter_config

    if not lesson.settings.lora or isinstance(lesson.model, PeftModel):
        return lesson
    set_seed(lesson.settings.seed)
    return replace(lesson, model=get_peft_model(lesson.model, make_adapter_config(lora)))


def train_start(
    config: RunConfig,
    sources: Sequence[str],
    out: Path,
    say: Say = lambda text: None,
    on_log: OnLog | None = None,
    on_phase: OnPhase = tell_nobody,
    once: bool = False,
    digest: str | None = None,
) -> TrainingFacts:
    """Train `config.policy.model` by supervision and write the trained model.

    Args:
        config: `sft` has the settings, `train.limit` the number of questions of the user's data.
        sources: `demonstrations`, `own`, or one that the environment knows; examples of several sources take turns. After `own`, another
            source shows only questions that were played and never right.
        out: model directory, replaced as a whole at the end.
        say: receives progress messages.
        on_log: as in `train_sft`.
        on_phase: as in `train_sft`; also called for the questions played for `own`.
        once: return the record of a finished directory.
        digest: corpus of the run; None builds or looks up the configured one where it is needed.

    Raises:
        TrainingError: none of the model's own episodes was right, or no example fits.
        CorpusError: a set of examples is missing or has other columns.
        ModelError: an example is longer than the model's context.
        PreflightError: the judge that would grade them has not passed its qualification.
    """
    prepare = partial(prepare_start, config, sources, say, on_phase, digest)
    return teach(config.policy, config.train, out, FACTS, prepare, on_log, on_phase, once)


def prepare_start(
    config: RunConfig, sources: Sequence[str], say: Say, on_phase: OnPhase = tell_nobody, digest: str | None = None
) -> Lesson:
    """Load the model and its examples; see `train_start`."""
    environment = environment_of(config)
    teaching = environment.teaching(config, digest)
    even = teaching.tiny is not None and teaching.tiny.even and not config.sft.batch_size
    if OWN in sources:
        require_qualified(config.judge, config.paths.data_dir)
    model, tokenizer = load_student(config.policy, config.sft.lora)
    renderer = ChatRenderer(tokenizer, config.searcher.tool_role)
    fresh = config.sft.model_copy(update={"seed": config.sft.seed + teaching.seed_offset})
    kept, left_out = dict[str, list[Encoded]](), Counter[str]()
    wrong: Mapping[str, Episode] | None = None
    for source in sources:
        if source == DEMONSTRATIONS:
            continue
        if source == OWN:
            sampler = TorchSampler(model.eval(), tokenizer, config.searcher.tool_role)
            found, wrong = make_own_episodes(environment, digest, sampler, say, on_phase)
            missed = Counter[str]()
        else:
            shown, missed = collect_gold(config, digest) if source == GOLD and wrong is None else teaching.examples(source, wrong)
            if wrong is not None and not shown:
                continue  # the model plays all of these right
            found = [encode_demonstration(demonstration, renderer, environment) for demonstration in shown]
        if fitting := _keep_fitting(environment, found, missed, source, say, wrong is None or source == OWN):
            kept[source] = list(within_context(model, fitting))
        left_out += missed
    listed = [[encoded for source in kept if source != BESIDE for encoded in kept[source]], kept.get(BESIDE, [])]
    count = None if DEMONSTRATIONS in sources else sum(map(len, listed))
    began = read_start(config.policy.model) or config.policy.model  # a start may continue another start's adapter
    taught = "+".join(source for source in sources if source == DEMONSTRATIONS or source in kept)
    facts: TrainingFacts = {"source": taught, "episodes": count, "start": began}
    if kept:
        facts["left_out"] = dict(+left_out)
    settings = config.sft if count is None else teaching.settings(count)

    def stream() -> Iterator[Encoded]:
        streams = [repeated(found, config.sft.seed) for found in listed if found]
        return in_turn([*streams, demonstrated(renderer, environment, fresh)] if count is None else streams)

    score, use_cpu = make_score(config, renderer, digest), config.policy.device == "cpu"
    return Lesson(model, tokenizer, settings, stream, facts, even, score=score, use_cpu=use_cpu)


def train_control(
    config: RunConfig,
    out: Path,
    seconds: float,
    on_log: OnLog | None = None,
    on_phase: OnPhase = tell_nobody,
    digest: str | None = None,
) -> TrainingFacts:
    """Continue supervised training from `config.policy.model` on its earlier examples; return the record of a finished directory as it is.

    Args:
        config: run; `control` sets the length, `sft` the demonstrations.
        out: model directory to write, complete or absent.
        seconds: duration of the training that it is compared with.
        on_log: as in `train_sft`.
        on_phase: as in `train_sft`.
        digest: as in `train_start`.
    """
    settings, environment = control_settings(config.control, config.sft), environment_of(config)

    def prepare(steps: int) -> Lesson:
        model, tokenizer = load_student(config.policy, settings.lora)
        renderer = ChatRenderer(tokenizer, config.searcher.tool_role)
        stream = partial(demonstrated, renderer, environment, settings)
        lesson = Lesson(model, tokenizer, settings.model_copy(update={"steps": steps}), stream, use_cpu=config.policy.device == "cpu")
        if config.sft.start == "none":
            return lesson
        shown, left_out = collect_gold(config, digest)
        found = [encode_demonstration(demonstration, renderer, environment) for demonstration in shown]
        kept = _keep_fitting(environment, found, left_out, GOLD, lambda text: None)
        return replace(lesson, stream=lambda: repeated(kept, settings.seed))

    def prepare_measured() -> Lesson:
        measured = scratch_of(out) / STEPS
        steps: int = config.control.steps or read_json(measured).get("steps", 0)
        if not steps:
            times = UpdateTimes()
            with TemporaryDirectory() as scratch:
                train_sft(with_adapter(prepare(TRIED_UPDATES), config.train.lora), Path(scratch), callbacks=[times])
            steps = max(1, round((seconds - times.total) / times.usual))
            measured.parent.mkdir(exist_ok=True)
            replace_json(measured, {"steps": steps})  # a killed control resumes with the same number
        return prepare(steps)

    return teach(config.policy, config.train, out, CONTROL_FACTS, prepare_measured, on_log, on_phase, once=True)


def measure_speed(config: RunConfig, digest: str | None = None) -> dict[str, float]:
    """Train the supervised start for some updates and discard it; return the fields of a `Speed`.

    Raises:
        TrainingError, ModelError: see `train_start`.
    """
    sources = [source for source in environment_of(config).teaching(config).start_sources() if source != OWN]  # nothing is played
    lesson, times = prepare_start(config, sources, lambda text: None, digest=digest), UpdateTimes()
    with TemporaryDirectory() as scratch:
        train_sft(with_adapter(lesson, config.train.lora), Path(scratch), callbacks=[times])
    return {"update_s": times.usual, "examples": lesson.facts["episodes"] or 0}


def _keep_fitting(
    environment: Environment, found: Sequence[Encoded], left_out: Counter[str], source: str, say: Say, needed: bool = True
) -> list[Encoded]:
    limits = environment.limits
    as_written = source == OWN and limits.max_example_tokens is None  # the policy's own episodes end within its limits
    kept = [encoded for encoded in found if as_written or fits(encoded, limits)]
    left_out["too long"] = len(found) - len(kept)
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common() if count) or "none"
    say(f"{len(kept)} examples; left out: {reasons}")
    if needed and not kept:
        raise TrainingError(f"no example is left ({reasons}): {environment.teaching.advice or f'raise {limits.settings[0]}'}")
    return kept
