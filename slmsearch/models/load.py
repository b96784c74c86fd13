"""Load models, tokenizers and adapters."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slmsearch.config import PolicyConfig
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from slmsearch.models import convert
from slmsearch.models.hashes import is_base, read_base
from slmsearch.models.known import is_gguf, split_commit

PROBED = 24
"""Number of tokens of the text on which a merged adapter is checked."""
MERGED_WITHIN = 1e-3
"""Largest mean difference of log-probabilities in nats, weighted by probability: float32 rounds those of unlikely tokens by more."""
KEPT = "it can only be used beside bfloat16 weights (policy.dtype)"


def load_model(policy: PolicyConfig, keep_adapter: bool = False) -> tuple[Any, Any]:
    """Load model and tokenizer, with the policy's adapter if it names one and its variables set in the chat template.

    An adapter is merged into float32 weights, and kept beside all others: merging into bfloat16 weights would round most of a young one
    away, into 4-bit ones nearly all of it, and an evaluation would not measure the trained policy.

    `keep_adapter` keeps it beside float32 weights, too, so that it can be disabled.

    Raises:
        ModelError: a path is missing or damaged, a Hub id cannot be fetched, or the adapter belongs to another base.
    """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    from slmsearch.models.attention import use_attention

    if is_gguf(policy.model):
        raise ModelError(
            f"{policy.model} is a GGUF, which llama.cpp plays and nobody trains: give the model it was made of in policy.model"
        )
    device = policy.device if policy.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(policy)
    quantised: dict[str, object] = {}
    if policy.load_in_4bit:  # QLoRA (Dettmers et al. 2023): NF4, scales quantised too, products in bfloat16; on the CPU in float32
        compute = torch.float32 if device == "cpu" else torch.bfloat16
        settings = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=compute
        )
        quantised = {"quantization_config": settings, "device_map": device}
    model = _load_pretrained(AutoModelForCausalLM, policy.model, dtype=policy.dtype, **quantised)
    use_attention(model)
    if quantised:
        keep_packing(model)
    if policy.adapter:
        check_base(policy, tokenizer)
        model = merge_adapter(model, policy.adapter, keep=keep_adapter or policy.load_in_4bit or model.dtype != torch.float32)
    return (model if quantised else model.to(device)), tokenizer


def set_template_kwargs(tokenizer: Any, kwargs: Mapping[str, bool | float | str]) -> Any:
    """Set variables of a tokenizer's chat template, in the template itself; arguments of a rendering take precedence.

    Every rendering has them, also one from a copy of the tokenizer.

    Raises:
        ModelError: the tokenizer has no single chat template.
    """
    if not kwargs:
        return tokenizer
    if not isinstance(tokenizer.chat_template, str):
        raise ModelError("policy.chat_template_kwargs is set, and the model's tokenizer has no single chat template: unset it")
    literals = {name: json.dumps(value, ensure_ascii=False) for name, value in kwargs.items()}
    prefix = "".join(
        f"{{%- if {name} is not defined %}}{{%- set {name} = {literal} %}}{{%- endif %}}" for name, literal in literals.items()
    )
    if not tokenizer.chat_template.startswith(prefix):
        tokenizer.chat_template = prefix + tokenizer.chat_template
    return tokenizer


def load_tokenizer(policy: PolicyConfig) -> Any:
    """Load the tokenizer of a policy's model.

    Raises:
        ModelError: as for `load_model`.
    """
    from transformers import AutoTokenizer

    check_local(policy.model, "policy.model", "config.json")
    source = policy.model
    if is_gguf(source):
        if not (Path(source).parent / "tokenizer.json").is_file():
            return set_template_kwargs(convert.load_tokenizer(Path(source)), policy.chat_template_kwargs)
        source = str(Path(source).parent)
    return set_template_kwargs(_load_pretrained(AutoTokenizer, source), policy.chat_template_kwargs)


def _load_pretrained(kind: Any, model: str, **settings: object) -> Any:
    try:
        name, revision = split_commit(model)
        return kind.from_pretrained(name, revision=revision, **settings)
    except Exception as error:  # transformers, safetensors, torch and the Hub raise errors of their own
        raise ModelError(f"cannot load model {model!r}: {cause_of(error)}; give a path or Hub id in policy.model") from error


def keep_packing(model: Any) -> None:
    """Keep 4-bit layers in their packing on a processor with AVX512-BF16.

    bitsandbytes repacks them for inference the first time they run without gradient, and never back: its kernel for that has
    no backward pass, so that a policy that has sampled once would learn without the gradient through its layers.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def load_adapter(model: Any, adapter: str, trainable: bool = False) -> Any:
    """Put the LoRA adapter of a directory (safetensors) on its base, to be trained further if `trainable`; return PEFT's model.

    Raises:
        ModelError: the adapter is missing, damaged, not a LoRA, or does not fit.
    """
    from peft import PeftModel
    from peft.utils import load_peft_weights, set_peft_model_state_dict
    from safetensors import SafetensorError

    check_local(adapter, "policy.adapter", "adapter_model.safetensors")
    _check_adapter_config(adapter)
    try:
        adapted = PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
        # `from_pretrained` keeps to itself what it had no place for, and what it did not find.
        placed: Any = set_peft_model_state_dict(adapted, load_peft_weights(adapter, device="cpu"))
    except (OSError, ValueError, TypeError, RuntimeError, LookupError, SafetensorError) as error:
        raise ModelError(f"cannot load adapter {adapter!r}: {cause_of(error)}; was it trained on this base model?") from error
    learnt = {name for name, weight in adapted.named_parameters() if weight.requires_grad or "lora_" in name}
    for lacks, odd in (("model", placed.unexpected_keys), ("adapter", sorted(learnt.intersection(placed.missing_keys)))):
        if odd:
            where = f"the {lacks} has no {odd[0]} ({len(odd)} in all)"
            raise ModelError(f"cannot load adapter {adapter!r}: {where}; was it trained on this base model?")
    for weight in adapted.parameters():
        if weight.requires_grad:  # steps are smaller than bfloat16 can represent
            weight.data = weight.data.float()
    return adapted


