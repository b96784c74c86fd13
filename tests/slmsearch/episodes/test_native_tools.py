"""Tools in the form of the model's own chat template: declared there, called as it writes calls, token for token."""

from copy import copy
from importlib.resources import files
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import RunConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.world import generate_world
from slmsearch.environments.searcher.demonstrations import TitleIndex
from slmsearch.environments.searcher.parsing import ParsedTurn, parse_turn, render_answer, render_call
from slmsearch.environments.searcher.prompt import TOOLS, make_prompt
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment, check_template, check_tool_calls
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import StopReason, ToolCall
from slmsearch.episodes.sampler import Message, Sampling
from slmsearch.errors import ConfigError, ModelError
from slmsearch.evaluate.worked_examples import add_examples
from slmsearch.sampling.openai_sampler import OpenAISampler
from slmsearch.training.encoding import IGNORED, encode_demonstration

NATIVE = RunConfig().changed({"searcher.format": "native"})
KNOWING = ("qwen2.5", "qwen3-instruct-2507")
"""Real tokenizers whose template knows tools."""
TEMPLATES = sorted(file.name for file in files("trl").joinpath("chat_templates").iterdir() if file.name.endswith(".jinja"))
"""TRL's copies of the templates of real models."""
UNREAD = ("gemma4", "glm4moe")
"""Templates whose form of a call the parser does not read."""
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(lambda text: text.strip() == text)


@pytest.fixture(scope="module")
def environment() -> SearcherEnvironment:
    return SearcherEnvironment(NATIVE)


@pytest.mark.parametrize("name", KNOWING)
def test_the_prompt_is_the_templates_own(name: str, real_tokenizers: dict[str, Any], environment: SearcherEnvironment) -> None:
    tokenizer = real_tokenizers[name]
    renderer, opening = ChatRenderer(tokenizer), environment.opening("Who built Harrow Mill?")
    text = tokenizer.decode(renderer.encode_prompt(opening))
    assert all(f'"name": "{tool}"' in text for tool in TOOLS) and "<tool>" not in text
    call = environment.message('<tool>search_pages("Harrow \\"Mill\\"")</tool>')
    assert check_template(renderer, opening, call).passed
    assert check_tool_calls(renderer, environment.message).passed
    assert renderer.decode(renderer.message_ids(call)).split() == (
        ["<tool_call>", '{"name":', '"search_pages",', '"arguments":', '{"query":', '"Harrow', '\\"Mill\\""}}', "</tool_call>"]
    )


def open_renderer(name: str, real_tokenizers: dict[str, Any], environment: SearcherEnvironment) -> ChatRenderer | None:
    """Return the renderer of a real tokenizer or of a template, none where it refuses an opening in one line."""
    tokenizer = copy(real_tokenizers.get(name, real_tokenizers["qwen2.5"]))
    if name in TEMPLATES:
        tokenizer.chat_template = files("trl").joinpath("chat_templates", name).read_text(encoding="utf-8")
    try:
        renderer = ChatRenderer(tokenizer)
        renderer.encode_prompt(environment.opening("Who?"))
    except ModelError as error:
        assert "\n" not in str(error)
        return None
    return renderer


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_writes_calls_that_are_read_or_the_preflight_says_so(
    template: str, real_tokenizers: dict[str, Any], environment: SearcherEnvironment
) -> None:
    renderer = open_renderer(template, real_tokenizers, environment)
    if renderer is None:
        return
    calls = (ToolCall("search_pages", 'a "b" \\ {c}'), ToolCall("view_sections", "4821"), ToolCall("read_section", "4821:early_life"))
    written = {call: renderer.decode(renderer.message_ids(environment.message(render_call(call)))) for call in calls}
    read = all(parse_turn(text, plain=True).call == call for call, text in written.items())
    assert check_tool_calls(renderer, environment.message).passed is read is not template.startswith(UNREAD), written


