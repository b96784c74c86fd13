"""The graph of what was made from what: nodes named by kind and content key, and the two walks over it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Name = tuple[str, str]
"""Kind and key."""

KINDS = {
    "source": "what a corpus was read or generated from",
    "corpus": "pages, questions and splits",
    "embedder": "the model that turned text into vectors",
    "index": "an index version",
    "model": "weights that were trained on or evaluated",
    "eval": "a stored evaluation",
    "config": "the settings of a run",
    "training": "a training run's directory",
    "adapter": "what training left: an adapter, or a whole model",
    "version": "a registered model version",
    "run": "an MLflow run",
}


@dataclass(frozen=True, slots=True)
class Ref:
    """One thing names another."""

    kind: str
    key: str
    role: str = ""
    """What for; empty where the kind says it."""
    alternative: bool = False
    """Any of the alternatives of a kind would have done: those a walk has met already are taken for the one."""

    @property
    def name(self) -> Name:
        """Of the node it means."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class Node:
    """Something stored."""

    kind: str
    key: str
    inputs: tuple[Ref, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else is known of it, for a person."""
    place: Path | None = None
    """Where it lies."""
    missing: tuple[tuple[str, str], ...] = ()
    """What should be recorded of it and is not: the kind of input that would fix it, empty where none would, and a sentence."""

    @property
    def name(self) -> Name:
        """Kind and key."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class Step:
    """A node on a walk."""

    depth: int
    role: str
    name: Name
    node: Node | None
    """None: something names it and it is nowhere."""


class Graph:
    """Nodes by name; a node added twice is merged: inputs and facts of both."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: dict[Name, Node] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Add a node, or what it adds to the one of that name."""
        known = self.nodes.get(node.name)
        if known is not None:
            inputs = tuple(dict.fromkeys((*known.inputs, *node.inputs)))
            place = known.place or node.place
            missing = tuple(dict.fromkeys((*known.missing, *node.missing)))
            node = Node(node.kind, node.key, inputs, {**node.facts, **known.facts}, place, missing)
        self.nodes[node.name] = node

    def find(self, kind: str, key: str) -> Node | None:
        """Return a node, None if there is none of that name."""
        return self.nodes.get((kind, key))

    def upward(self, start: Name) -> list[Step]:
        """Walk to everything a node was made from, each thing once, inputs under what they are inputs of."""
        return list(self._walk(Ref(*start), 0, set(), lambda name: self.nodes[name].inputs if name in self.nodes else ()))

    def downward(self, start: Name) -> list[Step]:
        """Walk to everything that was made from a node."""
        users: dict[Name, list[Ref]] = {}
        for node in self.nodes.values():
            for ref in node.inputs:
                users.setdefault(ref.name, []).append(Ref(node.kind, node.key, ref.role))
        return list(self._walk(Ref(*start), 0, set(), lambda name: tuple(users.get(name, ()))))[1:]

    def _walk(self, ref: Ref, depth: int, seen: set[Name], following: Callable[[Name], tuple[Ref, ...]]) -> Iterator[Step]:
        if ref.name in seen:
            return
        seen.add(ref.name)
        yield Step(depth, ref.role, ref.name, self.nodes.get(ref.name))
        refs = following(ref.name)
        met = {further.kind for further in refs if further.alternative and further.name in seen}
        for further in refs:
            if further.alternative and further.kind in met:
                continue
            yield from self._walk(further, depth + 1, seen, following)


def gaps(steps: Iterable[Step]) -> list[str]:
    """Say what a walk could not follow, instead of guessing."""
    found = []
    for step in steps:
        kind, key = step.name
        if step.node is None:
            if kind != "embedder":  # it has no place of its own
                found.append(f"{kind} {key} is named and is not stored here: pruned, moved, or made elsewhere")
            continue
        has = {ref.kind for ref in step.node.inputs}
        found += [f"{kind} {key}: {text}" for fixed_by, text in step.node.missing if fixed_by not in has]
    return found
