"""What housekeeping took away: a line each with the manifests it had, so that a lineage still names what it can no longer hash."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slmsearch.learn import files
from slmsearch.lineage.graph import Graph, Node
from slmsearch.lineage.stored import MANIFEST, corpus_node, eval_node, index_node, read_json, training_nodes

PRUNED = "pruned.jsonl"
"""In the data directory."""
_KEPT = {"training": (MANIFEST, files.JOB, files.SOURCES)}
"""Files remembered by kind; only the manifest where nothing is said."""


def remember(data_dir: Path, kind: str, place: Path) -> None:
    """Write down what an artefact was, before it is deleted."""
    kept = {name: read_json(place / name) for name in _KEPT.get(kind, (MANIFEST,))}
    entry = {"kind": kind, "key": place.name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "files": kept}
    with (data_dir / PRUNED).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def add_pruned(graph: Graph, data_dir: Path) -> None:
    """Add what was pruned to a graph, under its old name and lying nowhere."""
    for entry in _entries(data_dir):
        kind, key = str(entry.get("kind")), str(entry.get("key"))
        if (kind, key) in graph.nodes:  # it was made again
            continue
        for node in _nodes(kind, key, entry.get("files") or {}):
            gone = (("", f"its files were pruned on {entry.get('at')}"),) if node.kind == kind else ()
            graph.add(Node(node.kind, node.key, node.inputs, node.facts, None, gone))


def _entries(data_dir: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = (data_dir / PRUNED).read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # cut off by a full disk
            continue
        if isinstance(entry, dict):
            yield entry


def _nodes(kind: str, key: str, kept: dict[str, Any]) -> list[Node]:
    manifest = kept.get(MANIFEST) or {}
    match kind:
        case "corpus":
            return [corpus_node(key, manifest, None)]
        case "index":
            return [index_node(key, manifest, None, {})]
        case "eval":
            return [eval_node(key, manifest, None)]
        case "training":
            return list(training_nodes(key, kept.get(files.JOB) or {}, manifest, kept.get(files.SOURCES) or {}, None))
    return []
