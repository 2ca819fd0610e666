"""Start: whether there are traces, by the settings and the installed packages.

Imports OpenTelemetry only if the settings ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from extender.settings.settings import BadSettings, Settings

if TYPE_CHECKING:
    from extender.adapters.tracing.export import Exported


def exported(settings: Settings, environment: Mapping[str, str]) -> Exported | None:
    """Returns the exporter of spans; None if the settings turn traces off. Raises BadSettings.

    The environment's OTEL_* variables say where spans go, and how many."""
    if settings.tracing == "none":
        return None
    try:
        from extender.adapters.tracing.export import Exported as Found
    except ImportError as error:
        raise BadSettings(
            f"tracing = {settings.tracing!r}: its packages are not installed ({error}); "
            "install escher-kubernetes[otel], or set tracing: none"
        ) from error
    return Found.of(environment)
