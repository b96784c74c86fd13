"""Result type of the readers of all formats."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

MAX_CHARS = 20_000_000
"""Maximum length of one document, in characters."""


class Document(NamedTuple):
    """Text and metadata of a file."""

    title: str
    """Title that the format gives the document; empty if there is none."""
    content: str
    """Markdown; every line that starts with `#` is a heading."""
    metadata: Mapping[str, object] = MappingProxyType({})
    """Further metadata as JSON: `date`, `tags` ..."""
    dropped: Sequence[Sequence[str]] = ()
    """Parts that were left out on purpose: kind (`navigation`, `hidden sheet` ...) and text."""
    full_title: str = ""
    """Title with the name of its site, if the format has one."""