@pytest.mark.parametrize("name", ["tiny-searcher", "smollm2"])
def test_a_template_without_tools_is_refused(name: str, real_tokenizers: dict[str, Any], environment: SearcherEnvironment) -> None:
    with pytest.raises(ModelError, match=r"the chat template knows no tools: set searcher\.format to tags"):
        ChatRenderer(real_tokenizers[name]).encode_prompt(environment.opening("Who?"))


@pytest.mark.parametrize("name", [*KNOWING, *TEMPLATES])
def test_any_argument_and_any_answer_come_back(name: str, real_tokenizers: dict[str, Any], environment: SearcherEnvironment) -> None:
    renderer = open_renderer(name, real_tokenizers, environment)
    if renderer is None or not check_tool_calls(renderer, environment.message).passed:
        return  # refused by the preflight

    def through(message: Message) -> ParsedTurn:
        return parse_turn(renderer.decode(renderer.message_ids(message)), plain=True)

    @settings(max_examples=30, deadline=None, database=None)
    @given(st.sampled_from(sorted(TOOLS)), TEXT)
    def comes_back(tool: str, text: str) -> None:
        text = normalize("NFC", text)  # by Qwen's tokenizer
        written = render_call(ToolCall(tool, text))
        assert through(environment.message(written)).call == parse_turn(written).call
        if not set(text) & set("<([{`"):  # markup of others is read as such
            assert through(environment.message(render_answer(text))).answer == " ".join(text.split())

    comes_back()


def test_demonstrations_and_worked_examples_are_written_as_the_template_would(
    real_tokenizers: dict[str, Any], environment: SearcherEnvironment
) -> None:
    tokenizer = real_tokenizers["qwen2.5"]
    renderer = ChatRenderer(tokenizer)
    shown = Demonstration("Who built it?", (('<tool>search_pages("Mill")</tool>', "1: Harrow Mill"), ("<answer>Edda Lund</answer>", "")))
    encoded = encode_demonstration(shown, renderer, environment)
    messages = [
        *environment.opening("Who built it?"),
        environment.message(shown.turns[0][0]),
        {"role": "tool", "content": "1: Harrow Mill"},
    ]
    whole = renderer.render([*messages, environment.message(shown.turns[1][0])], opens=False)
    assert tokenizer.decode(encoded.ids) == whole.rstrip("\n")
    learnt = tokenizer.decode([label for label in encoded.labels if label != IGNORED])
    assert learnt.endswith("Edda Lund<|im_end|>") and "<answer>" not in learnt and "Harrow" not in learnt
    few = add_examples(environment.opening("Where?"), messages[1:])
    assert '<tool_call>\n{"name": "search_pages"' in tokenizer.decode(renderer.encode_prompt(few))


def test_what_is_no_call_is_the_answer() -> None:
    from slmsearch.episodes.scripted import ScriptedSampler

    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), list(world.questions)[:1]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500), SearcherConfig(format="native")
    title = next(iter(library.pages())).title
    turns = [f'I look it up.\n<tool_call>\n{{"name": "search_pages", "arguments": {{"query": "{title}"}}}}\n</tool_call>', "  Edda\nLund "]
    sampler = ScriptedSampler(lambda prompt, results: turns[len(results)])
    (episode,) = play_episodes(questions, sampler, toolbox, searcher, Sampling(max_new_tokens=200))
    assert episode.stop_reason is StopReason.ANSWERED and episode.answer == "Edda Lund"
    assert episode.turns[0].call == ToolCall("search_pages", title)


def test_a_server_and_programs_are_refused() -> None:
    sampler = OpenAISampler("m", "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match=r"searcher\.format native is for models that are loaded here"):
        sampler.open([make_prompt("Who?", NATIVE.searcher)], Sampling())
    with pytest.raises(ValueError, match="a program needs format tags"):
        SearcherConfig(format="native", programs=True)
    assert "tools" not in make_prompt("Who?", SearcherConfig(format="native", reads="nothing"))[0], "where no tool can be called"
