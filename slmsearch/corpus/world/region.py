"""A region: a few dozen entities that link only to each other, with their facts; no text yet.

Splits are made from connected components of gold pages. Because no link leaves a region, no component does either,
however many hops a question takes.
"""

from dataclasses import dataclass, field
from random import Random

from slmsearch.corpus.world.kinds import WORDS, Draw, Fact, Kind, pick
from slmsearch.corpus.world.names import Names, Root, apply_form, choose_form, given_name

TWIN_FRAC = 0.17
"""Part of the entities that are named after another one; each makes two near-duplicates."""
UNTOLD_FRAC = 0.12
"""Part of the facts that a page leaves out though it has the section: matter for unanswerable questions."""
EARLIEST_ERA, LATEST_ERA = 1450, 1850
SHORTEST_LIST, LONGEST_LIST = 2, 6


@dataclass(slots=True)
class Entity:
    """One thing the encyclopedia has a page on."""

    page_id: str
    kind: Kind
    form: str
    """Its title pattern, all but the root filled in."""
    root: Root
    title: str
    reference: str
    """The title as running text has it, with the article if it takes one."""
    pronoun: str
    possessive: str
    facts: dict[str, "Value"] = field(default_factory=dict)
    """By fact name; facts left out are missing."""


Value = str | Entity | list[str]


def kind_counts(kinds: tuple[Kind, ...], size: int) -> list[int]:
    """Share out a region's pages: one of each kind, two towns and persons, the rest by the kinds' shares."""
    counts = [2 if kind.name in ("town", "person") else 1 for kind in kinds]
    while sum(counts) < size:
        wanting = [kind.share * size - count for kind, count in zip(kinds, counts, strict=True)]
        counts[wanting.index(max(wanting))] += 1
    return counts


def build_region(kinds: tuple[Kind, ...], page_ids: list[str], names: Names, rng: Random) -> list[Entity]:
    """Invent the entities of a region and everything that is true of them, in the order of their kinds."""
    ids = iter(page_ids)
    entities: list[Entity] = []
    by_kind: dict[str, list[Entity]] = {}
    for kind, count in zip(kinds, kind_counts(kinds, len(page_ids)), strict=True):
        members = by_kind.setdefault(kind.name, [])
        for _ in range(count):
            entity = _invent(kind, next(ids), entities, names, rng)
            entities.append(entity)
            members.append(entity)
    era = rng.randint(EARLIEST_ERA, LATEST_ERA)
    for entity in entities:
        for topic in entity.kind.topics:
            for fact in topic.facts:
                if fact.listed or rng.random() >= UNTOLD_FRAC:
                    value = _draw(fact, entity, by_kind, era, rng)
                    if value is not None:
                        entity.facts[fact.name] = value
    return entities


def _invent(kind: Kind, page_id: str, others: list[Entity], names: Names, rng: Random) -> Entity:
    twin = others and rng.random() < TWIN_FRAC and _name_twin(kind, others, names, rng)
    if twin:
        form, root = twin
    else:
        root, form = names.new_root(rng), choose_form(kind, rng)
    title, reference = apply_form(form, root)
    names.claim_title(title)
    pronoun, possessive = ("it", "its") if kind.name != "person" else ("she", "her") if rng.random() < 0.5 else ("he", "his")
    return Entity(page_id, kind, form, root, title, reference, pronoun, possessive)


def _name_twin(kind: Kind, others: list[Entity], names: Names, rng: Random) -> tuple[str, Root] | None:
    """Name an entity so that it can be mistaken for another: same root, other kind; or same pattern, one syllable changed."""
    original = pick(others, rng)
    if original.kind is kind:
        root = names.variant(original.root, rng)
        form = original.form
    else:
        # A root borne twice within a kind would make `Dunmar Prize` and `Dunmar Medal` a matter of taste.
        free = all(other.root != original.root for other in others if other.kind is kind)
        root = original.root if free else None
        form = choose_form(kind, rng)
    if root is None or not names.claim_title(apply_form(form, root)[0]):
        return None
    return form, root


def _draw(fact: Fact, entity: Entity, by_kind: dict[str, list[Entity]], era: int, rng: Random) -> Value | None:
    draw = fact.draw
    if draw.type == "word":
        return pick(WORDS[draw.words], rng)
    if draw.type in ("number", "year"):
        number = int((era if draw.type == "year" else 0) + draw.low + rng.random() * (draw.high + 1 - draw.low))
        return str(number)
    if draw.type == "link":
        targets = [target for target in by_kind[draw.kind] if target is not entity]
        return pick(targets, rng) if targets else None
    return _draw_list(draw, by_kind, rng)


def _draw_list(draw: Draw, by_kind: dict[str, list[Entity]], rng: Random) -> list[str]:
    if draw.type == "listed_names":
        length, found = rng.randint(SHORTEST_LIST, LONGEST_LIST), dict[str, None]()
        while len(found) < length:
            found[given_name(rng)] = None
        return list(found)
    pool = [target.reference for target in by_kind[draw.kind]] if draw.kind else WORDS[draw.words]
    return rng.sample(pool, rng.randint(SHORTEST_LIST, min(LONGEST_LIST, len(pool))))
