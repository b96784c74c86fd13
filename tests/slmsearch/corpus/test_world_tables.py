"""The tables a world is made from: complete enough to vary, free of traps. Worlds themselves are in test_world.py."""

import re
from random import Random

import pytest

from slmsearch.corpus.sections import normalise_heading
from slmsearch.corpus.world.kinds import ALL_KINDS, BRIDGE_ENDING, WORDS, Kind, WorldFact, choose_wording
from slmsearch.corpus.world.region import RegionNames, build_region, kind_counts, spell

FACTS = [pytest.param(fact, id=f"{kind.name}-{fact.name}") for kind in ALL_KINDS for topic in kind.topics for fact in topic.facts]
KINDS = [pytest.param(kind, id=kind.name) for kind in ALL_KINDS]


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_can_be_said_and_asked_in_three_ways(fact: WorldFact) -> None:
    assert len(set(fact.says)) >= 3 and all(said.count("{v}") == 1 for said in fact.says)
    assert len(set(fact.asks)) >= 3 and all(ask.count("{e}") == 1 and ask.endswith("?") for ask in fact.asks)
    assert fact.listed or sum(ask.endswith(BRIDGE_ENDING) for ask in fact.asks) >= 2


@pytest.mark.parametrize("fact", FACTS)
def test_links_and_only_links_can_be_reached_through(fact: WorldFact) -> None:
    is_link = fact.draw.type == "link"
    assert (len(set(fact.reaches)) >= 2) == is_link
    assert all(reach.count("{e}") == 1 for reach in fact.reaches)


@pytest.mark.parametrize("fact", FACTS)
def test_words_never_open_a_sentence_where_they_would_be_capitalised(fact: WorldFact) -> None:
    if fact.draw.type in ("word", "listed_words"):
        assert not any(said.startswith("{v}") for said in fact.says)


@pytest.mark.parametrize("kind", KINDS)
def test_headings_of_a_kind_never_clash(kind: Kind) -> None:
    headings = [normalise_heading(heading) for topic in kind.topics for heading in topic.headings]
    assert len(headings) == len(set(headings))
    assert all(3 <= len(topic.headings) <= 4 and len(topic.fillers) >= 2 for topic in kind.topics)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_hold_no_number_that_could_be_taken_for_a_count(kind: Kind) -> None:
    texts = [*kind.leads, *(said for topic in kind.topics for fact in topic.facts for said in fact.says)]
    texts += [filler for topic in kind.topics for filler in topic.fillers]
    pattern = re.compile(r"\d|\b(one|two|three|four|five|six|seven)\b", re.IGNORECASE)
    assert [text for text in texts if pattern.search(text)] == []


def test_there_are_many_kinds_relations_and_paths() -> None:
    kinds = {kind.name: kind for kind in ALL_KINDS}
    links = [fact for kind in ALL_KINDS for fact in kind.single_facts if fact.reaches]
    assert len(kinds) == 10
    assert sum(len(kind.single_facts) for kind in ALL_KINDS) >= 50
    assert sum(len(kinds[fact.draw.kind].single_facts) for fact in links) >= 100
    assert sum(kind.share for kind in ALL_KINDS) == pytest.approx(1)


def test_word_lists_are_long_and_fit_behind_an_article() -> None:
    assert len(WORDS) >= 12
    for name, entries in WORDS.items():
        assert len(set(entries)) == len(entries) >= 15, name
    for entry in (entry for name in ("professions", "animals", "trees", "colours", "genres") for entry in WORDS[name]):
        assert entry[0] not in "aeiou"


def test_a_seed_uses_some_of_the_wordings_and_another_seed_others() -> None:
    one, other = choose_wording(1), choose_wording(2)
    assert one == choose_wording(1)
    for kind, full in zip(one, ALL_KINDS, strict=True):
        for topic, full_topic in zip(kind.topics, full.topics, strict=True):
            assert 2 <= len(topic.headings) <= 3 and set(topic.headings) <= set(full_topic.headings)
            for fact in topic.facts:
                assert 2 <= len(fact.says) <= 3 and 2 <= len(fact.asks) <= 3
                assert fact.listed or len(fact.bridge_asks) >= 2
    usual = [[topic.headings[0] for kind in kinds for topic in kind.topics] for kinds in (one, other)]
    same = sum(a == b for a, b in zip(*usual, strict=True)) / len(usual[0])
    assert same < 0.5


@pytest.mark.parametrize("size", [13, 20, 32, 45])
def test_a_region_has_every_kind_and_exactly_its_size(size: int) -> None:
    counts = kind_counts(ALL_KINDS, size)
    assert sum(counts) == size and min(counts) >= 1


def test_a_region_is_closed_and_its_years_are_in_order() -> None:
    kinds = choose_wording(3)
    entities = build_region(kinds, [str(1000 + i) for i in range(32)], RegionNames(), Random(3))
    for entity in entities:
        for fact in (fact for topic in entity.kind.topics for fact in topic.facts if fact.draw.type == "link"):
            target = entity.facts.get(fact.name)
            assert target is None or (target in entities and target is not entity and target.kind.name == fact.draw.kind)
    books = [entity for entity in entities if entity.kind.name == "book" and {"author", "published"} <= set(entity.facts)]
    companies = [entity for entity in entities if entity.kind.name == "company" and {"founder", "founded"} <= set(entity.facts)]
    made = [(book.facts["author"], book.facts["published"]) for book in books]
    made += [(company.facts["founder"], company.facts["founded"]) for company in companies]
    assert made
    for maker, when in made:
        assert 20 <= int(when) - int(maker.facts.get("born", 0) or int(when) - 20) <= 100


def test_roots_stay_unique_beyond_the_short_ones() -> None:
    names, rng = RegionNames(), Random(0)
    roots = [spell(names.new_root(rng)) for _ in range(20_000)]
    assert len(set(roots)) == len(roots)
    assert names.claim_title("Talvor River") and not names.claim_title("Talvor River")
