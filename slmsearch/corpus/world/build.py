"""Generator of whole worlds, in memory or streamed to files.

It generates a world region by region; of earlier regions it keeps only the used names and page ids.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from slmsearch.artifacts.files import replace_file
from slmsearch.config import WorldConfig
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.records import page_row, write_rows
from slmsearch.corpus.world.ask import MIX, Asker
from slmsearch.corpus.world.kinds import choose_wording
from slmsearch.corpus.world.prose import write_article
from slmsearch.corpus.world.region import RegionNames, build_region
from slmsearch.errors import CorpusError

REGION_PAGES = 32
"""Number of pages in a region of a large world."""
FEWEST_REGION_PAGES = 13
"""Minimum number of pages in a region: every kind once, two towns, two persons, and one to spare."""
WANTED_REGIONS = 12
"""Minimum number of regions: a small world has smaller regions, so that it can be split."""
SHORT_ID_PAGES = 9_000
"""Number of pages up to which page ids have four digits, which small models copy best."""


@dataclass(frozen=True, slots=True)
class World:
    """Generated encyclopedia and the questions about it."""

    pages: list[Page]
    questions: list[Question]


def generate_world(config: WorldConfig, unheard_of: float = 0.0) -> World:
    """Generate a world in memory; the same arguments give the same world, byte for byte.

    Args:
        config: settings of the world.
        unheard_of: number of additional questions about names that do not exist, per usual question.
    """
    world = World([], [])
    for pages, questions in _regions(config, unheard_of):
        world.pages.extend(pages)
        world.questions.extend(questions)
    return world


def write_world(config: WorldConfig, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write the world of `config` to `pages.jsonl` and `questions.jsonl`, holding one region at a time.

    Args:
        config: settings of the world.
        out: folder, created if missing; existing files are replaced only by complete ones.
        progress: called after each region with the numbers of pages written and of all pages.

    Raises:
        CorpusError: the files cannot be written.
    """
    done = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replace_file(out / "pages.jsonl") as page_file, replace_file(out / "questions.jsonl") as question_file:
            for pages, questions in _regions(config):
                write_rows(page_file, map(page_row, pages))
                write_rows(question_file, (question.row() for question in questions))
                done += len(pages)
                if progress:
                    progress(done, config.pages)
    except OSError as error:
        raise CorpusError(f"cannot write the world to {out} ({error}); free space or choose another folder") from error


def _regions(config: WorldConfig, unheard_of: float = 0.0) -> Iterator[tuple[list[Page], list[Question]]]:
    kinds = choose_wording(config.seed)
    names = RegionNames()
    page_ids = _page_ids(config)
    issued = dict.fromkeys(MIX, 0)
    made = done = 0
    for number, size in enumerate(_region_sizes(config.pages)):
        rng = Random(f"region/{config.seed}/{number}")
        entities = build_region(kinds, page_ids[done : done + size], names, rng)
        articles = [write_article(entity, rng) for entity in entities]
        done += size
        quotas = _quotas(issued, round(done * config.questions_per_page))
        asked = Asker(articles, kinds, names, rng).ask(quotas, round(unheard_of * sum(quotas.values())))
        questions = [replace(question, id=f"w{config.seed}-{made + place:05d}") for place, question in enumerate(asked)]
        made += len(questions)
        pages = [article.page for article in articles]
        rng.shuffle(pages)
        yield pages, questions


def _region_sizes(pages: int) -> list[int]:
    """Return the sizes of almost equal regions."""
    size = min(REGION_PAGES, max(FEWEST_REGION_PAGES, pages // WANTED_REGIONS))
    count = max(1, pages // size)
    return [pages * (place + 1) // count - pages * place // count for place in range(count)]


def _page_ids(config: WorldConfig) -> list[str]:
    """Draw ids without order or meaning, all of one length."""
    digits = 4 if config.pages <= SHORT_ID_PAGES else 6
    while 9 * 10 ** (digits - 1) < config.pages:
        digits += 2
    numbers = Random(f"ids/{config.seed}").sample(range(10 ** (digits - 1), 10**digits), config.pages)
    return [str(number) for number in numbers]


def _quotas(issued: dict[str, int], total: int) -> dict[str, int]:
    """Return the numbers of questions of each kind that bring a world to `total` in the right mix; add them to `issued`."""
    targets = {kind: round(share * total) for kind, share in MIX.items()}
    targets["two_hop"] += total - sum(targets.values())
    quotas = {kind: max(0, target - issued[kind]) for kind, target in targets.items()}
    for kind, quota in quotas.items():
        issued[kind] += quota
    return quotas
