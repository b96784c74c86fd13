"""A policy as a directory that llama.cpp, Ollama, LM Studio and Jan run: weights with the adapter merged, tokenizer, Modelfile, README."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from slmsearch.artifacts.directories import replaced_directory
from slmsearch.config import PolicyConfig
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from slmsearch.keys import content_key
from slmsearch.models.gguf_file import Quantisation, write_gguf
from slmsearch.models.hashes import model_hash
from slmsearch.models.known import is_gguf
from slmsearch.models.load import load_model
from slmsearch.processes.call import Child, release_memory

SERVED: Quantisation = "q8_0"
"""Type of the weights that a served policy has in llama.cpp: half the bytes to read for each token."""
EXPORT_VERSION = 2
"""Part of the name of files that are made once; raise it when the same model gives another file."""
FILES = "gguf"
"""Directory of such files, in the data directory; they are made again where they are missing."""
MODELFILE, README = "Modelfile", "README.md"
CONTEXT = 4096
"""Tokens of a conversation in Ollama, whose own default cuts an episode off; fewer if the model has learnt fewer."""
_CHATML = "<|im_start|>{}\n{}<|im_end|>\n"
_CHATML_FOR_OLLAMA = """TEMPLATE \"\"\"{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
\"\"\"
"""


@dataclass(frozen=True, slots=True)
class Interface:
    """Facts that a program needs to play with a model."""

    system: str
    """System message it was trained with; empty for none."""
    protocol: str
    """Its calls and their results, as text."""
    tools: Sequence[Mapping[str, object]]
    """Its tools with their schemas."""
    tool_role: str
    """Role of the messages that hold results."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A written directory."""

    file: Path
    """The GGUF."""
    same_tokens: bool
    """llama.cpp divides text into the tokens that the model has learnt; else it must be sent ids."""


def export_gguf(
    policy: PolicyConfig, out: Path, kind: Quantisation, interface: Interface, check: Callable[[Exported], None] | None = None
) -> Exported:
    """Write a policy's directory, which replaces `out` as a whole.

    Args:
        policy: model and adapter; merged in float32.
        out: directory; its name is that of the model.
        kind: type of the matrices: bf16, q8_0 or q4_k_m.
        interface: for its README and its Modelfile.
        check: plays with the directory before it replaces the earlier one, and may add to it.

    Raises:
        ModelError: the model cannot be loaded, merged or written, the directory holds it, or the disk is full.
        SlmSearchError: the error of the check; what stood there is as it was.
    """
    if policy.base_url or is_gguf(policy.model):
        raise ModelError(f"{policy.model} is no model of transformers, so no GGUF can be made of it: name a model or an adapter")
    out = out.resolve()
    for own in filter(None, (policy.model, policy.adapter)):
        if Path(own).resolve().is_relative_to(out):
            raise ModelError(f"{out} holds {own}, and would be replaced: name another directory")
    model, tokenizer = load_model(policy.model_copy(update={"dtype": "float32", "device": "cpu", "load_in_4bit": False}))
    renderer = ChatRenderer(tokenizer, interface.tool_role)  # refuses a template that episodes could not be rendered with
    file = f"{out.name}-{kind}.gguf"
    try:
        with replaced_directory(out, sealed=True) as staging:
            same = write_gguf(model, tokenizer, staging / file, kind, out.name, renderer.end_id)
            _save_tokenizer(tokenizer, staging)
            context = min(CONTEXT, model.config.get_text_config().max_position_embeddings)
            ends = sorted({tokenizer.decode([token]) for token in renderer.end_ids})
            (staging / MODELFILE).write_text(make_modelfile(file, tokenizer, interface, ends, context), encoding="utf-8")
            (staging / README).write_text(make_readme(out.name, file, interface, same, context), encoding="utf-8")
            if check is not None:
                del model
                release_memory()
                check(Exported(staging / file, same))
    except OSError as error:
        raise ModelError(f"{out} cannot be written ({cause_of(error)}); what stood there is as it was") from error
    return Exported(out / file, same)


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:  # of a full disk tokenizers raises nothing more special
        raise OSError(cause_of(error)) from error


