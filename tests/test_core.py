"""The core that docs/core.md names is small, and so is what it imports; it loads nothing by name."""

import ast
import re

from tests.root import ROOT

MOST_LINES, MOST_WITH_IMPORTS = 6500, 8000


def file_of(module: str) -> str | None:
    """Return the file of a module of the library, or None for another name."""
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if (ROOT / name).is_file()), None)


def imports_of(path: str) -> set[str]:
    """Return the library's files that a file imports, also inside functions and for types alone."""
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names = [name if file_of(name := f"{node.module}.{alias.name}") else str(node.module) for alias in node.names]
        found.update(place for name in names if name.startswith("slmsearch.") and (place := file_of(name)))
    return found


def count_lines(paths: set[str]) -> int:
    return sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_core_and_what_it_imports_are_small() -> None:
    text = (ROOT / "docs/core.md").read_text(encoding="utf-8").partition("## Around the core")[0]
    core = {f"slmsearch/{name}" for name in re.findall(r"`([a-z_/]+\.py)`", text) if name.count("/") and not name.startswith("tests/")}
    closure, waiting = set[str](), [*core]
    while waiting:
        path = waiting.pop()
        if path not in closure:
            closure.add(path)
            waiting += imports_of(path)
    assert {path.split("/")[1] for path in core} >= {"corpus", "retrieval", "environments", "episodes", "sampling", "training", "evaluate"}
    assert count_lines(core) <= MOST_LINES and count_lines(closure) <= MOST_WITH_IMPORTS, (
        f"{count_lines(core)} lines named, {count_lines(closure)} with imports: "
        f"{', '.join(sorted(closure - core, key=lambda path: -count_lines({path}))[:20])}"
    )
    by_name = {path for path in closure if re.search(r"import_module|__import__", (ROOT / path).read_text(encoding="utf-8"))}
    assert not by_name, "an import by another spelling is not counted"
