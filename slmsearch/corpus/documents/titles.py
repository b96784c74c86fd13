"""Titles of a folder's pages: a file's own title, without its site's name, made distinct if several pages share it."""

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
"""Minimum share of a folder's titled pages whose titles contain the name of their site."""
FEWEST = 4
"""Minimum number of such pages: in a handful of pages a word may be shared by chance."""
STANDING_FOR_FOLDER = frozenset({"index", "_index", "readme"})
"""Names of files that represent their folder, lower case."""
_SEPARATOR = re.compile(r"\s+(?:[-\u2013\u2014|\u00b7\u2022\u00bb\u203a:]|::)\s+")
"""Separator between a page's title and its site's name."""
_BRACKET = re.compile(r"\s+\((?=[^()]+\)$)")
"""Start of a site's name in brackets."""
_LISTED = re.compile(r"\[([^\[\]]+)\]\(([^()\s#]+)(?:#[^()]*)?\)")
_DEEPEST = 6


def name_page(place: str, given: str, content: str, listed: str = "") -> str:
    """Return a page's title: the given one, else a single first-level heading, else its entry in a table of contents, else its path's."""
    firsts = [heading for number, level, heading in outline(Page("", "", content))[1] if level == 1 and number >= 0]
    return one_line(given) or (firsts[0] if len(firsts) == 1 else "") or one_line(listed) or _name_of(PurePosixPath(place))


def listed_titles(contents: Mapping[str, str]) -> dict[str, str]:
    """Return the titles in tables of contents of books (SUMMARY.md of mdBook and GitBook), by path."""
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
    """Remove the name of the site: the common start or end, next to a separator, of most titles in a folder.

    Args:
        titles: titles to shorten.
        full_titles: titles with the site's name, if `titles` are headings that may lack it; else empty strings.
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
    """Make shared titles distinct by the folder, the file's name, or both."""
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
    """Return possible additions to a title, the same for a whole folder, the shortest first."""
    inside = place.relative_to(folder)
    parent = inside.parent.as_posix().removeprefix(".")
    return place.parent.name, _name_of(place), place.name, parent, inside.with_suffix("").as_posix(), inside.as_posix()


def demote_headings(title: str, content: str) -> str:
    """Lower all headings by one level unless the title is the only first-level heading."""
    lines, headings = outline(Page("", "", content))
    firsts = [heading for number, level, heading in headings if level == 1 and number >= 0]
    if not firsts or (len(firsts) == 1 and one_line(firsts[0]).casefold() == title.casefold()):
        return content
    for number, level, _ in headings:
        if 0 < level < _DEEPEST and number >= 0:
            lines[number] = f"#{lines[number]}"
    return "\n".join(lines)
