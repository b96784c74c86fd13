"""Exit codes, and which error leads to which."""

from slmsearch.errors import ConfigError, CorpusError, SlmSearchError

DONE = 0
NEGATIVE = 1
"""The work was done and its finding is negative: data are not valid, the decision is `reject`."""
USAGE = 2
"""Wrong usage or configuration."""
MISSING = 3
"""A service or resource is missing, broken or full."""
BUG = 70
"""An error nobody foresaw (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130


def exit_code(error: SlmSearchError | OSError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ConfigError):
        return USAGE
    return NEGATIVE if isinstance(error, CorpusError) else MISSING
