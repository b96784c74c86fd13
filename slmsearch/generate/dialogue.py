"""Chat templates to token ids, piece by piece.

Template text and contents are tokenised apart: special tokens written inside a question or a tool result stay plain text,
and the ids between two turns depend on nothing the policy sampled. Works with every template that prints contents
unchanged; `Dialogue` checks that when it is made.
"""

from collections.abc import Sequence
from typing import Any

from slmsearch.errors import ModelError
from slmsearch.generate.writer import Message

_MARK = "\u2063{}\u2063"
"""Invisible separators around a number stand for a content while the template is rendered."""


class Dialogue:
    """Encodes prompts and the context between turns with one tokenizer's chat template."""

    def __init__(self, tokenizer: Any, tool_role: str = "tool") -> None:
        """Check the template once.

        Args:
            tokenizer: a fast Hugging Face tokenizer with a chat template.
            tool_role: role under which tool results are rendered.

        Raises:
            ModelError: there is no template, or it does not print contents unchanged and in order.
        """
        if not tokenizer.chat_template:
            raise ModelError("the model's tokenizer has no chat template: choose an instruct model or set tokenizer.chat_template")
        self.tokenizer = tokenizer
        self.tool_role = tool_role
        self.end_id: int = tokenizer.eos_token_id
        self._between = self._render_between()

    def encode_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Encode the opening messages, up to where the policy begins to write."""
        marked = [{"role": m["role"], "content": _MARK.format(i)} for i, m in enumerate(messages)]
        text = self._render(marked)
        ids: list[int] = []
        for i, message in enumerate(messages):
            before, mark, after = text.partition(_MARK.format(i))
            if not mark:  # this template leaves the message out, as tiny-searcher's does with the system message
                continue
            ids += self._template_ids(before) + self.content_ids(message["content"])
            text = after
        return (*ids, *self._template_ids(text))

    def encode_result(self, result: str) -> tuple[int, ...]:
        """Encode what stands between the policy's end-of-turn token and its next turn."""
        before, after = self._between
        return (*self._template_ids(before), *self.content_ids(result), *self._template_ids(after))

    def content_ids(self, text: str) -> list[int]:
        """Encode text in which special tokens have no meaning."""
        if not text:
            return []
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decode sampled ids to text, without special tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _template_ids(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _render(self, messages: Sequence[Message]) -> str:
        text: str = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return text

    def _render_between(self) -> tuple[str, str]:
        question, turn, result = (_MARK.format(i) for i in range(3))
        text = self._render(
            [
                {"role": "user", "content": question},
                {"role": "assistant", "content": turn},
                {"role": self.tool_role, "content": result},
            ]
        )
        tail = text.partition(turn)[2].removeprefix(self.tokenizer.eos_token)
        before, mark, after = tail.partition(result)
        if not (question in text and turn in text and mark):
            raise ModelError(
                f"the chat template does not print a {self.tool_role!r} message unchanged: "
                "set searcher.tool_role to 'user' or mend the template"
            )
        return before, after
