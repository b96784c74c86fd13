"""The tokenizers that other tests call real are the published ones, token for token."""

import pytest

SIZES = {"smollm2": 49152, "qwen2.5": 151669, "qwen3": 151669, "qwen3-instruct-2507": 151669}
KNOWN = {
    # As the published tokenizers encode them.
    "qwen2.5": ("Hello, world! 2024", [9707, 11, 1879, 0, 220, 17, 15, 17, 19]),
    "smollm2": ("Hello, world! 2024", [19556, 28, 905, 17, 216, 34, 32, 34, 36]),
}


@pytest.mark.parametrize("name", SIZES)
def test_vocabulary_ids_and_special_tokens_are_those_of_the_published_model(real_tokenizers, name):
    tokenizer = real_tokenizers[name]
    assert len(tokenizer) == SIZES[name]
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == tokenizer.eos_token_id == (2 if name == "smollm2" else 151645)
    if name in KNOWN:
        text, ids = KNOWN[name]
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", SIZES)
def test_templates_open_and_close_turns_with_one_token_each(real_tokenizers, name):
    tokenizer = real_tokenizers[name]
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<answer>1</answer>"}, {"role": "tool", "content": "p"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    opened = ids.count(tokenizer.convert_tokens_to_ids("<|im_start|>"))
    assert opened - 1 == ids.count(tokenizer.eos_token_id)
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n")


def test_numbers_are_cut_as_the_published_tokenizer_cuts_them(real_tokenizers):
    assert real_tokenizers["smollm2"].tokenize("x\n\n5  7") == ["x", "ĊĊ", "5", "ĠĠ", "7"]
