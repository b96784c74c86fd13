"""Pages and their sections.

A page is Markdown under a stable id; a section is the text under one heading, with an id that is unique in its page (`corpus/sections.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """Document of the corpus."""

    id: str
    title: str
    content: str
    """Markdown; headings start with `#`."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further metadata as JSON: `path` in its folder, `date`, `tags` ... ; it is neither searched nor read."""


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading of a page."""

    id: str
    """Id `page_id:normalised_heading`, unique in the corpus if page ids are."""
    page_id: str
    heading: str
    level: int
    """Level of the heading: 1 for `#` (the title, whose section is the lead), 2 for `##` ...; 0 for a page without headings."""
    text: str
    """Text with its heading line, up to the next heading of the same or a higher level."""
