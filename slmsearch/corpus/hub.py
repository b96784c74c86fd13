"""Data sets of the Hugging Face Hub, through `datasets`; a local folder of the same schema stands in for one in tests.

Known schemas: `willcb/rare-wiki-pages` (`id, title, content`) and `willcb/wiki-trivia-questions-v4`
(`question, answer, filename`). Only the split `train` is read: neither set has another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slmsearch.corpus.records import Row
from slmsearch.errors import CorpusError
from slmsearch.foreign import cause_of

HUB_PREFIX = "hub:"
HUB_TIMEOUT_S = 10.0
SUBSETS = {"openai/gsm8k": "main"}
"""Configuration that is read of a set that has several, where its name gives none."""


@dataclass(frozen=True, slots=True)
class HubName:
    """Which data set, and what of it."""

    name: str
    """`owner/name`, or the path of a local folder."""
    subset: str | None = None
    commit: str | None = None

    def find_commit(self) -> str | None:
        """Return the commit; where none was given the newest, or the cached one without a network. None where that cannot be known."""
        from huggingface_hub import snapshot_download

        if self.commit or Path(self.name).is_dir():
            return self.commit
        try:
            # A snapshot's folder is named by its commit; this file is small and in every data set.
            folder = snapshot_download(self.name, repo_type="dataset", allow_patterns=[".gitattributes"], etag_timeout=HUB_TIMEOUT_S)
        except (OSError, ValueError):
            return None
        return Path(folder).name


def parse_hub_name(source: str) -> HubName:
    """Read `hub:owner/name`, `hub:owner/name/subset`, either with `@commit`; a local folder may stand in for the name."""
    text = source.removeprefix(HUB_PREFIX)
    if Path(text).is_dir():
        return HubName(text)
    text, _, commit = text.partition("@")
    owner, _, rest = text.partition("/")
    name, _, subset = rest.partition("/")
    name = f"{owner}/{name}" if rest else owner
    return HubName(name, subset or SUBSETS.get(name), commit or None)


def load_hub_rows(source: str) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a data set's `train` split, and where they stand; of its newest commit, or what the cache holds without a network.

    Raises:
        CorpusError: the set is not there, or cannot be fetched or read.
    """
    import pyarrow as pa
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    hub = parse_hub_name(source)
    name = hub.name
    try:
        rows = load_dataset(name, hub.subset, revision=hub.find_commit(), split="train")
    except (OSError, ValueError, DatasetsError, pa.ArrowException) as error:
        cause = cause_of(error)
        raise CorpusError(f"hub:{name} cannot be loaded ({cause}); check the name, go online once, or give local files") from error
    for number, row in enumerate(rows, start=1):
        # wiki-trivia holds answers of several types; all are text here.
        yield ({**row, "answer": str(row["answer"])} if row.get("answer") is not None else row), f"hub:{name} row {number}"
