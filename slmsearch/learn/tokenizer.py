"""The tokenizer of tiny-searcher and tiny-planner, trained on text of generated worlds or problems.

Byte-level BPE, so that any text can be encoded. The text is pre-split so that copying is easy for a small model: a capitalised
word never carries its leading space (a name is the same tokens at the start of a line, in a query and in an answer), numbers
fall into groups of two digits, punctuation takes the space after it, and the tool prefixes are single tokens.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from slmsearch.environments.demonstrations import TINY_SEARCHER

PAD, END, QUESTION, RESULT, TURN = "<|pad|>", "<|end|>", "<|question|>", "<|result|>", "<|turn|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + QUESTION + "{{ message['content'] }}"
    "{% elif message['role'] == 'tool' %}" + RESULT + "{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}" + TURN + "{{ message['content'] }}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + TURN + "{% endif %}"
)

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": TURN,
    "fields": {"content": {"close_pattern": END.replace("|", r"\|"), "content": "text"}},
}
"""What a server takes a turn's content to be (transformers' response templates): all of it, tool calls too. Without one,
`transformers serve` would take Qwen3's own, whose marks these turns lack."""

_PIECES = r"\p{Lu}[\p{Ll}\p{M}]*| ?\p{Ll}+|\d{2}|\d|#+ |[.,:;] | ?[^\s\p{L}\d]|\n+|\s| ?\p{L}+"


def build_tokenizer(texts: Iterable[str], whole: Sequence[str] = TINY_SEARCHER.pieces, vocabulary: int = TINY_SEARCHER.vocabulary) -> Any:
    """Train the tokenizer on what the model will read and write; return a `PreTrainedTokenizerFast` with the chat template above.

    Strings in `whole` are single tokens.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(token, special=True, normalized=False) for token in (PAD, END, QUESTION, RESULT, TURN)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(whole),
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in whole])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        response_template=RESPONSE_TEMPLATE,
        model_max_length=1024,
    )
