"""Export after training: merge an adapter into its base, describe it, save it, send it to the Hub; lay a finished run out as one directory.

Only `push` sends anything, and the caller passes the token. Merged weights are compared with base and adapter, token by token, before
they are written.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from slmsearch.artifacts.directories import SEAL, replaced_directory
from slmsearch.artifacts.files import file_hash, read_json, replace_json
from slmsearch.config import PolicyConfig
from slmsearch.config.secrets import split_secrets
from slmsearch.environments.registry import find_environment
from slmsearch.errors import ModelError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.intervals import show_interval
from slmsearch.models.load import check_local, load_model, load_tokenizer, merge_adapter
from slmsearch.training.files import ADAPTER, CHECKPOINTS, MANIFEST
from slmsearch.training.job import TrainJob

MAX_DIFFERENCE = 1e-4
"""Largest difference of log-probabilities, in float32, with which merged weights count as the same."""
TEXTS = (
    "Mira has 14 shells. Tovan has 3 times as many shells as Mira. How many shells does Tovan have?",
    "Who founded the library of Norwick, and in what year?",
    '{"should_decompose": true, "subproblems": [{"id": 1, "question": "What is 48 / 2?", "depends_on": []}], "combine": "#1"}',
    '<tool>search_pages("the Old Mill")</tool>',
)
"""Texts on which both are compared."""
CARD, WEIGHTS = "README.md", "adapter_model.safetensors"
TRAINING_CONFIG = "training_config.json"
STATE = ("manifest.json", "optimizer.pt", "progress.json", "rng_state*", "scheduler.pt", "trainer_state.json", "training_args.bin")
SKIPPED = ("checkpoint-*", "*.lock", ".*", SEAL, *STATE)
"""Names in an adapter's directory that are never sent; `STATE` is what a checkpoint holds beside its adapter, paths among it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged model."""

    directory: Path
    base_model: str
    difference: float
    """Largest absolute difference of a token's log-probability, merged against base with adapter."""


def find_base(adapter: Path) -> str:
    """Read which model an adapter was trained on.

    Raises:
        ModelError: the directory holds no adapter, or its settings name none.
    """
    check_local(str(adapter), "--adapter-path", "adapter_config.json")
    try:
        base = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{adapter}/adapter_config.json does not name the base model ({error}); give --policy.model") from error
    return str(base)


def merge(adapter: Path, out: Path, base_model: str | None = None, dtype: str = "float32", card: str = "") -> Merged:
    """Merge an adapter into its base and write the merged model.

    Args:
        adapter: directory of the adapter.
        out: model directory, replaced as a whole.
        base_model: path or Hub id; None takes the base that the adapter names.
        dtype: type of the weights written; the comparison is always in float32.
        card: text of the model card; empty writes none.

    Raises:
        ModelError: base or adapter cannot be loaded, or merged and adapter differ by more than `MAX_DIFFERENCE`.
    """
    base = base_model or find_base(adapter)
    policy = PolicyConfig(model=base, adapter=str(adapter), device="cpu", dtype="float32")
    model, tokenizer = load_model(policy, keep_adapter=True)
    apart = _logprobs(model.eval(), tokenizer)
    plain, _ = load_model(policy.model_copy(update={"adapter": None}))
    merged = merge_adapter(plain, str(adapter)).eval()
    difference = max(float((a - b).abs().max()) for a, b in zip(apart, _logprobs(merged, tokenizer), strict=True))
    if difference > MAX_DIFFERENCE:
        raise ModelError(f"merged weights differ from base and adapter by {difference:.2g} nats (limit {MAX_DIFFERENCE:g}): not written")
    with replaced_directory(out, sealed=True) as staging:
        merged.to(getattr(torch, dtype)).save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        if card:
            (staging / CARD).write_text(card, encoding="utf-8")
    return Merged(out, base, difference)


@torch.no_grad()
def _logprobs(model: Any, tokenizer: Any) -> list[torch.Tensor]:
    """Compute the log-probabilities of every token of the texts."""
    rows = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]], device=model.device)
        logprobs = model(ids).logits[0, :-1].float().log_softmax(-1)
        rows.append(logprobs.gather(1, ids[0, 1:, None])[:, 0])
    return rows


def collect_adapter(
    adapter: Path, out: Path, card: str = "", dtype: str | None = None, tokenizer: bool = True, base_model: str | None = None
) -> Path:
    """Copy an adapter to a directory of its own, ready to be sent.

    Checkpoints are not copied. The path of the base on this machine is replaced by its name.

    Args:
        adapter: directory of the adapter.
        out: directory, replaced as a whole.
        card: text of the model card; empty writes none.
        dtype: type of the weights written; None keeps theirs.
        tokenizer: also write the tokenizer of the base.
        base_model: path or Hub id; None takes the base that the adapter names.

    Raises:
        ModelError: the directory holds no adapter, or its settings name no base.
    """
    base = find_base(adapter)
    with replaced_directory(out, sealed=True) as staging:
        for file in sorted(adapter.iterdir()):
            if file.is_file() and not any(file.match(pattern) for pattern in SKIPPED):
                shutil.copy2(file, staging / file.name)
        settings = staging / "adapter_config.json"
        named = {**json.loads(settings.read_text(encoding="utf-8")), "base_model_name_or_path": public_name(base)}
        if isinstance(named.get("target_modules"), list):  # PEFT writes a set, in an order that changes from process to process
            named["target_modules"].sort()
        replace_json(settings, named)
        if dtype:
            weights = {name: weight.to(getattr(torch, dtype)) for name, weight in load_file(adapter / WEIGHTS).items()}
            save_file(weights, staging / WEIGHTS, metadata={"format": "pt"})
        if tokenizer and not (staging / "tokenizer_config.json").is_file():
            from transformers import AutoTokenizer

            AutoTokenizer.from_pretrained(base_model or base).save_pretrained(staging)
        if card:
            (staging / CARD).write_text(card, encoding="utf-8")
    return out


