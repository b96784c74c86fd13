"""Turn the message of a failed flow run back into an error of this project."""

from slmsearch import errors


def as_error(message: str) -> errors.SlmSearchError:
    """Return the error that a failed flow run's message describes."""
    kinds = {kind.__name__: kind for kind in _subclasses(errors.SlmSearchError)}
    for name, kind in kinds.items():
        _, found, text = message.partition(f"{name}: ")
        if found:
            return kind(text)
    return errors.ServiceError(f"the flow run did not complete: {' '.join(message.split())[:400]}; see its logs")


def _subclasses(kind: type[errors.SlmSearchError]) -> list[type[errors.SlmSearchError]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in _subclasses(child))]
