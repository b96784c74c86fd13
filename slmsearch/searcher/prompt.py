"""What a policy is told: the messages before its first turn.

How messages become token ids is the writer's business. tiny-searcher's chat template leaves the system message out.
"""

from slmsearch.config import SearcherConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.generate.writer import Message

PROMPT_VERSION = 1
"""Part of every evaluation and training key; raise it when the text below changes."""

SYSTEM_PROMPT = f"""You answer questions from a corpus of pages that you search with three tools.
Write exactly one call or answer per message:

<tool>search_pages("query")</tool> lists the best pages as `page_id: title`
<tool>view_sections("page_id")</tool> lists a page's sections as `section_id: heading`
<tool>read_section("section_id")</tool> shows a section's text
<answer>your answer</answer> ends the dialogue

Read before you answer; some questions need facts from two pages. Answer with the bare fact, as short as the text gives it.
If the pages do not hold the answer, write <answer>{UNKNOWN_ANSWER}</answer>."""


def make_prompt(question: str, config: SearcherConfig) -> list[Message]:
    """Make the messages that open an episode."""
    system = SYSTEM_PROMPT if config.system_prompt is None else config.system_prompt
    user: Message = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]
