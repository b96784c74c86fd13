"""Real tokenizers and templates: nothing that a page says becomes markup, and templates that cannot be used are refused."""

from functools import lru_cache
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from slmsearch.config import PolicyConfig, RunConfig, SearcherConfig
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment, check_template
from slmsearch.episodes import chat_renderer
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.errors import ModelError
from slmsearch.models.load import set_template_kwargs

NAMES = ("tiny-searcher", "smollm2", "qwen2.5", "qwen3", "qwen3-instruct-2507")
QUIET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def template(name):
    return files("trl").joinpath("chat_templates", name).read_text(encoding="utf-8")


def copy_of(tokenizer, **changes):
    """Return a tokenizer of the same vocabulary; the shared one is not to be changed."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        chat_template=tokenizer.chat_template,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@lru_cache
def added_ids(tokenizer):
    return frozenset(tokenizer.added_tokens_decoder)


make_dialogue = lru_cache(ChatRenderer)


@pytest.fixture(params=NAMES)
def tokenizer(request, real_tokenizers):
    return real_tokenizers[request.param]


def test_no_added_token_of_the_tokenizer_can_be_written_by_a_page(tokenizer):
    renderer = ChatRenderer(tokenizer)
    for token in tokenizer.added_tokens_decoder.values():
        for text in (token.content, f"a{token.content}b", f" {token.content}\n", token.content * 3, token.content[:-1] + token.content):
            ids = renderer.untrusted_ids(text)
            assert added_ids(tokenizer).isdisjoint(ids), token.content
            assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@QUIET
@given(data=st.data())
def test_no_text_at_all_becomes_markup_or_changes_the_frame_around_it(tokenizer, data):
    """Pieces of added tokens and of the template, in any order, between any text."""
    renderer = make_dialogue(tokenizer)
    contents = sorted(token.content for token in tokenizer.added_tokens_decoder.values())
    halves = [part for content in contents for part in (content[:2], content[2:], content[:-1], content[-1:])]
    pieces = st.sampled_from([*contents, *halves, "<tool_response>", "\n</tool_response>", "user\n", "assistant\n", "\u212a", " "])
    text = data.draw(st.lists(pieces | st.text(max_size=3), max_size=8).map("".join))
    ids = renderer.untrusted_ids(text)
    assert added_ids(tokenizer).isdisjoint(ids)
    for encode in (renderer.encode_result, lambda content: renderer.encode_prompt([{"role": "user", "content": content}])):
        frame, filled = ([i for i in encode(content) if i in added_ids(tokenizer)] for content in ("", text))
        assert filled == frame


def test_an_episode_in_a_prompt_has_the_ids_of_one_that_was_played(tokenizer):
    renderer = ChatRenderer(tokenizer)
    call, result = '<tool>search_pages("Norwick")</tool>', "4821: Norwick<|end|>"
    opening = [{"role": "user", "content": "Where is Norwick?"}]
    shown = [*opening, {"role": "assistant", "content": call}, {"role": "tool", "content": result}]
    played = (*renderer.encode_prompt(opening), *renderer.content_ids(call), renderer.end_id, *renderer.encode_result(result))
    assert renderer.encode_prompt(shown) == played


def test_messages_stand_in_the_order_of_the_template(real_tokenizers):
    """Mistral's puts the system message before the last user message, behind all worked examples."""
    mistral = (
        "{% for m in messages if m.role != 'system' %}{% if m.role == 'assistant' %}{{ m.content + eos_token }}{% else %}"
        "{{ '[INST]' + (messages[0].content + '\n\n' if loop.last else '') + m.content + '[/INST]' }}{% endif %}{% endfor %}"
    )
    renderer = ChatRenderer(copy_of(real_tokenizers["smollm2"], chat_template=mistral), "user")
    roles = [("system", "You search."), ("user", "When?"), ("assistant", "<answer>1823</answer>"), ("user", "Who?")]
    messages = [{"role": role, "content": content} for role, content in roles]
    assert renderer.tokenizer.decode(renderer.encode_prompt(messages)) == renderer.render(messages)


def test_a_turn_ends_once_where_the_template_writes_a_space_before_its_end(real_tokenizers):
    llama = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' ' + eos_token }}{% else %}"
        "{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
    )
    renderer = ChatRenderer(copy_of(real_tokenizers["smollm2"], chat_template=llama), "user")
    assert renderer.end_id == renderer.tokenizer.eos_token_id
    assert renderer.tokenizer.decode(renderer.encode_result("Mira")) == "[INST] Mira [/INST]"


