"""Assignment of questions to train, validation and test such that no page and no entity is gold in two of them.

Rows that name their split keep it (`take_splits`).

Questions that share a page or an entity, directly or through others, form a component that is assigned as a whole. If one component holds
most questions, it is cut: regions grow in it, and questions that straddle two regions are left out. `assign_splits` returns no split for
those, and the manifest counts them.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType

from slmsearch.corpus.questions import Question
from slmsearch.errors import CorpusError

SPLITS = ("train", "validation", "test")
SPLIT_SEED = 0
"""Seed of the splits. It is fixed: with another seed, one policy would be trained on the test questions of another."""
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
GIANT_FRAC = 0.5
"""Share of all questions above which a component is cut."""
LARGE_FRAC = 0.1
"""Share of all questions above which a component fits only into `train`."""


def assign_splits(questions: Sequence[Question], seed: int = SPLIT_SEED, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Map question ids to `train`, `validation` or `test`, 80/10/10; questions that would join two splits are left out.

    Pages of `known` (page id -> split) keep their split and bring their questions, with the other pages of those, into it. The result
    depends on the order of the questions.
    """
    if known:
        settled, free = _follow(questions, known)
        return settled | assign_splits(free, seed)
    rng = Random(f"splits/{seed}")
    components = _components(questions)
    giants = [component for component in components if len(component) > GIANT_FRAC * len(questions)]
    if giants and len(questions) > 1 and len({node for number in giants[0] for node in _nodes(questions[number])}) > 1:
        split_of = _grow(questions, giants[0], rng)
        counts = {split: sum(1 for other in split_of.values() if other == split) for split in SPLITS}
        rest = [component for component in components if component is not giants[0]]
        return split_of | _deal(questions, rest, rng, counts)
    return _deal(questions, components, rng, dict.fromkeys(SPLITS, 0))


def _follow(questions: Sequence[Question], known: Mapping[str, str]) -> tuple[dict[str, str], list[Question]]:
    """Return the splits of questions on known pages, and the questions that touch no known page."""
    split_of_page, split_of, rest = dict(known), dict[str, str](), list(questions)
    while True:
        touched = [question for question in rest if any(page in split_of_page for page in question.page_ids)]
        if not touched:
            return split_of, rest
        rest = [question for question in rest if not any(page in split_of_page for page in question.page_ids)]
        for question in touched:
            splits = {split_of_page[page] for page in question.page_ids if page in split_of_page}
            if len(splits) == 1:
                split_of[question.id] = splits.pop()
                split_of_page |= dict.fromkeys(question.page_ids, split_of[question.id])


def take_splits(questions: Sequence[Question], given: Sequence[object], source: str) -> dict[str, str]:
    """Map question ids to the splits that their rows give.

    Raises:
        CorpusError: a split is missing or unknown, or a page is gold in two.
    """
    split_of_page: dict[str, str] = {}
    for question, split in zip(questions, given, strict=True):
        if split not in SPLITS:
            raise CorpusError(
                f"{source}: question {question.id} has split {split!r}; give each one of {', '.join(SPLITS)}, or none a split"
            )
        for page_id in question.page_ids:
            if split_of_page.setdefault(page_id, str(split)) != split:
                both = f"{split_of_page[page_id]} and in {split}"
                raise CorpusError(f"{source}: page {page_id} is gold in {both}; leave `split` out to have splits assigned")
    return {question.id: str(split) for question, split in zip(questions, given, strict=True)}


def _nodes(question: Question) -> list[str]:
    """Return the keys that tie a question to others: its pages and entities, else its own wording."""
    nodes = [f"page {page_id}" for page_id in question.page_ids]
    nodes += [f"entity {' '.join(name.casefold().split())}" for name in question.entities]
    return nodes or [f"wording {' '.join(question.question.casefold().split())}"]


