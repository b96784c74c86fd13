"""The fictional encyclopedia: a seeded universe of linked entities, its pages, and questions about them.

No model can know it by heart and any size can be generated. Not here: reading worlds back (`corpus.sources`) and
splits (`corpus.splits`). The method is PhantomWiki's (arXiv 2502.20377): facts first, then prose, then questions from facts.
"""

from slmsearch.corpus.world.build import World, generate_world, write_world

__all__ = ["World", "generate_world", "write_world"]
