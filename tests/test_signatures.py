"""A function takes its own section of the settings, and a value that travels between functions has a precise type."""

import ast

from tests.root import ROOT

TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for folder in ("slmsearch", "flows", "tasks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
MOST_OF_ALL_SETTINGS, MOST_OPEN_DICTIONARIES = 90, 35


def takes_all_settings(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return any(argument.annotation is not None and "RunConfig" in ast.unparse(argument.annotation) for argument in arguments)


def test_few_functions_take_all_settings() -> None:
    found = [
        f"{name}:{node.lineno} {node.name}"
        for name, text in TEXTS.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and takes_all_settings(node)
    ]
    assert 0 < len(found) <= MOST_OF_ALL_SETTINGS, f"{len(found)} functions take a RunConfig: pass the sections that one reads\n{found}"


def test_few_dictionaries_hold_anything() -> None:
    found = [f"{name}:{i}" for name, text in TEXTS.items() for i, line in enumerate(text.splitlines(), 1) if "dict[str, Any]" in line]
    assert 0 < len(found) <= MOST_OPEN_DICTIONARIES, f"{len(found)} lines have dict[str, Any]: give it a type\n{found}"