def _components(questions: Sequence[Question]) -> list[list[int]]:
    """Group question numbers that share a node, by union-find, in order of first appearance."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for question in questions:
        first, *others = _nodes(question)
        for other in others:
            parent[root(other)] = root(first)
    groups: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        groups[root(_nodes(question)[0])].append(number)
    return list(groups.values())


def _deal(questions: Sequence[Question], components: list[list[int]], rng: Random, counts: dict[str, int]) -> dict[str, str]:
    """Assign whole components in proportion to the shares.

    Lone questions are assigned separately: they would fill the splits that large components left short, and change their mix of kinds.
    """
    total = sum(map(len, components)) + sum(counts.values())
    dealt: dict[str, list[list[int]]] = {split: [] for split in SPLITS}
    shuffled = rng.sample(components, len(components))
    lone_counts = dict.fromkeys(SPLITS, 0)
    # Large components first; the others keep their shuffled order, so that no split gets only small ones.
    for component in sorted(shuffled, key=lambda component: -len(component) if len(component) > LARGE_FRAC * total else 0):
        rivals = counts if len(component) > 1 else lone_counts
        if len(component) > LARGE_FRAC * total:
            split = "train"
        else:
            # Sainte-Laguë's rule comes nearest to the shares with whole components.
            split = max(SPLITS, key=lambda split: SHARES[split] / (rivals[split] + len(component) / 2))
        dealt[split].append(component)
        rivals[split] += len(component)
    counts = {split: counts[split] + lone_counts[split] for split in SPLITS}
    for split in ("test", "validation"):
        _help_out(dealt, counts, split, total)
    return {questions[number].id: split for split in SPLITS for component in dealt[split] for number in component}


def _help_out(dealt: dict[str, list[list[int]]], counts: dict[str, int], split: str, total: int) -> None:
    """Move a component from train to a split that got less than half of its share: a small corpus has only large ones.

    A split too large is better than one too small to measure on, as long as train keeps half of the questions, or a third if the split had
    none. What is too small to test by goes to test before validation.
    """
    wanted = SHARES[split] * total / 2
    if split == "test" and not counts[split] and len(dealt["train"]) < 2:
        dealt["test"], dealt["validation"] = dealt["validation"], []
        counts["test"], counts["validation"] = counts["validation"], 0
    if counts[split] >= wanted or len(dealt["train"]) < 2:
        return
    kept = total / (2 if counts[split] else 3)
    spare = [component for component in sorted(dealt["train"], key=len) if counts["train"] - len(component) >= kept]
    if spare:
        moved = next((component for component in spare if len(component) >= wanted), spare[-1])
        dealt["train"].remove(moved)
        dealt[split].append(moved)
        counts["train"] -= len(moved)
        counts[split] += len(moved)


def _grow(questions: Sequence[Question], component: list[int], rng: Random) -> dict[str, str]:
    """Cut one component: grow regions of neighbouring nodes for test and validation, leave the rest to train.

    Neighbours grow together, so fewer questions straddle regions than if each page were drawn separately.
    """
    touching: dict[str, list[int]] = defaultdict(list)
    for number in component:
        for node in _nodes(questions[number]):
            touching[node].append(number)
    order = rng.sample(list(touching), len(touching))
    split_of_node: dict[str, str] = {}
    for split in ("test", "validation"):
        wanted = SHARES[split] * len(component)
        region: set[str] = set()
        inside = 0
        queue: deque[str] = deque()
        fresh = iter(order)
        while inside < wanted and len(region) + len(split_of_node) < len(touching):
            node = queue.popleft() if queue else next(fresh)
            if node in split_of_node or node in region:
                continue
            region.add(node)
            for number in touching[node]:
                others = [other for other in _nodes(questions[number]) if other not in region]
                inside += not others
                queue.extend(other for other in others if other not in split_of_node)
        split_of_node |= dict.fromkeys(region, split)
    split_of = _within(questions, component, split_of_node)
    for split in ("validation", "test"):  # a few pages that all hang together: without training there is nothing to measure
        if 3 * sum(found == "train" for found in split_of.values()) < len(split_of):
            split_of_node = {node: found for node, found in split_of_node.items() if found != split}
            split_of = _within(questions, component, split_of_node)
    return split_of


def _within(questions: Sequence[Question], component: list[int], split_of_node: Mapping[str, str]) -> dict[str, str]:
    """Return the splits of the questions whose nodes are all in one; nodes without one are in train."""
    split_of = {}
    for number in component:
        splits = {split_of_node.get(node, "train") for node in _nodes(questions[number])}
        if len(splits) == 1:
            split_of[questions[number].id] = splits.pop()
    return split_of
