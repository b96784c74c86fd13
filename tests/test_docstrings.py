"""Docstrings: plain sentences that begin with a verb or a noun, and names that exist."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.root import ROOT

FILES = [path for folder in ("slmsearch", "flows", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))]
TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
CLAUSE = re.compile(r"(?:Of|What|Where|How|Who|Whoever|Whether|Which|When|Likewise|Nothing|As)\b")
INVERSION = re.compile(
    r"nothing (?:has come|may go)|come to (?:its|their) end|\b(?:is|are) (?:all |not )?to be done|\bis it said\b|\bnot surely\b|"
    r"\bends nothing\b|all states are true|\bwhat (?:has no|was killed|cannot be)\b|gone on with|whoever|\bso many\b|\bis what is\b",
    re.IGNORECASE,
)
"""The style sheet's sentences that have to be decoded, and the turns of phrase that they are made of."""
QUOTED = re.compile(r"`+([^`]+)`+")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
FILE = re.compile(r"[\w/]+\.py")
WORD = re.compile(r"\w+")
FOREIGN = {
    *("Host", "TimeoutStopSec", "stop_grace_period", "hatch", "topNav", "wiki_search"),
    *("addmm", "get_last_checkpoint", "multipletests"),
    *("_2", "_3", "history_2", "history_3", "paragraph_N", "_full", "gradient_difference_lora"),
}
"""Names of other projects, and parts of ids and figures that are put together at run time."""


def strings_in(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
                yield statement.value


DOCSTRINGS = [(f"{name}:{node.lineno}", str(node.value)) for name, tree in TREES.items() for node in strings_in(tree)]


def words_in(node: ast.AST) -> set[str]:
    """Return all names and words of the strings in some code, without its docstrings."""
    docstrings = {id(string) for string in strings_in(node)}
    values = [value for part in ast.walk(node) if id(part) not in docstrings for _, value in ast.iter_fields(part)]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return {word for text in texts for word in WORD.findall(text)}


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    assert len(DOCSTRINGS) > 5000
    assert [f"{place} {text[:60]}" for place, text in DOCSTRINGS if CLAUSE.match(text)] == []


def test_descriptions_of_arguments_say_what_they_are() -> None:
    assert [f"{place} {match[1]}" for place, text in DOCSTRINGS for match in re.finditer(r"^ {4,}(\w+: of .*)", text, re.MULTILINE)] == []


def test_no_docstring_has_to_be_decoded() -> None:
    assert [f"{place} {match[0]}" for place, text in DOCSTRINGS if (match := INVERSION.search(" ".join(text.split())))] == []


def test_names_in_docstrings_exist() -> None:
    words = set().union(FOREIGN, *(words_in(tree) for tree in TREES.values()), *(WORD.findall(name) for name in TREES))
    members: defaultdict[str, set[str]] = defaultdict(set)
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for node in (node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        members[node.name] |= words_in(node)
        bases[node.name] |= {word for base in node.bases for word in words_in(base)}

    def has(owner: str, member: str) -> bool:
        return member in members[owner] or any(has(base, member) for base in bases[owner] - {owner} if base in members)

    missing = []
    for place, text in DOCSTRINGS:
        for quoted in QUOTED.findall(text):
            if FILE.fullmatch(quoted):
                exists = any(f"/{name}".endswith(f"/{quoted}") for name in TREES)
            elif NAME.fullmatch(quoted):
                owner, *rest = parts = quoted.removesuffix("()").split(".")
                exists = words.issuperset(parts) and not (owner in members and rest and not has(owner, rest[0]))
            else:
                continue
            if not exists:
                missing.append(f"{place} {quoted}")
    assert missing == []
