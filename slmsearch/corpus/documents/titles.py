"""Titles of the pages of a folder: what a file calls itself, without its site's name, and told apart where several say the same."""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

from slmsearch.corpus.documents.markdown import plain_heading
from slmsearch.corpus.documents.text import one_line
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import outline

MOST = 0.5
"""Share of a folder's titled pages that have the name of their site in their titles, at least."""
FEWEST = 4
"""So many have it at least: in a handful of pages a word may be shared by chance."""
STANDING_FOR_FOLDER = frozenset({"index", "_index", "readme"})
"""Names of files that speak for their folder, lower case."""
_SEPARATOR = re.compile(r"\s+(?:[-\u2013\u2014|\u00b7\u2022\u00bb\u203a:]|::)\s+")
"""Between a page's title and its site's name."""
_BRACKET = re.compile(r"\s+\((?=[^()]+\)$)")
"""Before a site's name that stands in brackets."""
_LISTED = re.compile(r"\[([^\[\]]+)\]\(([^()\s#]+)(?:#[^()]*)?\)")
_DEEPEST = 6


def name_page(place: str, given: str, content: str, listed: str = "") -> str:
    """Return a page's title: the given one, else a first-level heading that stands alone, else what its book lists, else its path's."""
    firsts = [heading for number, level, heading in outline(Page("", "", content))[1] if level == 1 and number >= 0]
    return one_line(given) or (firsts[0] if len(firsts) == 1 else "") or one_line(listed) or _name_of(PurePosixPath(place))


def listed_titles(contents: Mapping[str, str]) -> dict[str, str]:
    """Return what the tables of contents of books (mdBook's and GitBook's SUMMARY.md) call the files that they list, by place."""
    titles: dict[str, str] = {}
    for place, content in contents.items():
        path = PurePosixPath(place)
        if path.name.lower() == "summary.md":
            for name, target in _LISTED.findall(content):
                titles.setdefault(posixpath.normpath((path.parent / target).as_posix()), plain_heading(name))
    return titles


def _name_of(place: PurePosixPath) -> str:
    stands_for_folder = place.stem.lower() in STANDING_FOR_FOLDER and place.parent.name
    return place.parent.name if stands_for_folder else place.stem


def without_site(titles: Sequence[str], full_titles: Sequence[str] = ()) -> list[str]:
    """Remove what most titles of a folder begin or end with, next to a separator: the name of their site.

    Args:
        titles: to shorten.
        full_titles: what the files call themselves, where the titles are headings that may lack the site; empty where they are not.
    """
    shorter = list(titles)
    full = [long or title for title, long in zip_longest(titles, full_titles, fillvalue="")]
    for mark, at in ((_SEPARATOR, -1), (_SEPARATOR, 0), (_BRACKET, -1)):
        counts = Counter(mark.split(title)[at] for title in full if mark.search(title))
        site, count = counts.most_common(1)[0] if counts else ("", 0)
        if count >= max(FEWEST, MOST * len(titles)):
            shorter, full = ([_without(title, site, mark, at) for title in group] for group in (shorter, full))
    return shorter if shorter == list(titles) else without_site(shorter, full)


def _without(title: str, site: str, mark: re.Pattern[str], at: int) -> str:
    ends = [found.span() for found in mark.finditer(title)]
    if not ends or mark.split(title)[at] != site:
        return title
    return title[: ends[-1][0]] if at else title[ends[0][1] :]


def tell_apart(titles: Sequence[str], places: Sequence[str]) -> list[str]:
    """Add to titles that several pages share what tells them apart: their folder, or the file's name, or both."""
    sharing = defaultdict(list)
    for number, title in enumerate(titles):
        sharing[title.casefold()].append(number)
    told, taken = list(titles), {title for title, numbers in sharing.items() if len(numbers) == 1}
    for numbers in sharing.values():
        if len(numbers) == 1:
            continue
        folder = posixpath.commonpath([posixpath.dirname(places[number]) or "." for number in numbers])
        ways = list(zip(*(_ways(PurePosixPath(places[number]), folder) for number in numbers), strict=True))
        way = next((way for way in ways if len({name.casefold() for name in way}) == len(way) and all(way)), ways[-1])
        for number, name in zip(numbers, way, strict=True):
            marked = f"{titles[number]} ({name})"
            told[number] = marked if marked.casefold() not in taken else f"{titles[number]} ({places[number]})"
            taken.add(told[number].casefold())
    return told


def _ways(place: PurePosixPath, folder: str) -> tuple[str, ...]:
    """Return what may tell a page from others with its title, all in a folder, the shortest first."""
    inside = place.relative_to(folder)
    parent = inside.parent.as_posix().removeprefix(".")
    return place.parent.name, _name_of(place), place.name, parent, inside.with_suffix("").as_posix(), inside.as_posix()


def demote_headings(title: str, content: str) -> str:
    """Move all headings down by one where the first level is not the title's alone."""
    lines, headings = outline(Page("", "", content))
    firsts = [heading for number, level, heading in headings if level == 1 and number >= 0]
    if not firsts or (len(firsts) == 1 and one_line(firsts[0]).casefold() == title.casefold()):
        return content
    for number, level, _ in headings:
        if 0 < level < _DEEPEST and number >= 0:
            lines[number] = f"#{lines[number]}"
    return "\n".join(lines)