def policy_of_llamacpp(policy: PolicyConfig, folder: Path, tool_role: str) -> PolicyConfig:
    """Return a policy's settings for llama.cpp; its file is written into `folder`, if it is not there yet.

    Raises:
        ModelError: see `export_gguf`.
    """
    if is_gguf(policy.model) or policy.base_url:
        return policy
    adapter, told = policy.adapter and model_hash(policy.adapter), policy.chat_template_kwargs
    key = content_key(model=model_hash(policy.model), adapter=adapter, kind=SERVED, template=told, version=EXPORT_VERSION)
    file = folder / key / f"{key}-{SERVED}.gguf"
    if file.is_file():
        os.utime(file.parent)  # in use, for housekeeping
    else:
        with Child() as child:  # which gives back the memory of the whole model
            child.call(export_gguf, policy, file.parent, SERVED, Interface("", "", (), tool_role))
    return policy.model_copy(update={"model": str(file), "adapter": None})


def make_modelfile(file: str, tokenizer: Any, interface: Interface, ends: Sequence[str], context: int) -> str:
    """Write what `ollama create -f` reads; a template only where the messages of an episode are ChatML.

    Of other templates Ollama recognises the usual ones itself, and gives a model none where it does not.

    Args:
        file: name of the GGUF beside it.
        tokenizer: the model's own, with its chat template.
        interface: system message and role of results. Without a system message, the one that the template adds is written.
        ends: texts of the tokens that end a turn.
        context: tokens of a conversation.
    """
    lines = [f"FROM ./{file}"]
    lines += [
        f"PARAMETER temperature 0\nPARAMETER repeat_penalty 1\nPARAMETER num_ctx {context}",
        *(f"PARAMETER stop {json.dumps(end, ensure_ascii=False)}" for end in ends),
    ]
    roles = ("user", "assistant", interface.tool_role)
    system = interface.system or _added_system(tokenizer)
    if system:
        quoted = system.replace('"""', "'''")
        lines.append(f'SYSTEM """{quoted}{" " * quoted.endswith(chr(34))}"""')
    messages = [{"role": role, "content": role} for role in ("system", *roles)]
    shown = _render(tokenizer, messages)
    if shown == "".join(_CHATML.format(m["role"], m["content"]) for m in messages) + "<|im_start|>assistant\n":
        lines.append(_CHATML_FOR_OLLAMA)
    return "\n".join(lines) + "\n"


def _render(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """Render messages and the beginning of an answer; empty where the template refuses them."""
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except TemplateError:
        return ""


def _added_system(tokenizer: Any) -> str:
    """Return the system message that a ChatML template adds to messages without one; empty if it adds none."""
    found = re.match(r"<\|im_start\|>system\n(.*?)<\|im_end\|>", _render(tokenizer, [{"role": "user", "content": "user"}]), re.DOTALL)
    return found[1] if found else ""


def make_readme(name: str, file: str, interface: Interface, same_tokens: bool, context: int) -> str:
    """Write how to run the model, and how a program plays with it."""
    lines = [
        f"# {name}",
        "",
        "```bash",
        f"llama-server --model {file} --jinja --ctx-size {context}",
        f"ollama create {name} -f {MODELFILE}",
    ]
    lines += ["```", "", "LM Studio and Jan open the file as it is.", ""]
    if not same_tokens:
        lines += [
            "**Send it token ids, not text.** llama.cpp does not know how its tokenizer divides text, and would give it other tokens than"
        ]
        lines += ["it has learnt; `slmsearch` sends ids. The tokenizer lies beside the file.", ""]
    lines += ["## System message", "", "```", interface.system or "(none)", "```", ""]
    if interface.tools:
        lines += ["## Its calls", "", interface.protocol, "", f"A result is a message of the role `{interface.tool_role}`.", ""]
        lines += ["```json", json.dumps(list(interface.tools), indent=1), "```", ""]
    return "\n".join(lines)
