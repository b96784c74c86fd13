"""Chat templates to token ids, piece by piece.

Template text and contents are tokenised separately: special and added tokens written inside a question or a tool result stay plain text,
and the ids between two turns do not depend on sampled text. Every template works that prints contents unchanged; `ChatRenderer` checks
this in its constructor.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any

from jinja2 import TemplateError

from slmsearch.episodes.sampler import Message
from slmsearch.episodes.thinking import THINK, after_thinking
from slmsearch.errors import ContextError, ModelError
from slmsearch.foreign import cause_of

_MARK = "\u2063{}\u2063"
"""Invisible separators around a number stand for a content while the template is rendered."""
_NAME, _PARAMETER, _VALUE = "zqname", "zqparameter", "zqvalue"
"""Words that stand for a call's tool, parameter and value while the template is rendered."""
_TAG = re.compile(r"<[^<>\s]+>|\[/?\w+\]")
"""Pattern of markup in a template's own text."""
CUT = "\n(cut off: no room is left for the rest)"
"""End of a tool result that was shortened."""
MIN_SHOWN = 16
"""Smallest number of tokens of a tool result that is shown; with room for fewer the episode ends."""
REMEMBERED = 4096
"""Number of texts whose ids are kept."""
RESERVED = 16
"""Tokens that a shortened tool result leaves for the turn: enough for an answer."""


