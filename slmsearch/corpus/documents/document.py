"""What readers of all formats return."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

MAX_CHARS = 20_000_000
"""Of one document."""


class Document(NamedTuple):
    """What a file says."""

    title: str
    """The document's own, as its format gives it; empty where it gives none."""
    content: str
    """Markdown; what starts with `#` is a heading."""
    metadata: Mapping[str, Any] = MappingProxyType({})
    """What else it says of itself, as JSON has it: `date`, `tags` ..."""
    dropped: Sequence[Sequence[str]] = ()
    """What was left out of it on purpose: kind (`navigation`, `hidden sheet` ...) and text."""
    full_title: str = ""
    """The title with the name of its site, where the format gives one that may have it."""
