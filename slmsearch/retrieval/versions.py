"""Index versions on disk: immutable directories named by their keys, and the pointer `CURRENT`.

- `<key>/manifest.json`: written last; a version without it does not exist;
- `<key>/vectors.npy`: float32 `(passages, dimension)`, unit length;
- `<key>/passages.jsonl`: page and section of each row;
- `<key>/keys.npy`: uint64 `(passages, 2)`, hashes of each row's text and of its vector;
- `<key>/lexical/`: the BM25 index of the same rows;
- `<key>/chroma/`: the distinct vectors as a Chroma collection, unless a server holds it;
- `CURRENT`: key of the version that readers use by default;
- `HISTORY`: keys that `CURRENT` has held, the last one last.

Readers hold a lease: a shared lock on the version's manifest. Removing a version requires an exclusive one.
"""

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from slmsearch.artifacts.directories import SEAL, find_damage, read_seal
from slmsearch.artifacts.files import replace_text
from slmsearch.errors import IndexUnusableError
from slmsearch.keys import file_key
from slmsearch.retrieval import lexical
from slmsearch.retrieval.vectors import Keys

FORMAT_VERSION = 3
MANIFEST = "manifest.json"
VECTORS = "vectors.npy"
PASSAGES = "passages.jsonl"
KEYS = "keys.npy"
LEXICAL = "lexical"
CHROMA = "chroma"
GRAPH_WRITTEN = "index_metadata.pickle"
"""File beside those of a graph that Chroma has written as a whole: one of 1,000 vectors or more."""
CURRENT = "CURRENT"
HISTORY = "HISTORY"
REMEMBERED = 100
"""Number of keys kept in `HISTORY`."""
REMEDY = "build it with `slmsearch index build`"


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """Source and content of an index version."""

    key: str
    pages_digest: str
    """Digest of the corpus' pages; questions do not count."""
    embedder_id: str
    embedder_revision: str
    dimension: int
    pages: int
    passages: int
    max_passage_chars: int
    hnsw_ef_construction: int
    hnsw_max_neighbors: int
    chunker_version: int
    lexical_version: int
    embedded: int
    """Number of texts embedded for this version; earlier versions supplied the other vectors."""
    base: str | None
    """Version whose graph was copied and updated; None if the graph was built whole."""
    stale: int
    """Number of vectors removed from the graph since it was built whole."""
    chroma_url: str | None
    """Server that holds the collection; None if it is in the version's directory."""
    files_key: str
    """Hash of the files that search reads, without Chroma's."""
    recall: float
    """Recall of Chroma's approximate search against brute force, measured on a sample at build time."""
    seconds: float
    """Wall time of the build, in seconds."""
    format_version: int = FORMAT_VERSION


