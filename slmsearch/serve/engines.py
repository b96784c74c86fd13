"""The engines by name."""

from slmsearch.errors import ConfigError
from slmsearch.serve.engine import ENGINES, OPENAI_PORTS, Engine
from slmsearch.serve.llamacpp import LlamaCpp
from slmsearch.serve.ollama import PORT, Ollama
from slmsearch.serve.request import Role
from slmsearch.serve.transformers import Transformers
from slmsearch.serve.vllm import Vllm


def make_engine(name: str) -> Engine:
    """Return an engine by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    for made in (Ollama, LlamaCpp, Vllm, Transformers):
        if made.name == name:
            return made()
    raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")


def default_port(engine: str, role: Role) -> int:
    """Return the port a role's server listens on unless told otherwise."""
    return PORT if engine == "ollama" else OPENAI_PORTS[role]
