"""The kinds of entities, read from `kinds.toml`; their order is the order of their pages."""

import tomllib
from importlib.resources import files
from typing import Any

from slmsearch.corpus.world.schema import Draw, Fact, Kind, Topic


def _read() -> tuple[dict[str, tuple[str, ...]], tuple[Kind, ...]]:
    tables = tomllib.loads(files(__package__).joinpath("kinds.toml").read_text(encoding="utf-8"))
    words = {name: tuple(entries) for name, entries in tables["words"].items()}
    return words, tuple(_kind(table, words) for table in tables["kinds"])


def _kind(table: dict[str, Any], words: dict[str, tuple[str, ...]]) -> Kind:
    topics = tuple(
        Topic(tuple(topic["headings"]), tuple(_fact(fact, words) for fact in topic["facts"]), tuple(topic["fillers"]))
        for topic in table["topics"]
    )
    return Kind(table["name"], table["share"], tuple(table["forms"]), tuple(table["leads"]), topics)


def _fact(table: dict[str, Any], words: dict[str, tuple[str, ...]]) -> Fact:
    drawn = dict(table["draw"])
    if "words" in drawn:
        drawn["words"] = words[drawn["words"]]
    return Fact(table["name"], Draw(**drawn), tuple(table["says"]), tuple(table["asks"]), tuple(table.get("reaches", ())))


WORDS, ALL_KINDS = _read()
"""The lists of words by name, and every kind."""
