"""Values: dataclasses that the type checker holds to be immutable, and that are created fast.

A frozen dataclass sets each field by a call. A pod has thirty fields, and thousands of pods change in a second.
So this is for what events, plans and calls create without end. Other values are frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_C = TypeVar("_C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_C]) -> type[_C]:
    """As `dataclass(frozen=True, slots=True)`, but only mypy refuses to set a field."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