def public_name(model: str) -> str:
    """Return the public name of a model: a Hub id unchanged, of a path the last part."""
    path = Path(model)
    return path.name if path.is_absolute() or path.is_dir() else model


def find_run(adapter: Path, summaries: Sequence[Path]) -> Mapping[str, Any]:
    """Find the summary of the run that made an adapter, by the hash of its weights; empty where none is known."""
    weights = file_hash(adapter / WEIGHTS)
    for path in summaries:
        summary = read_json(path)
        if summary.get("training", {}).get("hash") == weights:
            return summary
    return {}


def write_card(name: str, base_model: str, run: Mapping[str, Any], merged: bool) -> str:
    """Write the card of a merged model or of an adapter from the summary of the run that made it, as `latest.json` holds it.

    An unknown run has an empty summary. A base that is a path of this machine is cut to its last part.
    """
    environment = find_environment(str(run.get("environment", "searcher")))
    base = public_name(base_model)
    lines = ["---", "library_name: " + ("transformers" if merged else "peft"), f"base_model: {base}"]
    lines += [f"tags: [slmsearch, {environment.name}, grpo{'' if merged else ', lora'}]", "---", f"# {name}", ""]
    lines += [f"{'A model' if merged else 'A LoRA adapter'} that {environment.does}, trained with GRPO by slmsearch on {base}.", ""]
    if not run:
        return "\n".join([*lines, "No summary of the run that made it was found, so nothing is claimed here.", ""])
    metric, difference = run["metric"], run["difference"]
    lines += ["| | before | after |", "|---|---|---|"]
    metrics = sorted(name for name in run["after"] if "/" in name and name in run["before"])  # beside them stand `n` and `by`
    lines += [f"| {m} | {run['before'][m]:.3f} | {run['after'][m]:.3f} |" for m in metrics]
    interval = show_interval(difference["low"], difference["high"])
    lines += ["", f"{metric}: {difference['mean']:+.3f} {interval}, p {difference['p']:.4f}, on {run['n']} questions, paired.", ""]
    lines += ["Made from:", "", *(f"- {key}: `{value}`" for key, value in run.get("lineage", {}).items()), ""]
    return "\n".join(lines)


def list_files(directory: Path) -> list[tuple[str, int]]:
    """List the files that `push` would send: names and bytes."""
    files = (file for file in sorted(directory.rglob("*")) if file.is_file() and file.name != SEAL)
    return [(file.relative_to(directory).as_posix(), file.stat().st_size) for file in files]


def push(directory: Path, repo: str, private: bool, token: str | None, endpoint: str | None = None) -> str:
    """Send a directory to the Hub and return the address of the commit.

    The repository `owner/name` is created if it is missing.

    Args:
        directory: sent as a whole.
        repo: `owner/name`.
        private: whether a new repository is private.
        token: access token for the Hub; None sends none.
        endpoint: address of another Hub than the usual one.

    Raises:
        ServiceError: the Hub refuses or does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(endpoint=endpoint, token=token)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo, folder_path=str(directory), commit_message="Upload with slmsearch", ignore_patterns=[SEAL])
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        cause = cause_of(error)
        raise ServiceError(f"the Hub refused {repo} ({cause}); check HF_TOKEN, its write permission, and the name") from error
    return str(commit.commit_url)


def lay_out(job: TrainJob, out: Path) -> Path:
    """Lay a finished training run out as one directory, which is replaced as a whole; weights are linked, not copied.

    It holds `adapter_config.json`, `adapter_model.safetensors`, tokenizer files, `training_config.json` and `checkpoint-*`.
    """
    plain, _ = split_secrets(job.config)
    del plain["paths"]  # paths of this machine do not belong into a directory that is sent
    manifest = json.loads((job.directory / MANIFEST).read_text(encoding="utf-8"))
    with replaced_directory(out) as staging:
        load_tokenizer(job.config.policy).save_pretrained(staging)
        for source in [*(job.directory / ADAPTER).iterdir(), *(job.directory / CHECKPOINTS).glob("checkpoint-*")]:
            if source.is_dir():
                shutil.copytree(source, staging / source.name, copy_function=_link)
            else:
                (staging / source.name).unlink(missing_ok=True)  # the tokenizer's file may exist already
                _link(source, staging / source.name)
        replace_json(staging / TRAINING_CONFIG, {"config": plain, "run": manifest})
    return out


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
