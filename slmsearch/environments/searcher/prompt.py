"""Prompt of the searcher: the messages before its first turn, and the settings that decide how it plays.

The sampler turns messages into token ids. tiny-searcher's chat template leaves the system message out.
"""

import json

from slmsearch.config import LimitsConfig, ProgramLimits, SearcherConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW
from slmsearch.episodes.sampler import Message

PROMPT_VERSION = 2
"""Part of every evaluation and training key; raise it when the text below changes."""

SYSTEM_PROMPT = f"""You answer questions from a corpus of pages that you search with three tools.
Write exactly one call or answer per message:

<tool>search_pages("query")</tool> lists the best pages as `page_id: title`
<tool>view_sections("page_id")</tool> lists a page's sections as `section_id: heading`
<tool>read_section("section_id")</tool> shows a section's text
<answer>your answer</answer> ends the dialogue
<answer section="section_id" lines="3-7"></answer> ends it with steps or an explanation: lines of a section that you read, counted below \
its heading without blank ones; leave lines out for all of them

Read before you answer; some questions need facts from two pages. Answer with the bare fact, as short as the text gives it.
If the pages do not hold the answer, write <answer>{UNKNOWN_ANSWER}</answer>."""


TEXT_SHOWN = (
    "lists the best pages as `page_id: title`",
    "shows the best sections as `section_id: title` and their text, and lists further pages",
)
"""Line of the system message about searches, and the one that stands there if `SearcherConfig.shows` is `text`."""

PROGRAM_PROMPT = """
Instead of a call you may write a short Python program that makes several; what it prints comes back:

<code>
for page_id, title in search_pages("query"):
    for section_id, heading in view_sections(page_id):
        if "life" in heading.lower():
            print(title, read_section(section_id))
</code>

search_pages and view_sections give lists of pairs, read_section gives text; a call that cannot be served raises ToolError."""


ANSWER = "Answer with a few words of {}: <answer>your answer</answer>"
AT_ONCE = {"shown": ANSWER.format("the text"), "nothing": ANSWER.format("what you know")}
"""System messages of a model that answers at once, by `SearcherConfig.reads`; its plain text is an answer, too."""


NATIVE_PROMPT = f"""You answer questions from a corpus of pages that you search with tools. Make one call at a time.
Read before you answer; some questions need facts from two pages. Answer with the bare fact alone, as short as the text gives it.
If the pages do not hold the answer, answer: {UNKNOWN_ANSWER}"""
"""System message where the chat template declares the tools."""
TOOLS = {
    SEARCH: ("query", "Search the pages; gives the best ones with their ids."),
    VIEW: ("page_id", "List the sections of a page; gives section_id and heading."),
    READ: ("section_id", "Read the text of a section."),
}
"""Parameter and description of each tool as a chat template declares it."""
_FUNCTIONS = [
    {"name": name, "description": text, "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}
    for name, (key, text) in TOOLS.items()
]
DECLARED = json.dumps([{"type": "function", "function": function} for function in _FUNCTIONS])


def make_prompt(question: str, config: SearcherConfig, shown: str = "") -> list[Message]:
    """Make the messages that open an episode; a reader gets a text before the question, and a template its tools."""
    native = config.format == "native" and config.reads == "tools"
    built_in = NATIVE_PROMPT if native else SYSTEM_PROMPT + PROGRAM_PROMPT if config.programs else SYSTEM_PROMPT
    built_in = built_in.replace(*TEXT_SHOWN) if config.shows == "text" else built_in
    system = built_in if config.system_prompt is None else config.system_prompt
    if system:
        system = AT_ONCE.get(config.reads, system)
    user: Message = {"role": "user", "content": f"{shown}\n\n{question}" if shown else question}
    first, *others = [{"role": "system", "content": system}, user] if system else [user]
    return [{**first, "tools": DECLARED} if native else first, *others]


def describe_searcher(config: SearcherConfig, limits: LimitsConfig) -> dict[str, object]:
    """Return the settings that decide how an episode is played; part of every evaluation and training key."""
    told = config.key_parts(exclude={"programs"}) | ({"plain": True} if config.reads in AT_ONCE else {})
    allowed = ProgramLimits(**limits.model_dump()).model_dump(mode="json")
    return {**told, "programs": {"prompt": PROGRAM_PROMPT, "limits": allowed}} if config.programs else told
