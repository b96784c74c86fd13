"""Base class of config sections."""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer

from slmsearch.foreign import without_credentials

Address = Annotated[str, PlainSerializer(without_credentials, return_type=str, when_used="json")]
"""Address of a server. User and password in it are secret: JSON leaves them out."""


class ConfigSection(BaseModel):
    """Base of every section: frozen, without unknown keys, with the docstrings of fields as their descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, settings: Mapping[str, object]) -> Self:
        """Return a copy with other values, given by dotted names such as `planner.reward.kind`; they are not validated."""
        same = self
        for dotted, value in settings.items():
            name, _, inner = dotted.partition(".")
            same = same.model_copy(update={name: getattr(same, name).changed({inner: value}) if inner else value})
        return same

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """Return the section's settings and constants, without `exclude`, as JSON values for a content key."""
        constants = {name: getattr(self, name) for name in type(self).__class_vars__ if name.islower()}
        parts = self.model_dump(mode="json") | constants
        parts |= {
            name: section.key_parts() for name in type(self).model_fields if isinstance(section := getattr(self, name), ConfigSection)
        }
        return {name: value for name, value in parts.items() if name not in exclude}