class ChatRenderer:
    """An encoder of prompts and of the context between turns, with one tokenizer's chat template."""

    def __init__(self, tokenizer: Any, tool_role: str = "tool") -> None:
        """Check the template once.

        Args:
            tokenizer: a fast Hugging Face tokenizer with a chat template.
            tool_role: role under which tool results are rendered.

        Raises:
            ModelError: there is no template or no end-of-turn token, the template refuses a role, does not print contents unchanged and
                in order, or begins every turn inside `<think>`.
        """
        if not tokenizer.chat_template:
            raise ModelError("the model's tokenizer has no chat template: choose an instruct model or set tokenizer.chat_template")
        if tokenizer.eos_token is None:
            raise ModelError("the model's tokenizer has no end-of-turn token (eos_token): choose an instruct model")
        self.tokenizer = tokenizer
        self.tool_role = tool_role
        closing, self._between = self._render_between()
        self.end_id: int = closing
        """Token with which the template ends an assistant message."""
        self.end_ids = {closing, tokenizer.eos_token_id}
        """Tokens with which the policy ends a turn."""
        before, after = self._between
        self._between_ids = self._encode(before), self._encode(after)
        self._known: dict[str, tuple[int, ...]] = {}
        """Ids of texts, the oldest first; the same results occur again and again."""
        own = set(_TAG.findall("".join(self._between)))
        added = {token.content for token in tokenizer.added_tokens_decoder.values()}
        self._markers = [marker for marker in sorted(own | added) if len(marker) > 1 and marker.strip()]
        self._added = frozenset(tokenizer.added_tokens_decoder)

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Encode the opening messages, up to the first position of the policy's text.

        Raises:
            ModelError: the template refuses a role, does not print the last message, or is given tools and declares none.
        """
        marked = [{"role": m["role"], "content": _MARK.format(i), "tools": m.get("tools", "")} for i, m in enumerate(messages)]
        text = self.render(marked)
        if messages and messages[0].get("tools"):
            self._call_form  # noqa: B018  # refuses a template that leaves the tools out
        if messages and _MARK.format(len(messages) - 1) not in text:
            raise ModelError(f"the chat template does not print a {messages[-1]['role']!r} message unchanged: choose an instruct model")
        # In the order of the text: tiny-searcher's template leaves the system message out, Mistral's puts it before the last user message.
        first, *rest = re.split(_MARK.format(r"(\d+)"), text)
        ids = self._encode(first)
        for message, after in zip((messages[int(number)] for number in rest[::2]), rest[1::2], strict=True):
            own = message["role"] == "assistant"
            ids += [*(self.message_ids(message) if own else self.untrusted_ids(message["content"])), *self._encode(after)]
        return tuple(ids)

    def encode_prompts(self, prompts: Sequence[Sequence[Message]]) -> list[tuple[int, ...]]:
        """Encode openings as `encode_prompt` does, equal ones once."""
        self.prepare(message["content"] for prompt in prompts for message in prompt)
        keys = [tuple(tuple(sorted(message.items())) for message in prompt) for prompt in prompts]
        ids = {key: self.encode_prompt(prompt) for key, prompt in dict(zip(keys, prompts, strict=True)).items()}
        return [ids[key] for key in keys]

    def encode_result(self, result: str) -> tuple[int, ...]:
        """Encode the text between an end-of-turn token and the policy's next turn."""
        before, after = self._between_ids
        return (*before, *self.untrusted_ids(result), *after)

    def encode_context(self, last_id: int | None, result: str | None, room: int) -> tuple[tuple[int, ...], str | None]:
        """Encode the context of a turn.

        Args:
            last_id: last id of the previous turn; if it is not the end-of-turn token, the context begins with that token.
            result: the tool result; None before the first turn, which has no context.
            room: tokens that context and turn may have together.

        Returns:
            The ids, and the result as shown if it was shortened to leave `RESERVED` tokens for the turn. If fewer than `MIN_SHOWN` of its
        tokens could be shown, it is not shortened, and the context may be longer than `room`.
        """
        if result is None:
            return (), None
        closing = () if last_id == self.end_id else (self.end_id,)
        before, after = self._between_ids
        content = self.untrusted_ids(result)
        free = room - RESERVED - len(closing) - len(before) - len(after)
        if len(content) <= free:
            return (*closing, *before, *content, *after), None
        note = self.untrusted_ids(CUT)
        kept = content[: max(0, free - len(note))]
        if len(kept) < MIN_SHOWN:
            return (*closing, *before, *content, *after), None
        shown: str = self.tokenizer.decode(kept, clean_up_tokenization_spaces=False) + CUT
        return (*closing, *before, *kept, *note, *after), shown

    def untrusted_ids(self, text: str) -> tuple[int, ...]:
        """Encode text of a question or a tool result; no part of it becomes a special or added token, or the template's own markup."""
        if text not in self._known:
            self.prepare([text])
        return self._known[text]

    def prepare(self, texts: Iterable[str]) -> None:
        """Encode untrusted texts together on all cores, and keep their ids for later calls."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        pieces = [self._pieces(text) for text in new]
        flat = list(chain(*pieces))
        encoded = iter(self.tokenizer(flat, add_special_tokens=False, split_special_tokens=True)["input_ids"] if flat else [])
        made = {
            text: tuple(i for piece in each for i in self._plain_ids(piece, next(encoded))) for text, each in zip(new, pieces, strict=True)
        }
        for text in list(self._known)[: max(0, len(self._known) + len(made) - REMEMBERED)]:
            del self._known[text]
        self._known |= made

    def _pieces(self, text: str) -> list[str]:
        """Cut a text behind the first character of every marker, so that no piece holds a whole marker."""
        cuts = {0, len(text)}
        for marker in self._markers:
            start = text.find(marker)
            while start >= 0:
                cuts.add(start + 1)
                start = text.find(marker, start + 1)
        return [text[start:end] for start, end in pairwise(sorted(cuts))]

    def content_ids(self, text: str) -> list[int]:
        """Encode an assistant message as the policy would write it: added tokens are used, special ones are not."""
        return self._encode(text, split_special_tokens=True)

    def message_ids(self, message: Message) -> list[int]:
        """Encode a message of the policy as it would write it, a call in the form of the template; a `ModelError` if that has none."""
        if "call" not in message:
            return self.content_ids(message["content"])
        call = json.loads(message["call"])
        ((parameter, value),) = call["arguments"].items()
        before, after = self._call_form.replace(_NAME, call["name"]).replace(_PARAMETER, parameter).split(_VALUE)
        if before.endswith(("'", '"')):  # a string of JSON, or of Python
            value = json.dumps(value, ensure_ascii=False)[1:-1]
            value = value if before.endswith('"') else value.replace('\\"', '"').replace("'", "\\'")
        return self._encode(f"{before}{value}{after}", split_special_tokens=any(marker in value for marker in self._markers))

    @cached_property
    def _call_form(self) -> str:
        """Text that the template writes for a call, with marks for the tool, its parameter and the value."""
        asked, said = {"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK.format(0)}
        call = {**said, "content": "", "call": json.dumps({"name": _NAME, "arguments": {_PARAMETER: _VALUE}})}
        shown = self.render([asked, call], opens=False)
        before, _, after = self.render([asked, said], opens=False).partition(said["content"])
        form = shown.removeprefix(before).removesuffix(after)
        declared = self.render([{**asked, "tools": json.dumps([{"type": "function", "function": {"name": _NAME, "parameters": {}}}])}])
        whole = shown.startswith(before) and shown.endswith(after) and all(form.count(mark) == 1 for mark in (_NAME, _PARAMETER, _VALUE))
        if not (whole and _NAME in declared):
            raise ModelError("the chat template knows no tools: set searcher.format to tags, or choose a model whose template does")
        return form

    def decode(self, ids: Sequence[int]) -> str:
        """Decode sampled ids to text, without special tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def completing_ids(self, stop: Sequence[str]) -> frozenset[int]:
        """Return the ids whose text holds the last character of a stop text: only these can complete one."""
        return _ids_with(self.tokenizer, frozenset(text[-1] for text in stop)) if stop else frozenset()

    def stop_length(self, ids: Sequence[int], stop: Sequence[str]) -> int | None:
        """Return how many ids of a turn complete a stop text outside of `<think>`, or None."""
        if not self.is_stopped(ids, stop):
            return None
        completing = self.completing_ids(stop)
        return next((n for n, i in enumerate(ids, 1) if i in completing and self.is_stopped(ids[:n], stop)), len(ids))

    def is_stopped(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Return whether a turn holds a stop text outside of `<think>`."""
        text = after_thinking(self.decode(ids))
        return any(mark in text for mark in stop)

    def _plain_ids(self, piece: str, ids: list[int]) -> list[int]:
        if self._added.isdisjoint(ids) or not piece.strip():
            return ids
        # A normaliser can turn other text into a marker (`<|END|>` into `<|end|>`): then every character is encoded by itself.
        # Added tokens of a single character, or of spaces alone, stay: they are no markup.
        return [i for character in piece for i in self._encode(character, split_special_tokens=True)]

    def _encode(self, text: str, **settings: Any) -> list[int]:
        if not text:
            return []
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, **settings)["input_ids"]
        return ids

    def render(self, messages: Sequence[Message], opens: bool = True) -> str:
        """Render messages, and the beginning of the policy's next turn if it `opens` one; a `ModelError` where a role is refused."""
        plain: list[dict[str, object]] = [{name: m[name] for name in ("role", "content")} for m in messages]
        for message, given in zip(messages, plain, strict=True):
            if "call" in message:
                given["tool_calls"] = [{"type": "function", "id": "call00000", "function": json.loads(message["call"])}]
        declared = {"tools": json.loads(messages[0]["tools"])} if messages and messages[0].get("tools") else {}
        try:
            text: str = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=opens, **declared)
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            roles = [message["role"] for message in messages]
            remedy = "set searcher.tool_role to 'user'" if self.tool_role != "user" else "choose another model, or correct its template"
            if "system" in roles:
                remedy = 'choose a model whose template takes a system message, or set searcher.system_prompt to ""'
            raise ModelError(f"the chat template refuses the roles {', '.join(roles)} ({cause_of(error)}): {remedy}") from error
        return text

    def _render_between(self) -> tuple[int, tuple[str, str]]:
        """Return the token that ends an assistant message, and the text between it and the next turn, before and after the result."""
        question, turn, result = (_MARK.format(i) for i in range(3))
        opening: list[Message] = [{"role": "user", "content": question}]
        text = self.render([*opening, {"role": "assistant", "content": turn}, {"role": self.tool_role, "content": result}])
        tail = text.partition(turn)[2]
        before, mark, after = tail.partition(result)
        if not (question in text and turn in text and mark):
            remedy = "set searcher.tool_role to 'user' or correct the template"
            raise ModelError(f"the chat template does not print a {self.tool_role!r} message unchanged: {remedy}")
        if after.rstrip().endswith(THINK):
            remedy = "set policy.chat_template_kwargs to {enable_thinking: false}, or choose an instruct model"
            raise ModelError(f"the chat template begins every turn with <think>: {remedy}")
        before = re.sub(rf"^\s+(?={re.escape(self.tokenizer.eos_token)})", "", before)  # Llama 2 writes a space before the end of a turn
        added = {token.content: i for i, token in self.tokenizer.added_tokens_decoder.items()}
        closing = max((token for token in added if before.startswith(token)), key=len, default="")
        return added.get(closing, self.tokenizer.eos_token_id), (before.removeprefix(closing), after)


def require_context(model: Any, tokens: int, what: str, remedy: str) -> None:
    """Check that `tokens` fit into the context of a loaded model, or of this length; a model that names no length takes any number.

    Raises:
        ContextError: the context is shorter; `remedy` names a remedy beside another model.
    """
    if tokens > (length := context_of(model)):
        raise ContextError(f"{what} has {tokens} tokens, and the model's context ends at {length}: {remedy}, or take another policy.model")


def context_of(model: Any) -> int:
    """Return the tokens of a loaded model's context, or this length; the largest number for a model that names none."""
    config = getattr(model, "config", None)
    length = model if config is None else getattr(config.get_text_config(), "max_position_embeddings", None)
    return length if isinstance(length, int) else sys.maxsize


@lru_cache(maxsize=8)
def _ids_with(tokenizer: Any, characters: frozenset[str]) -> frozenset[int]:
    """Find the ids whose text holds one of these ASCII characters, which byte-level vocabularies write as themselves."""
    return frozenset(i for token, i in tokenizer.get_vocab().items() if not characters.isdisjoint(token))