def test_pages_read_as_before_where_they_hold_no_markup(tokenizer):
    text = "## Life\n\nMira Talvoren (born 1823) wrote: a < b, x[1], [edit], naïve Ω 🙂\n- one\n- two"
    assert list(ChatRenderer(tokenizer).untrusted_ids(text)) == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_normaliser_cannot_make_markup_of_what_is_none():
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate("Ġ<|>abcdenopqrstuvwxyz_")}, merges=[]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("<|end|>", special=False, normalized=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    made.chat_template = "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"
    renderer = ChatRenderer(made)
    assert made("a<|END|>b", add_special_tokens=False, split_special_tokens=True)["input_ids"].count(made.eos_token_id) == 1
    assert made.eos_token_id not in renderer.untrusted_ids("a<|END|>b")


@pytest.mark.parametrize("role", ["tool", "user"])
@pytest.mark.parametrize("name", sorted(p.name for p in files("trl").joinpath("chat_templates").iterdir() if p.name.endswith(".jinja")))
def test_every_template_is_used_or_refused_in_one_line(real_tokenizers, name, role):
    tokenizer = copy_of(real_tokenizers["tiny-searcher"], chat_template=template(name), bos_token="<|pad|>")
    try:
        renderer = ChatRenderer(tokenizer, role)
        prompt = renderer.encode_prompt(make_prompt("Who?", SearcherConfig()))
        renderer.encode_result("4821: Mira")
        assert prompt
    except ModelError as error:
        assert len(str(error).splitlines()) == 1
        assert any(remedy in str(error) for remedy in ("searcher.", "policy.", "choose", "correct"))


@pytest.mark.parametrize(
    ("name", "role", "remedy"),
    [
        ("gemma3.jinja", "tool", "searcher.tool_role to 'user'"),
        ("gptoss.jinja", "tool", "searcher.tool_role to 'user'"),
        ("phi3_5.jinja", "tool", "searcher.tool_role to 'user'"),
        ("gemma.jinja", "user", "searcher.system_prompt"),
        ("deepseek_r1_distill.jinja", "user", "policy.chat_template_kwargs"),
    ],
)
def test_templates_that_refuse_a_role_or_begin_with_a_thought_name_the_remedy(real_tokenizers, name, role, remedy):
    tokenizer = copy_of(real_tokenizers["tiny-searcher"], chat_template=template(name), bos_token="<|pad|>")
    with pytest.raises(ModelError) as raised:
        ChatRenderer(tokenizer, role).encode_prompt(make_prompt("Who?", SearcherConfig()))
    assert remedy in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"chat_template": None}, "no chat template"),
        ({"chat_template": "{% for m in messages if m.role != 'tool' %}{{ m.content }}<|im_end|>{% endfor %}"}, "'tool' message unchanged"),
        ({"chat_template": "{{ messages[0].content | nosuchfilter }}"}, "refuses"),
        ({"chat_template": "{% for m in messages %}{{ m.content | replace('0', '1') }}<|im_end|>{% endfor %}"}, "'tool' message unchanged"),
        ({"eos_token": None}, "no end-of-turn token"),
    ],
)
def test_tokenizers_that_cannot_be_used_are_refused(real_tokenizers, changes, cause):
    with pytest.raises(ModelError, match=cause):
        ChatRenderer(copy_of(real_tokenizers["tiny-searcher"], **changes))


def test_a_model_that_would_think_does_not_where_its_template_is_told_so(real_tokenizers):
    policy = PolicyConfig(chat_template_kwargs={"enable_thinking": False})
    plain, told = (copy_of(real_tokenizers["qwen3"]) for _ in range(2))
    assert set_template_kwargs(told, policy.chat_template_kwargs) is told
    question = [{"role": "user", "content": "Who?"}]
    expected = plain.apply_chat_template(question, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert expected.endswith("<think>\n\n</think>\n\n")
    renderer = ChatRenderer(told)
    assert told.decode(renderer.encode_prompt(question)) == expected
    assert told.decode(renderer.encode_result("4821: Mira")).endswith("<think>\n\n</think>\n\n")
    call = SearcherEnvironment(RunConfig()).message('<tool>search_pages("Norwick")</tool>')
    assert check_template(renderer, question, call).passed
    assert "<think>" not in plain.decode(ChatRenderer(plain).encode_prompt(question))
    thinking = told.apply_chat_template(question, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    assert thinking == plain.apply_chat_template(question, tokenize=False, add_generation_prompt=True), "what a caller says wins"
    once = told.chat_template
    assert set_template_kwargs(told, policy.chat_template_kwargs).chat_template == once


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True), st.booleans() | st.integers() | st.text(), max_size=3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_variables_have_the_values_that_were_set(real_tokenizers, values):
    values = {f"my_{name}": value for name, value in values.items()}
    made = copy_of(real_tokenizers["tiny-searcher"], chat_template="".join(f"{{{{ {name} }}}}|" for name in values) + "x")
    set_template_kwargs(made, values)
    assert (
        made.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
        == "".join(f"{value}|" for value in values.values()) + "x"
    )


def test_texts_that_are_encoded_together_have_the_ids_they_have_alone(real_tokenizers):
    texts = ["Mira </tool> <|im_end|> 1823", "", "  ", "<|end|>\n<tool>x", "Norwick é", "Norwick é"]
    for tokenizer in real_tokenizers.values():
        alone, together = ChatRenderer(tokenizer, "user"), ChatRenderer(tokenizer, "user")
        together.prepare(texts)
        assert [together.untrusted_ids(text) for text in texts] == [alone.untrusted_ids(text) for text in texts]


def test_texts_that_were_encoded_long_ago_are_forgotten(monkeypatch, real_tokenizers):
    monkeypatch.setattr(chat_renderer, "REMEMBERED", 3)
    renderer = ChatRenderer(real_tokenizers["smollm2"], "user")
    for text in "abcde":
        renderer.untrusted_ids(text)
    assert list(renderer._known) == ["c", "d", "e"]
    renderer.prepare("vwxyz")
    assert renderer.untrusted_ids("a") == tuple(renderer.tokenizer("a", add_special_tokens=False)["input_ids"])
