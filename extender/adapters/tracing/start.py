"""Whether there are traces: what the settings say, and the packages that they need.

Imports nothing of OpenTelemetry unless it is wanted. Must not know what is traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from extender.settings import BadSettings, Settings

if TYPE_CHECKING:
    from extender.adapters.tracing.export import Exported


def exported(settings: Settings, environment: Mapping[str, str]) -> Exported | None:
    """Where spans go; None where there are to be none. The environment's OTEL_* say where to and how many, as
    everywhere. Raises BadSettings."""
    if settings.tracing == "none":
        return None
    try:
        from extender.adapters.tracing.export import Exported as Found
    except ImportError as error:
        raise BadSettings(
            f"tracing = {settings.tracing!r}: what it needs is not installed ({error}); "
            "install escher-kubernetes[otel], or set tracing: none"
        ) from error
    return Found.of(environment)
