"""A bundle on disk: `run.sh`, the script that it starts, a manifest with every hash, and the files, as they are or in archives.

A file larger than an archive is split over several archives; the script on the other side joins the pieces.
"""

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from slmsearch.artifacts.files import file_hash, replace_file, replace_text
from slmsearch.bundle.remote import FILES, MANIFEST, Archive, PackedFile
from slmsearch.errors import ConfigError

SCRIPT = "bundle.py"
LEAST_MB = 1
_ROOM = 1 << 16
"""Bytes reserved for an archive's own structure: headers, long names, padding at the end."""
_HEADER = 2048
"""Bytes of a member beside its content: header, a header for a long name, padding."""
_RUN = """#!/bin/sh
# Installs slmsearch without a network and trains: ./run.sh; ./run.sh --help says more.
here=$(cd "$(dirname "$0")" && pwd) || exit 3
if ! (cd "$here" && printf '%s\\n' '{script_hash}  {script}' '{manifest_hash}  {manifest}' | sha256sum --check --status); then
  echo "run.sh: {script} or {manifest} is missing or was not copied whole; copy both again" >&2
  exit 3
fi
exec "${{PYTHON:-python3}}" "$here/{script}" "$@"
"""


def pack(out: Path, files: Mapping[str, Path], facts: Mapping[str, object], max_mb: int | None) -> list[Archive]:
    """Write a bundle into a directory: the manifest second to last, `run.sh` last.

    Args:
        out: an empty directory.
        files: path on the other side -> file here.
        facts: further entries of the manifest, for the script on the other side.
        max_mb: size of an archive at most, in millions of bytes; None leaves the files as they are, in a folder.

    Raises:
        ConfigError: an archive may hold less than 1 MB.
    """
    if max_mb is not None and max_mb < LEAST_MB:
        raise ConfigError(f"--max-mb is {max_mb}; an archive holds at least {LEAST_MB} MB")
    packed = [PackedFile(path, source.stat().st_size, file_hash(source)) for path, source in sorted(files.items())]
    archives: list[Archive] = []
    if max_mb is None:
        for path, source in files.items():
            _link(source, out / FILES / path)
    else:
        limit = max_mb * 1_000_000 - _ROOM  # also the limit of a piece, whose header is counted with it
        packed = [_cut(file, limit - _HEADER) for file in packed]
        archives = list(_write_archives(out, packed, files, limit))
    manifest = {**facts, "files": [asdict(file) for file in packed], "archives": [asdict(archive) for archive in archives]}
    replace_text(out / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    replace_text(out / SCRIPT, Path(__file__).with_name("remote.py").read_text(encoding="utf-8"))
    hashes = {"script_hash": file_hash(out / SCRIPT), "manifest_hash": file_hash(out / MANIFEST)}
    replace_text(out / "run.sh", _RUN.format(script=SCRIPT, manifest=MANIFEST, **hashes))
    (out / "run.sh").chmod(0o755)
    return archives


def _cut(file: PackedFile, limit: int) -> PackedFile:
    return PackedFile(file.path, file.bytes, file.sha256, -(-file.bytes // limit) if file.bytes > limit else 0)


def _write_archives(out: Path, packed: list[PackedFile], files: Mapping[str, Path], limit: int) -> Iterator[Archive]:
    """Fill archives one after the other, the largest pieces first; hash each one when it is full."""
    members = sorted(_members(packed, files, limit), key=lambda member: -member[2])
    fills: list[tuple[int, list[tuple[str, Path, int, int]]]] = []
    for name, source, length, offset in members:
        taken = length + _HEADER
        place = next((i for i, (full, _) in enumerate(fills) if full + taken <= limit), None)
        if place is None:
            fills.append((taken, [(name, source, length, offset)]))
        else:
            fills[place] = (fills[place][0] + taken, [*fills[place][1], (name, source, length, offset)])
    for number, (_, held) in enumerate(fills, 1):
        path = out / f"slmsearch-{number:02d}.tar"
        with replace_file(path) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, source, length, offset in held:
                with source.open("rb") as content:
                    content.seek(offset)
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = length, 0o644
                    tar.addfile(info, content)
        yield Archive(path.name, path.stat().st_size, file_hash(path))


def _members(packed: list[PackedFile], files: Mapping[str, Path], limit: int) -> Iterator[tuple[str, Path, int, int]]:
    """Yield name, source, length and offset of every member of the archives."""
    size = limit - _HEADER
    for file in packed:
        if not file.pieces:
            yield file.path, files[file.path], file.bytes, 0
        for number in range(file.pieces):
            offset = number * size
            yield f"{file.path}.piece{number:03d}", files[file.path], min(size, file.bytes - offset), offset


def _link(source: Path, target: Path) -> None:
    """Hard-link a file to a second path; copy it to another file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)  # of a link its file: caches of models hold links
    except OSError:
        shutil.copyfile(source, target)
