"""Whole worlds, in memory or streamed to files.

A world is made region by region; of what is behind, only the names and page ids used are kept.
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
"""Pages of a region in a world large enough."""
FEWEST_REGION_PAGES = 13
"""Every kind once, two towns, two persons, and one to spare."""
WANTED_REGIONS = 12
"""A small world has smaller regions, so that there is something to split."""
SHORT_ID_PAGES = 9_000
"""Largest world with page ids of four digits, which small models copy best."""


@dataclass(frozen=True, slots=True)
class World:
    """A generated encyclopedia and the questions about it."""

    pages: list[Page]
    questions: list[Question]


def generate_world(config: WorldConfig, unheard_of: float = 0.0) -> World:
    """Make a world in memory; the same arguments give the same world, byte for byte.

    Args:
        config: what to make.
        unheard_of: questions about names nobody bears that are asked beyond the usual ones, for each of those.
    """
    world = World([], [])
    for pages, questions in _regions(config, unheard_of):
        world.pages.extend(pages)
        world.questions.extend(questions)
    return world


def write_world(config: WorldConfig, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write the world of `config` to `pages.jsonl` and `questions.jsonl`, holding one region at a time.

    Args:
        config: what to make.
        out: folder, made if missing; files there are replaced only by complete ones.
        progress: called with the pages written so far and the pages in all, after each region.

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
    """Cut a world into regions of almost equal size."""
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
    """Say how many questions of each kind bring a world to `total` in the right mix; notes them in `issued`."""
    targets = {kind: round(share * total) for kind, share in MIX.items()}
    targets["two_hop"] += total - sum(targets.values())
    quotas = {kind: max(0, target - issued[kind]) for kind, target in targets.items()}
    for kind, quota in quotas.items():
        issued[kind] += quota
    return quotas
