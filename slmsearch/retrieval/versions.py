"""Index versions on disk: immutable directories named by their key, and the pointer `CURRENT`.

- `<key>/manifest.json`: written last; a version without it does not exist;
- `<key>/vectors.npy`: float32 `[passages, dimension]`, unit length;
- `<key>/passages.jsonl`: page and section of each row;
- `<key>/chroma/`: the same vectors and their texts as a Chroma collection;
- `CURRENT`: key of the version readers take unless told otherwise.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from slmsearch.errors import IndexUnusableError
from slmsearch.keys import content_key, file_key
from slmsearch.staging import STAGING_PREFIX, replace_text

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
VECTORS = "vectors.npy"
PASSAGES = "passages.jsonl"
CHROMA = "chroma"
CURRENT = "CURRENT"
REMEDY = "build it with `slmsearch index build`"


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index version was made from and what it holds."""

    key: str
    pages_digest: str
    """Of the corpus' pages; questions do not matter here."""
    embedder_id: str
    embedder_revision: str
    dimension: int
    pages: int
    passages: int
    max_passage_chars: int
    hnsw_ef_construction: int
    hnsw_max_neighbors: int
    chunker_version: int
    files_key: str
    """Hash of `vectors.npy` and `passages.jsonl`."""
    recall: float
    """Of Chroma's approximate search against brute force, measured on a sample when it was built."""
    seconds: float
    """Wall time of the build."""
    format_version: int = FORMAT_VERSION


def read_version(index_dir: Path, key: str) -> IndexManifest:
    """Read and check the manifest of a version.

    Raises:
        IndexUnusableError: there is no such version, or it is damaged.
    """
    path = index_dir / key / MANIFEST
    if not key or "/" in key or key.startswith("."):
        raise IndexUnusableError(f"{key!r} is no index key; list them with `slmsearch index list`")
    if not path.is_file():
        raise IndexUnusableError(f"index version {key} is not in {index_dir}; {REMEDY}")
    try:
        manifest = IndexManifest(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise IndexUnusableError(f"manifest of index version {key} cannot be read ({error}); delete {path.parent} and {REMEDY}") from error
    if manifest.key != key or manifest.format_version != FORMAT_VERSION:
        raise IndexUnusableError(f"index version {key} has the manifest of another; delete {path.parent} and {REMEDY}")
    return manifest


def is_complete(version: Path) -> bool:
    """Tell whether a directory holds a complete, undamaged version."""
    try:
        manifest = read_version(version.parent, version.name)
        return (version / CHROMA / "chroma.sqlite3").is_file() and files_key(version) == manifest.files_key
    except (IndexUnusableError, OSError):
        return False


def files_key(version: Path) -> str:
    """Hash what search reads."""
    return file_key(version / VECTORS, version / PASSAGES)


def write_manifest(directory: Path, manifest: IndexManifest) -> None:
    """Write the manifest; the last thing done to a version."""
    (directory / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")


def list_versions(index_dir: Path) -> list[IndexManifest]:
    """Return the manifests of all readable versions, by key; damaged ones are left out."""
    found = []
    for path in sorted(index_dir.glob(f"*/{MANIFEST}")):
        if path.parent.name.startswith(STAGING_PREFIX):
            continue
        try:
            found.append(read_version(index_dir, path.parent.name))
        except IndexUnusableError:
            continue
    return found


def current_key(index_dir: Path) -> str | None:
    """Return the key `CURRENT` points to, or None if nothing was built yet."""
    try:
        return (index_dir / CURRENT).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def set_current(index_dir: Path, key: str) -> None:
    """Point `CURRENT` to a complete version.

    Raises:
        IndexUnusableError: there is no such version, or the pointer cannot be written.
    """
    read_version(index_dir, key)
    try:
        replace_text(index_dir / CURRENT, key + "\n")
    except OSError as error:
        raise IndexUnusableError(f"{index_dir / CURRENT} cannot be written ({error}); check disk space and permissions") from error


def version_key(pages_digest: str, embedder_id: str, embedder_revision: str, chunking: dict[str, int], hnsw: dict[str, int]) -> str:
    """Name a version by what it is made from."""
    return content_key(format=FORMAT_VERSION, pages=pages_digest, embedder=[embedder_id, embedder_revision], chunking=chunking, hnsw=hnsw)
