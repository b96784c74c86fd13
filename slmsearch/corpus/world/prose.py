"""Generator of pages from entities; it records which section states, omits or lists which fact."""

from dataclasses import dataclass, field
from random import Random

from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import normalise_heading
from slmsearch.corpus.world.kinds import Topic, WorldFact, pick
from slmsearch.corpus.world.region import Entity

FEWEST_SECTIONS = 2
OMITTED_FRAC = 0.15
"""Share of the topics without a section on a page."""
USUAL_HEADING_FRAC = 0.6
"""Share of sections with the usual heading of their world."""
FILLER_FRAC = 0.35
"""Share of sections of two facts that also have a sentence without facts; a section of one fact always has one, an empty one has two."""


@dataclass(slots=True)
class Article:
    """Page of an entity, and the facts for questions about it."""

    entity: Entity
    page: Page
    told: list[tuple[WorldFact, str | Entity, str]] = field(default_factory=list)
    """Facts with a single value: fact, value, section id."""
    untold: list[tuple[WorldFact, str]] = field(default_factory=list)
    """Omitted facts: fact, id of the section where a reader would look."""
    listed: list[tuple[WorldFact, int, str]] = field(default_factory=list)
    """Lists: fact, number of items, section id."""


def write_article(entity: Entity, rng: Random) -> Article:
    """Write the page of an entity: title, lead, two to six sections."""
    lead = _say(pick(entity.kind.leads, rng), entity.reference, entity, "")
    parts = [f"# {entity.title}", lead]
    article = Article(entity, Page(entity.page_id, entity.title, ""))
    chosen = [topic for topic in entity.kind.topics if rng.random() >= OMITTED_FRAC]
    for topic in chosen if len(chosen) >= FEWEST_SECTIONS else entity.kind.topics:
        usual = rng.random() < USUAL_HEADING_FRAC
        heading = topic.headings[0] if usual else pick(topic.headings[1:], rng)
        section_id = f"{entity.page_id}:{normalise_heading(heading)}"
        parts += (f"## {heading}", _write_section(topic, section_id, article, rng))
    article.page = Page(entity.page_id, entity.title, "\n\n".join(parts) + "\n")
    return article


def _write_section(topic: Topic, section_id: str, article: Article, rng: Random) -> str:
    entity = article.entity
    sentences: list[str] = []
    subject = entity.reference
    for fact in topic.facts:
        value = entity.facts.get(fact.name)
        if value is None:
            article.untold.append((fact, section_id))
            continue
        if isinstance(value, list):
            article.listed.append((fact, len(value), section_id))
            text = f"{', '.join(value[:-1])} and {value[-1]}"
        else:
            article.told.append((fact, value, section_id))
            text = value.reference if isinstance(value, Entity) else value
        template = pick(fact.says, rng)
        sentences.append(_say(template, subject, entity, text))
        if "{s}" in template:
            # After its first mention a subject is a pronoun for the rest of the section.
            subject = entity.pronoun
    if not sentences:
        sentences = [_say(filler, subject, entity, "") for filler in rng.sample(topic.fillers, 2)]
    elif len(sentences) < 2 or rng.random() < FILLER_FRAC:
        sentences.append(_say(pick(topic.fillers, rng), subject, entity, ""))
    return " ".join(sentences)


def _say(template: str, subject: str, entity: Entity, value: str) -> str:
    sentence = template.format(s=subject, p=entity.possessive, v=value)
    return sentence[0].upper() + sentence[1:]
