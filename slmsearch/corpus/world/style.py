"""The wording of one world: from all phrasings that the tables hold, the few that this seed uses.

Two worlds of different seeds share names' syllables and the kinds of facts, but call sections and say things differently.
"""

from dataclasses import replace
from random import Random

from slmsearch.corpus.world.kinds import ALL_KINDS
from slmsearch.corpus.world.schema import BRIDGE_ENDING, Fact, Kind, Topic

MAX_WORDINGS = 3
"""Most phrasings of anything that a world uses; the fewest are two."""


def choose_wording(seed: int) -> tuple[Kind, ...]:
    """Reduce all kinds to the phrasings of one seed; the order within each choice matters, the first heading is the usual one."""
    rng = Random(f"wording/{seed}")
    return tuple(_reword_kind(kind, rng) for kind in ALL_KINDS)


def _reword_kind(kind: Kind, rng: Random) -> Kind:
    topics = tuple(_reword_topic(topic, rng) for topic in kind.topics)
    return replace(kind, leads=_some(kind.leads, rng), topics=topics)


def _reword_topic(topic: Topic, rng: Random) -> Topic:
    facts = tuple(_reword_fact(fact, rng) for fact in topic.facts)
    return replace(topic, headings=_some(topic.headings, rng), facts=facts, fillers=_some(topic.fillers, rng))


def _reword_fact(fact: Fact, rng: Random) -> Fact:
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