def read_version(index_dir: Path, key: str) -> IndexManifest:
    """Load and check the manifest of a version.

    Raises:
        IndexUnusableError: the version is missing or damaged.
    """
    require_key(key)
    path = index_dir / key / MANIFEST
    if not path.is_file():
        raise IndexUnusableError(f"index version {key} is not in {index_dir}; {REMEDY}")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(fields, dict) and fields.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
            raise IndexUnusableError(f"index version {key} has format {fields['format_version']}, not {FORMAT_VERSION}; {REMEDY}")
        manifest = IndexManifest(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise IndexUnusableError(f"manifest of index version {key} cannot be read ({error}); delete {path.parent} and {REMEDY}") from error
    if manifest.key != key:
        raise IndexUnusableError(f"index version {key} has the manifest of another; delete {path.parent} and {REMEDY}")
    return manifest


def require_key(key: str) -> None:
    """Refuse a key that cannot name a version.

    Raises:
        IndexUnusableError: the key is a path.
    """
    if not key or "/" in key or key.startswith("."):
        raise IndexUnusableError(f"{key!r} is no index key; list them with `slmsearch index list`")


def require_complete(index_dir: Path, key: str) -> IndexManifest:
    """Load the manifest of a version and check its files.

    Raises:
        IndexUnusableError: the version is missing or damaged.
    """
    manifest = read_version(index_dir, key)
    if not is_complete(index_dir / key):
        raise IndexUnusableError(f"index version {key} is damaged: its files do not match its manifest; delete it and {REMEDY}")
    return manifest


def is_complete(version: Path) -> bool:
    """Return True if a directory holds a complete, undamaged version."""
    try:
        manifest = read_version(version.parent, version.name)
        has_collection = manifest.chroma_url is not None or (version / CHROMA / "chroma.sqlite3").is_file()
        return has_collection and files_key(version) == manifest.files_key
    except (IndexUnusableError, OSError):
        return False


def files_key(version: Path) -> str:
    """Hash the files that search reads, without Chroma's, which Chroma may touch on opening."""
    return file_key(version / VECTORS, version / PASSAGES, version / KEYS, *(version / LEXICAL / name for name in lexical.FILES))


def unsealed_files(version: Path) -> list[str]:
    """Return the files that change when Chroma opens a version: its database, and a graph too small to be written as a whole."""
    files = [path for path in (version / CHROMA).rglob("*") if path.is_file()]
    whole = {path.parent for path in files if path.name == GRAPH_WRITTEN}
    return [path.relative_to(version).as_posix() for path in files if path.parent not in whole]


def find_graph_damage(version: Path) -> str | None:
    """Return the name of the first file of Chroma's graph that changed since publication; None if none did.

    Chroma trusts these files: one changed byte may crash the process that opens them with a segmentation fault.
    """
    try:
        sealed = read_seal(version) or {}
    except ValueError:
        return SEAL
    damage = find_damage(version, {name: digest for name, digest in sealed.items() if name.startswith(f"{CHROMA}/")})
    return damage and damage.partition(" ")[0]


def require_graph(version: Path) -> None:
    """Refuse a version with a damaged graph before Chroma opens it.

    Raises:
        IndexUnusableError: a file has changed or is missing.
    """
    if damaged := find_graph_damage(version):
        raise IndexUnusableError(
            f"index version {version.name} is damaged: {damaged} is not what was written; delete {version} and {REMEDY}"
        )


def read_keys(version: Path) -> tuple[Keys, Keys]:
    """Load the hashes of each row's text, and of its vector."""
    keys: NDArray[np.uint64] = np.load(version / KEYS)
    return keys[:, 0], keys[:, 1]


def list_versions(index_dir: Path) -> list[IndexManifest]:
    """Return the manifests of all readable versions, by key; damaged ones are left out."""
    found = []
    for path in sorted(index_dir.glob(f"*/{MANIFEST}")):
        try:
            found.append(read_version(index_dir, path.parent.name))
        except IndexUnusableError:
            continue
    return found


def current_key(index_dir: Path) -> str | None:
    """Return the key in `CURRENT`, or None if no version was built yet."""
    try:
        return (index_dir / CURRENT).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def set_current(index_dir: Path, key: str) -> None:
    """Point `CURRENT` to a complete version, and record it in `HISTORY`.

    Raises:
        IndexUnusableError: the version is missing, or the pointer cannot be written.
    """
    with pointer_lock(index_dir):
        read_version(index_dir, key)
        known = [name for name in history(index_dir) if name != key]
        try:
            # The history first: after a kill in between it names a version that is not current, as it always may.
            replace_text(index_dir / HISTORY, "".join(f"{name}\n" for name in [*known, key][-REMEMBERED:]))
            replace_text(index_dir / CURRENT, key + "\n")
        except OSError as error:
            raise IndexUnusableError(f"{index_dir / CURRENT} cannot be written ({error}); check disk space and permissions") from error


def history(index_dir: Path) -> list[str]:
    """Return the keys that `CURRENT` has held, each once, in order, the latest last."""
    try:
        return (index_dir / HISTORY).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []


def pointer_lock(index_dir: Path) -> FileLock:
    """Return the lock for moving `CURRENT` and removing versions."""
    return FileLock(index_dir / ".pointer.lock")


def lease(version: Path, alone: bool = False) -> IO[str]:
    """Lock a version's manifest until the returned file is closed, shared with other readers or exclusively.

    Raises:
        IndexUnusableError: another process reads or removes the version.
        OSError: the version does not exist.
    """
    file = (version / MANIFEST).open(encoding="utf-8")
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise IndexUnusableError(f"index version {version.name} is {'in use' if alone else 'being removed'}; {REMEDY}") from error
    return file
