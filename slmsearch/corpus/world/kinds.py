"""Kinds of entities, their topics and the facts of a topic, read from `kinds.toml` and reduced to the wording of one world.

Worlds of different seeds share names' syllables and the kinds of facts, but differ in headings and phrasings.

Placeholders of the texts:
    {r}  the invented root of a name                 (name forms)
    {s}  the subject: its name, or a pronoun once named (sentences)
    {p}  the subject's possessive pronoun            (sentences)
    {v}  the value of the fact; words never open a sentence, which would capitalise them
    {e}  the entity asked about: a name, or a noun phrase that leads to it (questions)
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from random import Random
from typing import Literal, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

DrawType = Literal["year", "number", "word", "link", "listed_words", "listed_links", "listed_names"]

BRIDGE_ENDING = "{e}?"
"""Ending of question texts that may be asked through a bridge; elsewhere the noun phrase would split the sentence."""
MAX_WORDINGS = 3
"""Maximum number of phrasings that a world uses for one text; the minimum is two."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Source of a fact's value."""

    type: DrawType
    words: str = ""
    """List in `WORDS`, for `word` and `listed_words`."""
    kind: str = ""
    """Kind of the target, for `link` and `listed_links`."""
    low: int = 0
    """For `year`: smallest offset from the region's era, so that no one works for a house founded after their death. For `number`: smallest
    value; numbers have four digits, which small models copy well."""
    high: int = 0


@dataclass(frozen=True, slots=True)
class WorldFact:
    """Fact that a page may state, with every phrasing of the statement and of the question."""

    name: str
    draw: Draw
    says: tuple[str, ...]
    asks: tuple[str, ...]
    reaches: tuple[str, ...] = ()
    """Noun phrases for the target of a link, as seen from {e}; empty except for links."""
    bridge_asks: tuple[str, ...] = ()
    """Questions of `asks` that read well with a noun phrase for {e}; set by `choose_wording`."""

    @property
    def listed(self) -> bool:
        """True if the value is a list, to be counted."""
        return self.draw.type.startswith("listed")


@dataclass(frozen=True, slots=True)
class Topic:
    """Section that a page of some kind may have."""

    headings: tuple[str, ...]
    facts: tuple[WorldFact, ...]
    fillers: tuple[str, ...]
    """Sentences without facts that a question asks for."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of entity."""

    name: str
    share: float
    """Share of a region's pages, 0-1; the shares of all kinds sum to 1."""
    forms: tuple[str, ...]
    """Title patterns; a leading lower-case `the ` belongs to running text only. {g} is an invented given name."""
    leads: tuple[str, ...]
    topics: tuple[Topic, ...]

    @property
    def single_facts(self) -> tuple[WorldFact, ...]:
        """Facts with a single value."""
        return tuple(fact for topic in self.topics for fact in topic.facts if not fact.listed)


_TABLES = tomllib.loads(files(__package__).joinpath("kinds.toml").read_text(encoding="utf-8"))
WORDS = TypeAdapter(dict[str, tuple[str, ...]]).validate_python(_TABLES["words"])
"""Lists of words by name."""
ALL_KINDS = TypeAdapter(tuple[Kind, ...]).validate_python(_TABLES["kinds"])
"""Kinds in the order of their pages."""


def pick(items: Sequence[T], rng: Random) -> T:
    """Choose an item, in a third of the time of `Random.choice`."""
    return items[int(rng.random() * len(items))]


def choose_wording(seed: int) -> tuple[Kind, ...]:
    """Reduce all kinds to the phrasings of one seed; the order within each choice matters: the first heading is the usual one."""
    rng = Random(f"wording/{seed}")
    kinds = []
    for kind in ALL_KINDS:
        topics = tuple(_reword_topic(topic, rng) for topic in kind.topics)
        kinds.append(replace(kind, leads=_some(kind.leads, rng), topics=topics))
    return tuple(kinds)


def _reword_topic(topic: Topic, rng: Random) -> Topic:
    facts = tuple(_reword_fact(fact, rng) for fact in topic.facts)
    return replace(topic, headings=_some(topic.headings, rng), facts=facts, fillers=_some(topic.fillers, rng))


def _reword_fact(fact: WorldFact, rng: Random) -> WorldFact:
    bridge_asks = tuple(ask for ask in fact.asks if ask.endswith(BRIDGE_ENDING))
    return replace(
        fact,
        says=_some(fact.says, rng),
        asks=_some(fact.asks, rng),
        reaches=_some(fact.reaches, rng),
        bridge_asks=_some(bridge_asks, rng),
    )


def _some(texts: tuple[str, ...], rng: Random) -> tuple[str, ...]:
    count = min(len(texts), rng.randint(2, MAX_WORDINGS))
    return tuple(rng.sample(texts, count))
