"""Errors, one class per boundary a run can break at.

A badly played episode is data and never one of these; these say that something around the model is missing or broken.
Every message is one line that names the cause and the remedy.
"""

from slmsearch.foreign import without_credentials


class SlmSearchError(Exception):
    """Base of every error this project raises on purpose; `boundary` names it in metrics (`errors/<boundary>`)."""

    boundary = "slmsearch"

    def __init__(self, *args: object) -> None:
        """Take the message; addresses in it lose `user:password@`, since it is logged, recorded and shown."""
        super().__init__(*(without_credentials(part) if isinstance(part, str) else part for part in args))


class ConfigError(SlmSearchError):
    """A setting is unknown, malformed or contradicts another."""

    boundary = "config"


class CorpusError(SlmSearchError):
    """Pages or questions cannot be read, or do not hold what they must."""

    boundary = "corpus"


class IndexUnusableError(SlmSearchError):
    """An index version is missing, incomplete, damaged or made by another embedder."""

    boundary = "index"


class EmbedderError(SlmSearchError):
    """The embedding model cannot be loaded or did not answer."""

    boundary = "embedder"


class ModelError(SlmSearchError):
    """A policy model or adapter is missing, damaged or does not fit its base."""

    boundary = "model"


class GenerationError(SlmSearchError):
    """A served policy did not answer."""

    boundary = "generation"


class JudgeError(SlmSearchError):
    """The judge did not answer, or its verdict cannot be parsed."""

    boundary = "judge"


class SandboxError(SlmSearchError):
    """Programs cannot be run: there is no engine, or the sandbox does not answer."""

    boundary = "sandbox"


class EvaluationError(SlmSearchError):
    """Stored results are missing, damaged, or do not belong together."""

    boundary = "evaluation"


class CheckpointError(SlmSearchError):
    """A checkpoint or a training directory is damaged or belongs to another run."""

    boundary = "checkpoint"


class PreflightError(SlmSearchError):
    """A check before training says that the run cannot succeed."""

    boundary = "preflight"


class TrainingError(SlmSearchError):
    """Training ended before its last step, or refuses to start."""

    boundary = "training"


class PromotionError(SlmSearchError):
    """The champion is no longer the one that was decided about, or cannot be moved."""

    boundary = "promotion"


class ServiceError(SlmSearchError):
    """Prefect, MLflow, a model server or another one cannot be started or reached."""

    boundary = "service"
