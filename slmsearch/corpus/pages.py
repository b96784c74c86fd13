"""Pages and their sections.

A page is Markdown under a stable id; a section is the text under one heading, with an id of the form
`page_id:normalised_heading` that is unique in its page. The scheme is that of verifiers' `wiki_search`
environment with its traps fixed: a heading that repeats gets `_2`, `_3` ... , `#` inside a code fence is no heading, and a
parent section keeps the text of its children.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """One document of the corpus."""

    id: str
    title: str
    content: str
    """Markdown; headings start with `#`."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else is known, as JSON has it: `path` in its folder, `date`, `tags` ... ; no text of it is searched or read."""


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading of a page."""

    id: str
    """`page_id:normalised_heading`, unique in the corpus when page ids are."""
    page_id: str
    heading: str
    level: int
    """1 for `#` (the title, whose section is the lead), 2 for `##` ...; 0 for a page without headings."""
    text: str
    """Heading line included; reaches to the next heading of the same or a higher level."""
