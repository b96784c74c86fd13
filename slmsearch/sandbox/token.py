"""What the sandbox's server asks of its clients: a secret in a file that only their user can read.

Without it every user of the machine could run programs there, close the sessions of others, and read a corpus whose digest they know.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from slmsearch.config import RunConfig, SandboxConfig
from slmsearch.errors import SandboxError

TOKEN = Path("sandbox") / "token"
"""Where it lies under the data directory."""
OWN_HOSTS = ("127.0.0.1", "localhost", "::1")


def with_token(config: RunConfig) -> SandboxConfig:
    """Return the settings of the sandbox with its token: the configured one, or for this machine that of the data directory.

    Raises:
        SandboxError: the file cannot be made or read.
    """
    sandbox = config.sandbox
    if sandbox.token is not None or (sandbox.base_url and urlsplit(sandbox.base_url).hostname not in OWN_HOSTS):
        return sandbox
    path = Path(config.paths.data_dir) / TOKEN
    try:
        return sandbox.model_copy(update={"token": SecretStr(_read_or_make(path))})
    except (OSError, ValueError) as error:
        raise SandboxError(f"the sandbox's token cannot be read or made at {path} ({error}); fix its permissions") from error


def _read_or_make(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        whole = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):  # another process was faster
            os.link(whole, path)
        whole.unlink()
    token = path.read_text(encoding="ascii").strip()
    if not token:
        raise ValueError("it is empty")
    return token
