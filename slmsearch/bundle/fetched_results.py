"""Archives of results that `run.sh` writes, read on the machine that created the bundle."""

import json
import tarfile
import zlib
from pathlib import Path

from slmsearch.errors import ConfigError
from slmsearch.foreign import cause_of

WANTED: dict[str, tuple[type, ...]] = {"machine": (str,), "gpu": (str, type(None)), "bundle": (str,), "finished": (bool,)}
"""Required keys of `results.json`, with their types."""


def unpack_results(archive: Path, folder: Path) -> dict[str, object]:
    """Unpack an archive of results into an empty folder; return the content of `results.json`.

    Raises:
        ConfigError: the file is no such archive, or is truncated or damaged.
    """
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
            while tar.fileobj and tar.fileobj.read(1 << 20):  # up to the checksum, which is the last
                pass
        facts = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{archive}: {error.filename or 'it'} is missing; `run.sh` writes such an archive") from error
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise ConfigError(f"{archive} is no archive of results, or was cut off or damaged ({cause_of(error)}); copy it again") from error
    if not isinstance(facts, dict) or any(not isinstance(facts.get(name, ...), kind) for name, kind in WANTED.items()):
        raise ConfigError(f"{archive}: results.json lacks one of {', '.join(WANTED)}; give an archive that `run.sh` wrote")
    return facts
