"""A corpus as it would be without some sections, or with another fact in them. Pages and index version stay as they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slmsearch.corpus.pages import Section


@dataclass(frozen=True, slots=True)
class View:
    """What is different."""

    hidden: tuple[str, ...] = ()
    """Sections that are not there; a page without any is not there either."""
    old: tuple[str, ...] = ()
    """Names of one fact, which reads `new` wherever it stands as whole words."""
    new: str = ""

    def show(self, sections: Iterable[Section]) -> list[Section]:
        """Return a page's sections as they are seen."""
        sections = list(sections)
        gone = [section.text for section in sections if section.id in self.hidden and section.text]
        return [replace(section, text=self._edit(section.text, gone)) for section in sections if section.id not in self.hidden]

    def _edit(self, text: str, gone: list[str]) -> str:
        for part in gone:  # a section holds the text of those under it
            text = text.replace(part, "")
        return self._fact().sub(lambda _: self.new, text) if self.old else text

    def _fact(self) -> re.Pattern[str]:
        longest = sorted(self.old, key=len, reverse=True)
        return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest), re.IGNORECASE)
