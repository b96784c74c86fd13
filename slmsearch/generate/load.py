"""A policy's settings to a writer, and a model's directory to a loaded model."""

from pathlib import Path
from typing import Any

from slmsearch.config import PolicyConfig
from slmsearch.errors import ModelError
from slmsearch.generate.writer import Writer


def make_writer(policy: PolicyConfig, tool_role: str = "tool") -> Writer:
    """Load a policy here, or connect to the server that has it.

    Raises:
        ModelError: the model or adapter cannot be loaded.
    """
    if policy.base_url:
        from slmsearch.generate.openai_writer import OpenAIWriter

        key = policy.api_key.get_secret_value() if policy.api_key else "none"
        return OpenAIWriter(policy.model, policy.base_url, key, tool_role)
    from slmsearch.generate.torch_writer import TorchWriter

    model, tokenizer = load_model(policy)
    return TorchWriter(model.eval(), tokenizer, tool_role)


def load_model(policy: PolicyConfig) -> tuple[Any, Any]:
    """Load model and tokenizer, with the policy's adapter merged into the weights if it names one.

    Raises:
        ModelError: a path is missing or damaged, a Hub id cannot be fetched, or the adapter belongs to another base.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check_local(policy.model, "policy.model", "config.json")
    device = policy.device if policy.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        tokenizer = AutoTokenizer.from_pretrained(policy.model, revision=policy.revision)
        model: Any = AutoModelForCausalLM.from_pretrained(policy.model, revision=policy.revision, dtype=policy.dtype)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load model {policy.model!r}: {first_line(error)}; give a path or Hub id in policy.model") from error
    if policy.adapter:
        model = merge_adapter(model, policy.adapter)
    return model.to(device), tokenizer


def merge_adapter(model: Any, adapter: str) -> Any:
    """Merge a LoRA adapter of safetensors into a model.

    Raises:
        ModelError: the adapter is missing, damaged, or does not fit.
    """
    from peft import PeftModel
    from safetensors import SafetensorError

    check_local(adapter, "policy.adapter", "adapter_model.safetensors")
    try:
        return PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"cannot load adapter {adapter!r}: {first_line(error)}; was it trained on this base model?") from error


def check_local(name: str, setting: str, file: str) -> None:
    """Refuse a name that is meant as a path (absolute, `./`, `data/...`) but holds no such file.

    Raises:
        ModelError: the path or the file in it is missing.
    """
    path = Path(name)
    looks_local = path.is_absolute() or name.startswith((".", "data/")) or path.exists() or name.count("/") > 1
    if looks_local and not (path / file).is_file():
        raise ModelError(f"no model at {name!r} ({file} is missing): mend {setting}, or make tiny-searcher with `slmsearch bootstrap`")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class where it has none."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
