"""Views of a corpus without some sections, or with another fact in them. Pages and index version are unchanged."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from slmsearch.corpus.pages import Section


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
        return self._fact().sub(lambda _: self.new, text) if self.old else text

    def _fact(self) -> re.Pattern[str]:
        longest = sorted(self.old, key=len, reverse=True)
        return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest), re.IGNORECASE)
