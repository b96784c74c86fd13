"""What was made from what: nodes named by kind and content key, and the two walks over them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Name = tuple[str, str]
"""Kind and key. Kinds: source, corpus, embedder, index, model, eval, config, training, adapter; in MLflow: version, run."""


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

    def __init__(self) -> None:
        self.nodes: dict[Name, Node] = {}

    def add(self, node: Node) -> None:
        """Add a node, or what it adds to the one of that name."""
        known = self.nodes.get(node.name)
        if known is not None:
            inputs, missing = dict.fromkeys((*known.inputs, *node.inputs)), dict.fromkeys((*known.missing, *node.missing))
            facts = {**node.facts, **known.facts}
            node = Node(node.kind, node.key, tuple(inputs), facts, known.place or node.place, tuple(missing))
        self.nodes[node.name] = node

    def of_kind(self, kind: str) -> list[Node]:
        """Return the nodes of a kind."""
        return [node for node in self.nodes.values() if node.kind == kind]

    def upward(self, start: Name) -> list[Step]:
        """Walk to everything a node was made from, each thing once, inputs under what they are inputs of."""
        return list(self._walk(Ref(*start), 0, set(), lambda name: self.nodes[name].inputs if name in self.nodes else ()))

    def downward(self, start: Name) -> list[Step]:
        """Walk to everything that was made from a node."""
        users: dict[Name, list[Ref]] = {}
        for node in self.nodes.values():
            for ref in node.inputs:
                users.setdefault(ref.name, []).append(Ref(node.kind, node.key, ref.role))
        return list(self._walk(Ref(*start), 0, set(), lambda name: users.get(name, ())))[1:]

    def _walk(self, ref: Ref, depth: int, seen: set[Name], following: Callable[[Name], Iterable[Ref]]) -> Iterator[Step]:
        if ref.name in seen:
            return
        seen.add(ref.name)
        yield Step(depth, ref.role, ref.name, self.nodes.get(ref.name))
        refs = following(ref.name)
        met = {further.kind for further in refs if further.alternative and further.name in seen}
        for further in refs:
            if not (further.alternative and further.kind in met):
                yield from self._walk(further, depth + 1, seen, following)


def gaps(steps: Iterable[Step]) -> list[str]:
    """Say what a walk could not follow, instead of guessing."""
    found = []
    for step in steps:
        kind, key = step.name
        if step.node is not None:
            has = {ref.kind for ref in step.node.inputs}
            found += [f"{kind} {key}: {text}" for fixed_by, text in step.node.missing if fixed_by not in has]
        elif kind != "embedder":  # it has no place of its own
            found.append(f"{kind} {key} is named and is not stored here: pruned, moved, or made elsewhere")
    return found
