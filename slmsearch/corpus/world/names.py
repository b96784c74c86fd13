"""Invented names: roots built from syllables, titles built from roots, none used twice in a world.

The inventory of syllables is fixed, whatever the seed: a tokenizer trained on one world can spell the names of any other.
"""

from random import Random

from slmsearch.corpus.world.kinds import Kind, pick

HEADS = (
    "bal", "ber", "bor", "bra", "cal", "cor", "dal", "den", "dor", "dra", "dun", "fal", "fen", "fir", "gal", "gor",
    "gre", "hal", "hol", "jas", "kal", "kel", "lam", "lin", "lor", "mar", "mel", "mir", "mor", "nar", "nel", "nor",
    "pel", "per", "quil", "ral", "rin", "ros", "sal", "sel", "sil", "sor", "tal", "tam", "tel", "tor", "tre", "van",
    "vel", "vin", "vor", "wen", "wil", "yar", "zel",
)  # fmt: skip
TAILS = ("a", "o", "en", "in", "on", "is", "ar", "em", "ul", "eth", "ost", "und", "ick", "ane", "ova")
GIVEN_TAILS = ("a", "o", "i", "en", "is", "el", "us", "ine")

Root = tuple[str, ...]


def given_name(rng: Random) -> str:
    """Make a given name of two syllables; given names may repeat."""
    return (pick(HEADS, rng) + pick(GIVEN_TAILS, rng)).capitalize()


def spell(root: Root) -> str:
    """Write a root as a word."""
    return "".join(root).capitalize()


class Names:
    """The names a world has used up; the only thing besides page ids that grows with the world."""

    def __init__(self) -> None:
        """Start a world in which every name is free."""
        self._words: set[str] = set()
        self._titles: set[str] = set()

    def new_root(self, rng: Random) -> Root:
        """Make a root nobody bears yet: two or three syllables, more once those run out."""
        length = 2 if rng.random() < 0.45 else 3
        for attempt in range(1_000_000):
            last = pick(TAILS if length > 2 or rng.random() < 0.5 else HEADS, rng)
            root = (*(pick(HEADS, rng) for _ in range(length - 1)), last)
            if _claim("".join(root), self._words):
                return root
            length = 3 + attempt // 30
        raise AssertionError("unreachable: every failed attempt makes longer roots likelier")

    def variant(self, root: Root, rng: Random) -> Root | None:
        """Change one syllable of a root; None if what came out is taken."""
        place = int(rng.random() * len(root))
        changed = list(root)
        changed[place] = pick(HEADS if place == 0 or root[place] in HEADS else TAILS, rng)
        variant = tuple(changed)
        return variant if _claim("".join(variant), self._words) else None

    def claim_title(self, title: str) -> bool:
        """Take a title; False if an entity, real or invented for a question, already bears it."""
        return _claim(title, self._titles)


def _claim(name: str, taken: set[str]) -> bool:
    free = name not in taken
    taken.add(name)
    return free


def choose_form(kind: Kind, rng: Random) -> str:
    """Choose a title pattern of a kind; what is left open is the root."""
    form = pick(kind.forms, rng)
    return form.replace("{g}", given_name(rng)) if "{g}" in form else form


def apply_form(form: str, root: Root) -> tuple[str, str]:
    """Give title and running-text name of a root in a pattern (`Talvor River`, `the Talvor River`)."""
    reference = form.replace("{r}", spell(root))
    return reference.removeprefix("the "), reference
