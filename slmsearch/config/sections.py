"""What every section is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from slmsearch.foreign import without_credentials

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
"""A share."""
Address = Annotated[str, PlainSerializer(without_credentials, return_type=str, when_used="json")]
"""Where a server is. User and password in it are secret: JSON leaves them out."""


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, docstrings of fields as their descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
