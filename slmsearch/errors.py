"""Errors, one class per boundary at which a run can fail.

A badly played episode is data, never an error; an error means that something around the model is missing or broken. Every message is one
line that names the cause and the remedy.
"""

from slmsearch.foreign import without_credentials


class SlmSearchError(Exception):
    """Base of every error that this project raises on purpose; `boundary` names it in metrics (`errors/<boundary>`)."""

    boundary = "slmsearch"

    def __init_subclass__(cls, boundary: str = "") -> None:
        cls.boundary = boundary or cls.boundary

    def __init__(self, *args: object) -> None:
        """Join the message to one line and remove `user:password@` from addresses, since it is logged, recorded and shown."""
        super().__init__(*(without_credentials(" ".join(part.split())) if isinstance(part, str) else part for part in args))


class ConfigError(SlmSearchError, boundary="config"):
    """Error in settings: one is unknown, malformed or contradicts another."""


class CorpusError(SlmSearchError, boundary="corpus"):
    """Error in a corpus: pages or questions cannot be read, or lack required content."""


class InvalidDataError(CorpusError):
    """Error of data with critical findings, which have been shown and recorded."""


class IndexUnusableError(SlmSearchError, boundary="index"):
    """Error in an index version: it is missing, incomplete, damaged or made by another embedder."""


class EmbedderError(SlmSearchError, boundary="embedder"):
    """Error of an embedding model: it cannot be loaded or did not answer."""


class ModelError(SlmSearchError, boundary="model"):
    """Error of a policy model or adapter: it is missing, damaged or does not fit its base."""


class ContextError(ModelError):
    """Error of a prompt that is longer than the model's context."""


class GenerationError(SlmSearchError, boundary="generation"):
    """Error of a served policy that did not answer."""


class JudgeError(SlmSearchError, boundary="judge"):
    """Error of a judge: it did not answer, or its verdict cannot be parsed."""


class SandboxError(SlmSearchError, boundary="sandbox"):
    """Error of the sandbox: there is no engine, or the sandbox does not answer."""


class EvaluationError(SlmSearchError, boundary="evaluation"):
    """Error in stored results: they are missing, damaged, or do not belong together."""


class CheckpointError(SlmSearchError, boundary="checkpoint"):
    """Error in a checkpoint or training directory: it is damaged or belongs to another run."""


class PreflightError(SlmSearchError, boundary="preflight"):
    """Error of a check before training: the run cannot succeed."""


class TrainingError(SlmSearchError, boundary="training"):
    """Error of a training that ended before its last step, or refuses to start."""


class NotWorthItError(TrainingError):
    """Error of a training that its forecast has held."""


class PromotionError(SlmSearchError, boundary="promotion"):
    """Error of a promotion: the champion changed since the decision, or cannot be moved."""


class ServiceError(SlmSearchError, boundary="service"):
    """Error of Prefect, MLflow, a model server or another service that cannot be started or reached."""


def error_of(boundary: str, message: str, default: type[SlmSearchError]) -> SlmSearchError:
    """Create the error of a boundary that failed in another process."""
    kinds = {kind.boundary: kind for kind in SlmSearchError.__subclasses__()}
    return kinds.get(boundary, default)(message)
