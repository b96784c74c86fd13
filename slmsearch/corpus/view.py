"""Views of a corpus without some sections, or with another fact in them. Pages and index version are unchanged."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from slmsearch.corpus.pages import Section
from slmsearch.corpus.scripts import GLUED


@dataclass(frozen=True, slots=True)
class View:
    """Changes to a corpus."""

    hidden: Collection[str] = ()
    """Hidden sections; a page without any visible section is hidden too. Of many, a frozenset."""
    old: tuple[str, ...] = ()
    """Names of one fact, each replaced by `new` as whole words."""
    new: str = ""

    def show(self, sections: Iterable[Section]) -> list[Section]:
        """Return a page's sections with the changes."""
        sections = list(sections)
        gone = [section.text for section in sections if section.id in self.hidden and section.text]
        return [replace(section, text=self._edit(section.text, gone)) for section in sections if section.id not in self.hidden]

    def _edit(self, text: str, gone: list[str]) -> str:
        for part in gone:  # a section includes the text of its sub-sections
            text = text.replace(part, "")
        old = "|".join(map(_in_a_text, sorted(self.old, key=len, reverse=True)))
        return re.sub(old, lambda _: self.new, text, flags=re.IGNORECASE) if old else text


def _in_a_text(name: str) -> str:
    """Return the pattern of a name as whole words, also over ends of lines; scripts without spaces have no whole words."""
    before, after = ("" if re.match(f"[{GLUED}]", end) else mark for end, mark in ((name[:1], r"(?<!\w)"), (name[-1:], r"(?!\w)")))
    return before + r"\s+".join(map(re.escape, name.split())) + after
