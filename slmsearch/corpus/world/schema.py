"""The vocabulary in which the kinds of entities are written down: kinds, their topics, the facts of a topic.

Only shapes are here; the tables themselves are in `kinds.toml`.

Placeholders of the texts:
    {r}  the invented root of a name                 (name forms)
    {s}  the subject: its name, or a pronoun once named (sentences)
    {p}  the subject's possessive pronoun            (sentences)
    {v}  the value of the fact; words never open a sentence, which would capitalise them
    {e}  the entity asked about: a name, or a noun phrase that leads to it (questions)
"""

from dataclasses import dataclass
from typing import Literal

DrawType = Literal["year", "number", "word", "link", "listed_words", "listed_links", "listed_names"]

BRIDGE_ENDING = "{e}?"
"""Only question texts that end so are asked through a bridge; elsewhere the noun phrase would tear the sentence apart."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Where a fact's value comes from."""

    type: DrawType
    words: tuple[str, ...] = ()
    """The choice for `word` and `listed_words`."""
    kind: str = ""
    """The target's kind for `link` and `listed_links`."""
    low: int = 0
    """For `year`: smallest offset from the region's era, so that nobody works for a house founded after their death.
    For `number`: smallest value; numbers have four digits, which small models copy well."""
    high: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """Something a page may state, with every way to say it and to ask for it."""

    name: str
    draw: Draw
    says: tuple[str, ...]
    asks: tuple[str, ...]
    reaches: tuple[str, ...] = ()
    """Noun phrases for the target of a link, as seen from {e}; empty for everything but links."""
    bridge_asks: tuple[str, ...] = ()
    """The questions of `asks` that read well with a noun phrase for {e}; filled in by `style.choose_wording`."""

    @property
    def listed(self) -> bool:
        """Whether the value is an enumeration, to be counted."""
        return self.draw.type.startswith("listed")


@dataclass(frozen=True, slots=True)
class Topic:
    """A section a page of some kind may have."""

    headings: tuple[str, ...]
    facts: tuple[Fact, ...]
    fillers: tuple[str, ...]
    """Sentences that state nothing anybody asks for."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of entity."""

    name: str
    share: float
    """Part of a region's pages, 0-1; all kinds together make 1."""
    forms: tuple[str, ...]
    """Title patterns; a leading lower-case `the ` belongs to running text only. {g} is an invented given name."""
    leads: tuple[str, ...]
    topics: tuple[Topic, ...]

    @property
    def single_facts(self) -> tuple[Fact, ...]:
        """All facts that have one value."""
        return tuple(fact for topic in self.topics for fact in topic.facts if not fact.listed)
