"""Data sets of the Hugging Face Hub, through `datasets`; a local folder of the same schema stands in for one in tests.

Known schemas: `willcb/rare-wiki-pages` (`id, title, content`) and `willcb/wiki-trivia-questions-v4`
(`question, answer, filename`). Only the split `train` is read: neither set has another.
"""

from collections.abc import Iterator
from pathlib import Path

from slmsearch.corpus.records import Row
from slmsearch.errors import CorpusError

HUB_TIMEOUT_S = 10.0


def load_hub_rows(name: str, revision: str | None, subset: str | None = None) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a data set's `train` split, and where they stand.

    Args:
        name: `owner/name`, or the path of a local folder.
        revision: commit; None takes the newest, or what the cache holds where there is no network.
        subset: configuration of a set that has several.

    Raises:
        CorpusError: the set is not there, or cannot be fetched or read.
    """
    import pyarrow as pa
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    is_local = Path(name).is_dir()
    try:
        rows = load_dataset(name, None if is_local else subset, revision=None if is_local else revision or hub_commit(name), split="train")
    except (OSError, ValueError, DatasetsError, pa.ArrowException) as error:
        cause = " ".join(str(error).split())[:200]
        raise CorpusError(f"hub:{name} cannot be loaded ({cause}); check the name, go online once, or give local files") from error
    for number, row in enumerate(rows, start=1):
        # wiki-trivia holds answers of several types; all are text here.
        yield ({**row, "answer": str(row["answer"])} if row.get("answer") is not None else row), f"hub:{name} row {number}"


def hub_commit(name: str) -> str | None:
    """Find a data set's newest commit, or the cached one without a network; None for a local folder and if there is neither."""
    from huggingface_hub import snapshot_download

    if Path(name).is_dir():
        return None
    try:
        # A snapshot's folder is named by its commit; this file is small and in every data set.
        folder = snapshot_download(name, repo_type="dataset", allow_patterns=[".gitattributes"], etag_timeout=HUB_TIMEOUT_S)
    except (OSError, ValueError):
        return None
    return Path(folder).name
