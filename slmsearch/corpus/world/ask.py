"""Generator of questions about a region, in the proportions of a world.

A two-hop question names one entity, leads over a link of its page to another (the bridge, never named) and asks for a fact that only the
bridge's page states.
"""

from collections.abc import Iterator, Sequence
from random import Random

from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.world.kinds import Kind, T, WorldFact, pick
from slmsearch.corpus.world.prose import Article
from slmsearch.corpus.world.region import Entity, RegionNames, apply_form, choose_form
from slmsearch.errors import CorpusError

COUNT_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
MIX = {"two_hop": 0.45, "one_hop": 0.36, "count": 0.08, "unanswerable": 0.11}
"""Share of each kind among a world's questions."""
UNTOLD_SHARE = 0.6
"""Share of the unanswerable questions that ask an existing page for a fact it omits; the rest ask about a name that does not exist."""
BRIDGED_UNKNOWN_SHARE = 0.25
"""Share of the unanswerable questions that take two hops, so that the form of a question does not reveal its kind."""

ROUNDS = 3
"""Passes over the same facts, each in other words, before a region runs out of questions."""


class Asker:
    """Generator of the questions of one region."""

    def __init__(self, articles: list[Article], kinds: tuple[Kind, ...], names: RegionNames, rng: Random) -> None:
        """Store a region's articles, the kinds in this world's wording, and the names used so far."""
        self._articles = articles
        self._by_page = {article.entity.page_id: article for article in articles}
        self._kinds = {kind.name: kind for kind in kinds}
        self._names = names
        self._rng = rng
        self._asked: set[str] = set()

    def ask(self, quotas: dict[str, int], unheard_of: int = 0) -> list[Question]:
        """Write the number of questions of each kind in `quotas`, and `unheard_of` more about names that do not exist, in random order,
        without ids.

        Raises:
            CorpusError: the region has too few different facts to ask about.
        """
        from_untold = round(quotas["unanswerable"] * UNTOLD_SHARE)
        questions = self._take(self._two_hop(), quotas["two_hop"], "two_hop")
        questions += self._take(self._one_hop(), quotas["one_hop"], "one_hop")
        questions += self._take(self._count(), quotas["count"], "count")
        untold = self._take(self._untold(), from_untold, "")
        questions += untold + self._take(self._unheard_of(), quotas["unanswerable"] - len(untold) + unheard_of, "unanswerable")
        self._rng.shuffle(questions)
        return questions

    def _take(self, questions: Iterator[Question], wanted: int, kind: str) -> list[Question]:
        """Take questions with new texts; if `kind` is not empty, too few of them are an error."""
        taken: list[Question] = []
        while len(taken) < wanted:
            question = next(questions, None)
            if question is None:
                if not kind:
                    break
                raise CorpusError(
                    f"{len(self._articles)} pages hold only {len(taken)} of {wanted} {kind} questions; lower world.questions_per_page"
                )
            if question.question not in self._asked:
                self._asked.add(question.question)
                taken.append(question)
        return taken

    def _pick(self, items: Sequence[T]) -> T:
        return pick(items, self._rng)

    def _rounds(self, candidates: list[T]) -> Iterator[T]:
        """Yield the candidates in random order, repeatedly, for other phrasings of the same fact."""
        for _ in range(ROUNDS):
            self._rng.shuffle(candidates)
            yield from candidates

    def _bridges(self) -> Iterator[tuple[Article, WorldFact, Article, str]]:
        """Yield every link: page, fact, target page, section that states it."""
        for article in self._articles:
            for fact, value, section_id in article.told:
                if isinstance(value, Entity):
                    yield article, fact, self._by_page[value.page_id], section_id

    def _one_hop(self) -> Iterator[Question]:
        told = [(article, *entry) for article in self._articles for entry in article.told]
        for article, fact, value, section_id in self._rounds(told):
            text, answer = self._ask_of(article, fact), _text(value)
            if answer not in text:
                yield _question("one_hop", text, answer, [article], (section_id,))

    def _two_hop(self) -> Iterator[Question]:
        paths = [(*bridge, *entry) for bridge in self._bridges() for entry in bridge[2].told]
        for article, way, bridge, way_id, fact, value, section_id in self._rounds(paths):
            answer = _text(value)
            # An answer that the first page also holds could be found without the bridge.
            if answer in article.page.content:
                continue
            text = self._ask_through(article, way, fact)
            if answer not in text and bridge.entity.title not in text:
                yield _question("two_hop", text, answer, [article, bridge], (way_id, section_id))

    def _count(self) -> Iterator[Question]:
        listed = [(article, *entry) for article in self._articles for entry in article.listed]
        for article, fact, count, section_id in self._rounds(listed):
            yield _question("count", self._ask_of(article, fact), str(count), [article], (section_id,), (COUNT_WORDS[count],))

    def _untold(self) -> Iterator[Question]:
        """Ask existing pages for facts that they omit."""
        direct = [(article, *entry) for article in self._articles for entry in article.untold]
        bridged = [(*bridge, *entry) for bridge in self._bridges() for entry in bridge[2].untold]
        self._rng.shuffle(bridged)
        for article, fact, section_id in self._rounds(direct):
            if bridged and self._rng.random() < BRIDGED_UNKNOWN_SHARE:
                start, way, bridge, way_id, left_out, bridge_id = bridged.pop()
                text = self._ask_through(start, way, left_out)
                yield _question("unanswerable", text, UNKNOWN_ANSWER, [start, bridge], (way_id, bridge_id))
            yield _question("unanswerable", self._ask_of(article, fact), UNKNOWN_ANSWER, [article], (section_id,))

    def _unheard_of(self) -> Iterator[Question]:
        """Ask about names that do not exist and resemble those of the region; each name once."""
        for _ in range(ROUNDS * 100):
            invented = self._misname(self._pick(self._articles).entity)
            if invented is None:
                continue
            kind, title, reference = invented
            fact = self._pick(kind.single_facts)
            if fact.reaches and self._rng.random() < BRIDGED_UNKNOWN_SHARE * 2:
                goal = self._pick(self._kinds[fact.draw.kind].single_facts)
                text = self._pick(goal.bridge_asks).format(e=self._pick(fact.reaches).format(e=reference))
            else:
                text = self._pick(fact.asks).format(e=reference)
            yield Question("", text, UNKNOWN_ANSWER, kind="unanswerable", entities=(title,))

    def _misname(self, entity: Entity) -> tuple[Kind, str, str] | None:
        """Invent a near-duplicate of an entity's name: another syllable, or the root in another kind's pattern."""
        if self._rng.random() < 0.5:
            root, kind, form = self._names.variant(entity.root, self._rng), entity.kind, entity.form
        else:
            root, kind = entity.root, self._pick(list(self._kinds.values()))
            form = choose_form(kind, self._rng)
            if any(other.entity.root == root and other.entity.kind is kind for other in self._articles):
                return None
        if root is None:
            return None
        title, reference = apply_form(form, root)
        return (kind, title, reference) if self._names.claim_title(title) else None

    def _ask_of(self, article: Article, fact: WorldFact) -> str:
        return self._pick(fact.asks).format(e=article.entity.reference)

    def _ask_through(self, article: Article, way: WorldFact, fact: WorldFact) -> str:
        return self._pick(fact.bridge_asks).format(e=self._pick(way.reaches).format(e=article.entity.reference))


def _question(
    kind: str, text: str, answer: str, path: Sequence[Article], section_ids: tuple[str, ...], aliases: tuple[str, ...] = ()
) -> Question:
    page_ids, titles = tuple(article.entity.page_id for article in path), tuple(article.entity.title for article in path)
    return Question("", text, answer, aliases, page_ids, section_ids, len(section_ids), kind, titles)


def _text(value: str | Entity) -> str:
    return value.title if isinstance(value, Entity) else value
