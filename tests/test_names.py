"""A reader who searches for a name finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.root import ROOT

FILES = [path for folder in ("slmsearch", "flows", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_file_name_stands_in_more_than_two_packages() -> None:
    places: defaultdict[str, list[Path]] = defaultdict(list)
    for path in FILES:
        if not path.stem.startswith("__"):
            places[path.stem].append(path.relative_to(ROOT))
    assert {stem: found for stem, found in places.items() if len(found) > 2} == {}


def test_no_class_name_stands_twice() -> None:
    places: defaultdict[str, list[Path]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
