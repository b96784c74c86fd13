"""Answers as JSON: `{"answer": ...}` if a client's `response_format` allows it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend

from slmsearch.foreign import one_line

MAX_SCHEMA_CHARS = 4000
"""Maximum size of a schema; one of this size is checked within half a second."""
MAX_SCHEMA_DEPTH = 50
"""Maximum number of values inside one another; the check of a schema recurses some six frames a level."""
ANY_ANSWER = "Paris"
"""Example that fits every schema for an answer in words."""


class _UnsupportedError(Exception):
    """A schema asks for what is not checked. Not an error of validation: inside of `not` and `if` it would turn into its opposite."""


def _refuse(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    raise _UnsupportedError("$ref, pattern and unevaluated properties are not supported")


# With these, a client's schema could fetch an address, or take years.
_Validator: Any = extend(
    Draft202012Validator,
    dict.fromkeys(("$ref", "$dynamicRef", "pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties"), _refuse),
)


class JsonAnswers:
    """Writer of answers as JSON that fits a schema."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        """Take a schema.

        Raises:
            ValueError: it is no schema, or `{"answer": "some words"}` does not fit it.
        """
        if _depth_of(schema) > MAX_SCHEMA_DEPTH:
            raise ValueError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        if len(json.dumps(schema)) > MAX_SCHEMA_CHARS:
            raise ValueError(f"the schema has more than {MAX_SCHEMA_CHARS} characters")
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"the schema is not valid: {one_line(error.message)[:200]}") from error
        self._validator = _Validator(schema)
        if misfit := self._find_misfit(ANY_ANSWER):
            raise ValueError(f'the searcher writes {{"answer": "some words"}}, which the schema does not take: {misfit}')

    def write(self, answer: str | None) -> str | None:
        """Return the JSON of an answer, or of null if there is none; None if the schema does not allow it."""
        return None if self._find_misfit(answer) else json.dumps({"answer": answer}, ensure_ascii=False)

    def _find_misfit(self, answer: str | None) -> str | None:
        try:
            error = next(self._validator.iter_errors({"answer": answer}), None)
        except _UnsupportedError as unsupported:
            return str(unsupported)
        return None if error is None else one_line(error.message)[:200]


def _depth_of(value: Any) -> int:
    """Return how many values stand inside one another at most, however deep: by levels, not by recursion."""
    depth, level = 0, [value]
    while level := [item for outer in level for item in _items_of(outer)]:
        depth += 1
    return depth


def _items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
