"""Errors, one class per boundary a run can break at.

A badly played episode is data and never one of these; these say that something around the model is missing or broken.
Every message is one line that names the cause and the remedy.
"""

from slmsearch.foreign import without_credentials


class SlmSearchError(Exception):
    """Base of every error this project raises on purpose; `boundary` names it in metrics (`errors/<boundary>`)."""

    boundary = "slmsearch"

    def __init_subclass__(cls, boundary: str = "") -> None:
        cls.boundary = boundary or cls.boundary

    def __init__(self, *args: object) -> None:
        """Take the message as one line; addresses in it lose `user:password@`, since it is logged, recorded and shown."""
        super().__init__(*(without_credentials(" ".join(part.split())) if isinstance(part, str) else part for part in args))


class ConfigError(SlmSearchError, boundary="config"):
    """A setting is unknown, malformed or contradicts another."""


class CorpusError(SlmSearchError, boundary="corpus"):
    """Pages or questions cannot be read, or do not hold what they must."""


class IndexUnusableError(SlmSearchError, boundary="index"):
    """An index version is missing, incomplete, damaged or made by another embedder."""


class EmbedderError(SlmSearchError, boundary="embedder"):
    """The embedding model cannot be loaded or did not answer."""


class ModelError(SlmSearchError, boundary="model"):
    """A policy model or adapter is missing, damaged or does not fit its base."""


class ContextError(ModelError):
    """A prompt is longer than the model's context."""


class GenerationError(SlmSearchError, boundary="generation"):
    """A served policy did not answer."""


class JudgeError(SlmSearchError, boundary="judge"):
    """The judge did not answer, or its verdict cannot be parsed."""


class SandboxError(SlmSearchError, boundary="sandbox"):
    """Programs cannot be run: there is no engine, or the sandbox does not answer."""


class EvaluationError(SlmSearchError, boundary="evaluation"):
    """Stored results are missing, damaged, or do not belong together."""


class CheckpointError(SlmSearchError, boundary="checkpoint"):
    """A checkpoint or a training directory is damaged or belongs to another run."""


class PreflightError(SlmSearchError, boundary="preflight"):
    """A check before training says that the run cannot succeed."""


class TrainingError(SlmSearchError, boundary="training"):
    """Training ended before its last step, or refuses to start."""


class PromotionError(SlmSearchError, boundary="promotion"):
    """The champion is no longer the one that was decided about, or cannot be moved."""


class ServiceError(SlmSearchError, boundary="service"):
    """Prefect, MLflow, a model server or another one cannot be started or reached."""


def error_of(boundary: str, message: str, default: type[SlmSearchError]) -> SlmSearchError:
    """Make the error of a boundary that broke in another process."""
    kinds = {kind.boundary: kind for kind in SlmSearchError.__subclasses__()}
    return kinds.get(boundary, default)(message)