def check_base(policy: PolicyConfig, tokenizer: Any) -> None:
    """Check that an adapter was trained on the policy's model, and with its tokenizer.

    Raises:
        ModelError: the adapter names another base, or brings another vocabulary or chat template.
    """
    from transformers import AutoTokenizer

    adapter = policy.adapter or ""
    named = read_base(adapter)
    if named and not is_base(named, policy.model):
        raise ModelError(
            f"adapter {adapter!r} was trained on {named}, and policy.model is {policy.model}: give its base, or, if that is what this"
            " model is, write its name into base_model_name_or_path of adapter_config.json"
        )
    if not any((Path(adapter) / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")):
        return
    own = _load_pretrained(AutoTokenizer, adapter)
    template = own.chat_template
    for what, differs in (
        ("vocabulary", own.get_vocab() != tokenizer.get_vocab()),
        ("chat template", isinstance(template, str) and not str(tokenizer.chat_template).endswith(template)),
    ):
        if differs:
            raise ModelError(
                f"adapter {adapter!r} brings another {what} than {policy.model} has: put its tokenizer into a copy of the model and give"
                " that as policy.model, or delete the files from the adapter"
            )


def _check_adapter_config(adapter: str) -> None:
    """Check that an adapter is a LoRA without regular expressions in its settings.

    PEFT matches them with the name of every module, and a hostile one takes years and cannot be interrupted.
    """
    path = Path(adapter) / "adapter_config.json"
    if not path.is_file():
        return  # a name on the Hub, or PEFT says that it is missing
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        patterns = [*dict(config.get("rank_pattern") or {}), *dict(config.get("alpha_pattern") or {})]
        for name in ("target_modules", "exclude_modules", "layers_pattern", "target_parameters"):
            value = config.get(name) or []
            patterns += [value] if isinstance(value, str) else [str(one) for one in value]
        kind, first = config["peft_type"], str(config.get("init_lora_weights")).casefold()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"cannot load adapter {adapter!r}: {path.name} is not what PEFT writes ({cause_of(error)})") from error
    if kind != "LORA":
        raise ModelError(f"cannot load adapter {adapter!r}: {str(kind)[:40]!r} is not LoRA; only LoRA adapters are supported")
    if first.startswith(("pissa", "olora", "corda", "loftq")):
        raise ModelError(
            f"cannot load adapter {adapter!r}: PEFT changes the base's weights whenever it loads one that began as {first[:20]}; save it"
            " again with PEFT's path_initial_model_for_weight_conversion"
        )
    odd = next((pattern for pattern in patterns if not re.fullmatch(r"[\w.-]+", pattern)), None)
    if odd is not None:
        raise ModelError(f"cannot load adapter {adapter!r}: list its modules by name in {path.name} instead of the pattern {odd[:60]!r}")


def merge_adapter(model: Any, adapter: str, keep: bool = False) -> Any:
    """Merge a LoRA adapter into a model; `keep` keeps it beside the weights instead, which is slower and rounds nothing.

    The merged model writes what the adapter was trained to: its log-probabilities of a text are those with the adapter beside it.

    Raises:
        ModelError: as `load_adapter`; or the adapter cannot be merged exactly.
    """
    adapted = load_adapter(model, adapter)
    if keep:
        return adapted
    wanted = _probe(adapted)
    _untie(adapted.get_base_model())
    try:
        merged = adapted.merge_and_unload()
    except (ValueError, RuntimeError, NotImplementedError) as error:
        raise ModelError(f"cannot merge adapter {adapter!r}: {cause_of(error)}; {KEPT}") from error
    off = float(((_probe(merged) - wanted).abs() * wanted.exp()).sum(-1).max())
    if not off <= MERGED_WITHIN:
        raise ModelError(f"cannot merge adapter {adapter!r}: log-probabilities change by {off:.2g}; {KEPT}")
    return merged


def _probe(model: Any) -> Any:
    """Return the log-probabilities of all tokens (T, V) after the beginnings of a text of T tokens, the vocabulary's first ones."""
    import torch

    ids = torch.arange(min(PROBED, model.config.get_text_config().vocab_size), device=model.device)[None]
    was_training = model.training
    with torch.no_grad():
        found = model.eval()(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
    model.train(was_training)
    return found


def _untie(model: Any) -> None:
    """Give the head weights of its own where an adapter changes it, or the embedding that it shares them with.

    PEFT 0.21 merges the change of either into the weights of both, and twice where its settings ask it to tie the adapters as well.
    """
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if ends[1] is not None and ends[0].weight is ends[1].weight and any(isinstance(end, BaseTunerLayer) for end in ends):
        head: Any = ends[1].get_base_layer() if isinstance(ends[1], BaseTunerLayer) else ends[1]
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=head.weight.requires_grad)
        model.config.tie_word_embeddings = False


def check_local(name: str, setting: str, file: str) -> None:
    """Check that a name that is meant as a path (absolute, `./`, `data/...`) exists and holds the file.

    Raises:
        ModelError: the path or the file in it is missing.
    """
    path = Path(name)
    if is_gguf(name):
        if path.is_file():
            return
        raise ModelError(f"no file {name}: correct {setting}")
    looks_local = path.is_absolute() or name.startswith((".", "data/")) or path.exists() or name.count("/") > 1
    if looks_local and not (path / file).is_file():
        raise ModelError(f"no model at {name!r} ({file} is missing): correct {setting}; `slmsearch models list` shows what is here")


def has_bf16() -> bool:
    """Return whether this processor multiplies bfloat16 itself; otherwise bfloat16 is slower than float32."""
    import torch

    known = torch.cpu.get_capabilities()
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
