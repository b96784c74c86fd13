"""Data sets of the Hugging Face Hub: `hub:owner/name[/subset][:split][@commit]` in `corpus.pages` and `corpus.questions`.

`hub:FOLDER` reads a local folder of the same files. Downloads stay in the Hub's shared cache.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slmsearch.corpus.packages import Origin
from slmsearch.corpus.records import Row
from slmsearch.errors import CorpusError
from slmsearch.foreign import cause_of, one_line
from slmsearch.keys import content_key, file_key

HUB_PREFIX = "hub:"
HUB_TIMEOUT_S = 10.0
SUBSETS = {"openai/gsm8k": "main"}
"""Default configuration of sets with several."""
SPLIT = "train"
"""Default split."""
CARD = "README.md"
MAX_LICENCE_CHARS = 100
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubName:
    """Name of a data set with subset, split and commit."""

    name: str
    """`owner/name`, or the path of a local folder."""
    subset: str | None = None
    commit: str | None = None
    """Commit, branch or tag."""
    split: str | None = None

    @property
    def is_local(self) -> bool:
        """True if the name is a local folder."""
        return Path(self.name).is_dir()

    def find_commit(self) -> str | None:
        """Return the commit: the given one, else the newest, or without a network the cached one. None if it cannot be determined."""
        if self.is_local or (self.commit and _COMMIT.fullmatch(self.commit)):
            return self.commit
        try:
            return self.fetch_card().name
        except CorpusError:
            return None

    def fetch_card(self) -> Path:
        """Return the folder with the data set's card, downloaded or cached; its name is the commit.

        Raises:
            CorpusError: the set or commit does not exist, or the Hub does not answer and the cache does not hold it.
        """
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError

        if self.is_local:
            return Path(self.name)
        # Every data set has one of the two.
        files = [".gitattributes", CARD]
        fetch = partial(snapshot_download, repo_type="dataset", allow_patterns=files, etag_timeout=HUB_TIMEOUT_S)
        try:
            return Path(fetch(self.name, revision=self.commit))
        except (HTTPError, OSError, ValueError) as error:
            # Without a network the library reports at length that the cache is empty; its cause gives the reason.
            raise self._failure(error.__cause__ if isinstance(error, LocalEntryNotFoundError) and error.__cause__ else error) from error

    def load_rows(self) -> Iterator[Row]:
        """Yield the rows of the split.

        Raises:
            CorpusError: the set, subset, split or commit does not exist, or cannot be fetched or read.
        """
        import pyarrow as pa
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
        from huggingface_hub.errors import HTTPError
        from yaml import YAMLError

        commit = None if self.is_local else self.fetch_card().name
        try:
            rows = load_dataset(self.name, self.subset, revision=commit, split=self.split or SPLIT)
        except (HTTPError, OSError, ValueError, DatasetsError, pa.ArrowException, YAMLError) as error:
            raise self._failure(error) from error
        # Without an answer of the Hub the library takes the rows of any cached commit, whose name their folder bears.
        cached = {Path(file["filename"]).parent.name for file in rows.cache_files}
        if commit and cached and commit not in cached:
            raise self._failure(f"the Hub does not answer, and the cache holds another commit than {commit[:12]}")
        yield from rows

    def find_origin(self) -> Origin | None:
        """Return licence and attribution of the texts, if the set's card states a licence."""
        from huggingface_hub import metadata_load
        from yaml import YAMLError

        try:
            folder = self.fetch_card()
            card = metadata_load(str(folder / CARD)) or {}
        except (CorpusError, OSError, ValueError, YAMLError):
            return None
        stated = card.get("license_name") if card.get("license") == "other" else card.get("license")
        licence = one_line(", ".join(map(str, stated)) if isinstance(stated, list) else str(stated or ""))[:MAX_LICENCE_CHARS]
        if licence in ("", "unknown"):
            return None
        name = folder.name if self.is_local else f"{self.name} at commit {folder.name[:12]}"
        return Origin(licence, f"the Hugging Face data set {name}; its card names the authors")

    def fingerprint(self) -> str | None:
        """Hash everything that decides the rows; None if the commit cannot be determined."""
        named = {key: value for key, value in (("subset", self.subset), ("split", self.split)) if value}
        if self.is_local:
            folder = Path(self.name)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            return content_key(folder=[[path.relative_to(folder).as_posix(), file_key(path)] for path in files], **named)
        commit = self.find_commit()
        return commit and content_key(hub=self.name, commit=commit, **named)

    def _failure(self, error: object) -> CorpusError:
        return CorpusError(f"hub:{self.name} cannot be loaded ({cause_of(error)}); check the name, go online once, or give local files")


def parse_hub_name(source: str) -> HubName:
    """Parse `hub:owner/name[/subset][:split][@commit]`; the name may be a local folder."""
    text = source.removeprefix(HUB_PREFIX)
    if Path(text).is_dir():
        return HubName(text)
    text, _, commit = text.partition("@")
    text, _, split = text.partition(":")
    owner, _, rest = text.partition("/")
    name, _, subset = rest.partition("/")
    name = f"{owner}/{name}" if rest else owner
    return HubName(name, subset or SUBSETS.get(name), commit or None, split or None)


def load_hub_rows(source: str) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a data set with their locations: of its newest commit, or without a network of the cached one.

    Raises:
        CorpusError: the set does not exist, or cannot be fetched or read.
    """
    hub = parse_hub_name(source)
    for number, row in enumerate(hub.load_rows(), start=1):
        # wiki-trivia has answers of several types; all become text.
        yield ({**row, "answer": str(row["answer"])} if row.get("answer") is not None else row), f"hub:{hub.name} row {number}"


def is_on_hub(source: str | None) -> bool:
    """Return whether a source is a data set of the Hub."""
    return source is not None and source.startswith(HUB_PREFIX)
