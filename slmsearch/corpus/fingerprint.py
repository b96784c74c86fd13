"""A key for what a configured source would give, without loading it."""

from pathlib import Path

from slmsearch.config import CorpusConfig
from slmsearch.corpus.hub import hub_commit
from slmsearch.corpus.sources import HUB_PREFIX
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key, file_key


def source_key(config: CorpusConfig) -> str | None:
    """Hash everything that decides what a materialised corpus holds: settings, files, commits, and the code that reads or makes it.

    Returns:
        The key, or None where it cannot be known: a Hub data set while the Hub does not answer.

    Raises:
        CorpusError: a file cannot be read.
    """
    prints = [_print(source, config.revision) for source in (config.pages, config.questions)]
    if any(source is not None and made is None for source, made in zip((config.pages, config.questions), prints, strict=True)):
        return None
    return content_key(
        code=_code_key(),
        sources=prints,
        world=None if config.pages is not None else config.world.model_dump(),
        split_seed=config.split_seed,
        limit_pages=config.limit_pages,
    )


def _print(source: str | None, revision: str | None) -> str | None:
    if source is None:
        return None
    name = source.removeprefix(HUB_PREFIX)
    path = Path(name)
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return content_key(folder=[[file.relative_to(path).as_posix(), file_key(file)] for file in files])
        if source != name:
            commit = revision or hub_commit(name)
            return commit and content_key(hub=name, commit=commit)
        # A missing file gets its own message where it is loaded. The suffix decides how bytes are read.
        return content_key(file=file_key(path), suffix=path.suffix) if path.is_file() else "missing"
    except OSError as error:
        raise CorpusError(f"{source} cannot be read ({error.strerror or error}); check its permissions") from error


def _code_key() -> str:
    """Hash this package's code: a change of the generator or of a reader may change what comes out."""
    here = Path(__file__).parent
    return file_key(*sorted(here.rglob("*.py")))
