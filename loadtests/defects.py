"""Defects: collects what the simulated service logs as errors, and the exceptions that end it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog


def told(about: dict[str, Any]) -> str:
    return f"{about.get('message', '')}: {about.get('exception', '')!r}"


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from leaves(each)
        else:
            yield each


@contextmanager
def defects(errors: list[str], but: Collection[str] = ()) -> Iterator[None]:
    """Appends to `errors` what the service logs as an error, except events in `but`."""

    def take(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        is_error = method in ("error", "exception", "critical") or event.get("exc_info")
        if is_error and event.get("event") not in but:
            errors.append(str(dict(event)))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.format_exc_info, take])
    try:
        yield
    finally:
        structlog.configure(**before)
