"""What every section is."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer

from slmsearch.foreign import without_credentials

Address = Annotated[str, PlainSerializer(without_credentials, return_type=str, when_used="json")]
"""Where a server is. User and password in it are secret: JSON leaves them out."""


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, docstrings of fields as their descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    FORMER: ClassVar[Mapping[str, Any]] = {}
    """Options that are gone, each with the one value that is left of it; they still stand in content keys."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Settings that had another name, each with that name: it still stands in content keys and in what was recorded."""

    @classmethod
    def constants(cls) -> dict[str, object]:
        """Return what was a setting and is none any more: `FORMER`, and the constants of the section (`ClassVar`)."""
        return {**cls.FORMER, **{name: getattr(cls, name) for name in cls.__class_vars__ if name.islower()}}

    def changed(self, settings: Mapping[str, object]) -> Self:
        """Return the same with other values, by dotted names such as `planner.reward.kind`; they are not validated."""
        same = self
        for dotted, value in settings.items():
            name, _, inner = dotted.partition(".")
            same = same.model_copy(update={name: getattr(same, name).changed({inner: value}) if inner else value})
        return same

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """Return settings and constants, but for some, as JSON values for a content key: one that becomes a constant changes no key."""
        parts = self.model_dump(mode="json") | self.constants()
        parts |= {name: section.key_parts() for name in type(self).model_fields if isinstance(section := getattr(self, name), Section)}
        return {self.RENAMED.get(name, name): value for name, value in parts.items() if name not in exclude}

    @classmethod
    def read_record(cls, values: Mapping[str, Any]) -> Self:
        """Read what an earlier version recorded: what is no setting any more is left out.

        Raises:
            ValidationError: a value does not fit.
        """
        return cls.model_validate(cls.known_values(values))

    @classmethod
    def known_values(cls, values: Mapping[str, Any]) -> dict[str, object]:
        """Return the values that are settings of this version, under their present names."""
        values = {now: values[was] for now, was in cls.RENAMED.items() if was in values} | dict(values)
        kept = {name: value for name, value in values.items() if name in cls.model_fields}
        for name, value in kept.items():
            inner = cls.model_fields[name].annotation
            if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, Section):
                kept[name] = inner.known_values(value)
        return kept
