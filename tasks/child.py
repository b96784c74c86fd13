"""The child process in which a flow computes, so that this one holds neither model nor embedder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from slmsearch.processes.call import Child

T = TypeVar("T")

_kept: ContextVar[Child | None] = ContextVar("kept", default=None)


@contextmanager
def keeping_child() -> Iterator[None]:
    """Keep one child for all calls of the context; it ends with the context."""
    with Child() as child:
        token = _kept.set(child)
        try:
            yield
        finally:
            _kept.reset(token)


def in_child(function: Callable[..., T] | str, *args: Any, **kwargs: Any) -> T:
    """Call a function in the kept child, else in a new one for this call; see `Child.call`."""
    if (child := _kept.get()) is not None:
        return child.call(function, *args, **kwargs)
    with Child() as child:
        return child.call(function, *args, **kwargs)


def end_child() -> None:
    """End the kept child to free the device and the memory for the next stage; a later call starts another."""
    if (child := _kept.get()) is not None:
        child.stop()
