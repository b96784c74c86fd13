"""What every section is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
"""A share."""


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, docstrings of fields as their descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
