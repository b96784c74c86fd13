"""Regions: a few dozen entities that link only to each other, with their facts, before any text is written.

Splits are built from connected components of gold pages. No link leaves a region, so no component does, for any number of hops.

Names are invented: roots built from syllables, titles built from roots, none used twice in a world. The inventory of syllables does not
depend on the seed: a tokenizer trained on one world can spell the names of any other.
"""

from dataclasses import dataclass, field
from random import Random

from slmsearch.corpus.world.kinds import WORDS, Draw, Kind, WorldFact, pick

HEADS = (
    "bal", "ber", "bor", "bra", "cal", "cor", "dal", "den", "dor", "dra", "dun", "fal", "fen", "fir", "gal", "gor",
    "gre", "hal", "hol", "jas", "kal", "kel", "lam", "lin", "lor", "mar", "mel", "mir", "mor", "nar", "nel", "nor",
    "pel", "per", "quil", "ral", "rin", "ros", "sal", "sel", "sil", "sor", "tal", "tam", "tel", "tor", "tre", "van",
    "vel", "vin", "vor", "wen", "wil", "yar", "zel",
)  # fmt: skip
TAILS = ("a", "o", "en", "in", "on", "is", "ar", "em", "ul", "eth", "ost", "und", "ick", "ane", "ova")
GIVEN_TAILS = ("a", "o", "i", "en", "is", "el", "us", "ine")
TWIN_FRAC = 0.17
"""Share of the entities named after another one; each creates two near-duplicates."""
UNTOLD_FRAC = 0.12
"""Share of the facts that a page omits although it has their section; unanswerable questions ask for them."""
EARLIEST_ERA, LATEST_ERA = 1450, 1850
SHORTEST_LIST, LONGEST_LIST = 2, 6

Root = tuple[str, ...]


def given_name(rng: Random) -> str:
    """Create a given name of two syllables; given names may repeat."""
    return (pick(HEADS, rng) + pick(GIVEN_TAILS, rng)).capitalize()


def spell(root: Root) -> str:
    """Return a root as a word."""
    return "".join(root).capitalize()


class RegionNames:
    """Names used in a world; besides page ids, the only state that grows with the world."""

    def __init__(self) -> None:
        """Start a world without used names."""
        self._words: set[str] = set()
        self._titles: set[str] = set()

    def new_root(self, rng: Random) -> Root:
        """Create an unused root: two or three syllables, more once those run out."""
        length = 2 if rng.random() < 0.45 else 3
        for attempt in range(1_000_000):
            last = pick(TAILS if length > 2 or rng.random() < 0.5 else HEADS, rng)
            root = (*(pick(HEADS, rng) for _ in range(length - 1)), last)
            if _claim("".join(root), self._words):
                return root
            length = 3 + attempt // 30
        raise AssertionError("unreachable: every failed attempt makes longer roots likelier")

    def variant(self, root: Root, rng: Random) -> Root | None:
        """Change one syllable of a root; None if the result is used."""
        place = int(rng.random() * len(root))
        changed = list(root)
        changed[place] = pick(HEADS if place == 0 or root[place] in HEADS else TAILS, rng)
        variant = tuple(changed)
        return variant if _claim("".join(variant), self._words) else None

    def claim_title(self, title: str) -> bool:
        """Reserve a title; False if an entity, real or invented for a question, already has it."""
        return _claim(title, self._titles)


def _claim(name: str, taken: set[str]) -> bool:
    free = name not in taken
    taken.add(name)
    return free


def choose_form(kind: Kind, rng: Random) -> str:
    """Choose a title pattern of a kind; only the root is left open."""
    form = pick(kind.forms, rng)
    return form.replace("{g}", given_name(rng)) if "{g}" in form else form


def apply_form(form: str, root: Root) -> tuple[str, str]:
    """Return title and running-text name of a root in a pattern (`Talvor River`, `the Talvor River`)."""
    reference = form.replace("{r}", spell(root))
    return reference.removeprefix("the "), reference


@dataclass(slots=True)
class Entity:
    """Entity that has a page in the encyclopedia."""

    page_id: str
    kind: Kind
    form: str
    """Title pattern, filled in except for the root."""
    root: Root
    title: str
    reference: str
    """Title in running text, with the article if it takes one."""
    pronoun: str
    possessive: str
    facts: dict[str, "Value"] = field(default_factory=dict)
    """Values by fact name; omitted facts are missing."""


Value = str | Entity | list[str]


def kind_counts(kinds: tuple[Kind, ...], size: int) -> list[int]:
    """Return the number of a region's pages per kind: one of each, two towns and persons, the rest by the kinds' shares."""
    counts = [2 if kind.name in ("town", "person") else 1 for kind in kinds]
    while sum(counts) < size:
        wanting = [kind.share * size - count for kind, count in zip(kinds, counts, strict=True)]
        counts[wanting.index(max(wanting))] += 1
    return counts


def build_region(kinds: tuple[Kind, ...], page_ids: list[str], names: RegionNames, rng: Random) -> list[Entity]:
    """Invent the entities of a region and all their facts, in the order of their kinds."""
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


def _invent(kind: Kind, page_id: str, others: list[Entity], names: RegionNames, rng: Random) -> Entity:
    twin = others and rng.random() < TWIN_FRAC and _name_twin(kind, others, names, rng)
    if twin:
        form, root = twin
    else:
        root, form = names.new_root(rng), choose_form(kind, rng)
    title, reference = apply_form(form, root)
    names.claim_title(title)
    pronoun, possessive = ("it", "its") if kind.name != "person" else ("she", "her") if rng.random() < 0.5 else ("he", "his")
    return Entity(page_id, kind, form, root, title, reference, pronoun, possessive)


def _name_twin(kind: Kind, others: list[Entity], names: RegionNames, rng: Random) -> tuple[str, Root] | None:
    """Name an entity like another one: same root, other kind; or same pattern, one syllable changed."""
    original = pick(others, rng)
    if original.kind is kind:
        root = names.variant(original.root, rng)
        form = original.form
    else:
        # A root used twice within a kind would make `Dunmar Prize` and `Dunmar Medal` ambiguous.
        free = all(other.root != original.root for other in others if other.kind is kind)
        root = original.root if free else None
        form = choose_form(kind, rng)
    if root is None or not names.claim_title(apply_form(form, root)[0]):
        return None
    return form, root


def _draw(fact: WorldFact, entity: Entity, by_kind: dict[str, list[Entity]], era: int, rng: Random) -> Value | None:
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
