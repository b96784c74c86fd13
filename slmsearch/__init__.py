"""The library: corpus, retrieval, environments, sampling, judges, training, evaluation.

`verifiers` finds an environment by the name of a top-level module and takes what its `__all__` names. With the extra `verifiers`
installed, `slmsearch` is such a name; the three classes are loaded when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slmsearch.extensions.verifiers.harness import SearcherEnv, SearcherHarness, SearcherTaskset
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from slmsearch.extensions.verifiers import harness

        return getattr(harness, name)


__all__ = ["SearcherEnv", "SearcherHarness", "SearcherTaskset"]
