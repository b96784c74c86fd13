"""Fictional encyclopedia: a seeded universe of linked entities, its pages, and questions about them.

No model can have memorised it, and any size can be generated. `corpus.sources` reads worlds, `corpus.splits` splits them. The method is
PhantomWiki's (arXiv 2502.20377): facts first, then prose, then questions from facts.
"""

from slmsearch.corpus.world.build import World, generate_world, write_world

__all__ = ["World", "generate_world", "write_world"]
