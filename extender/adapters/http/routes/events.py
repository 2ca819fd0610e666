"""Events: what is decided, as server-sent events (the EventSource of WHATWG's HTML standard)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from starlette.responses import StreamingResponse

from extender.adapters.http.answers import event_view
from extender.adapters.http.models import LABEL_SCHEMA
from extender.adapters.http.problems import Problem, ProblemKind, quoted
from extender.adapters.http.routes.parameters import management, noun
from extender.app.announcing import Announcement, Missed
from extender.app.management import EventCalls
from extender.kube.names import require_label
from extender.kube.printable import printable

router = noun("events")

_ALIVE_SECONDS = 15.0
"""After so long without an event a comment is sent, by which either side finds out that the other has gone."""
_EXAMPLE = """\
id: 42
event: GangBound
data: {"number":42,"time":"2026-11-23T08:00:00Z","what":"GangBound","namespace":"team-a","gang":"train","pod":"",\
"node":"","detail":"0.212 s after its first member was seen"}

"""


async def _calls(request: Request) -> EventCalls:
    return (await management(request)).events


async def _last_event_id(
    last_event_id: Annotated[str | None, Header(description="The number of the last event that was received")] = None,
) -> int | None:
    if last_event_id is None or (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 15):
        return None if last_event_id is None else int(last_event_id)
    raise Problem(ProblemKind.INVALID, f"{quoted(last_event_id)} is not the number of an event", field="Last-Event-ID")


async def _of_namespace(
    namespace: Annotated[
        str | None, Query(description="Only what is decided in this namespace", json_schema_extra=LABEL_SCHEMA)
    ] = None,
) -> str | None:
    return None if namespace is None else require_label("namespace", namespace)


class Events(StreamingResponse):
    media_type = "text/event-stream"


@router.get(
    "/events",
    response_class=Events,
    responses={
        200: {
            "description": "Events without end, each as `EventView`; `Missed` tells how many were forgotten before",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        }
    },
)
async def follow_events(
    calls: Annotated[EventCalls, Depends(_calls)],
    namespace: Annotated[str | None, Depends(_of_namespace)],
    after: Annotated[int | None, Depends(_last_event_id)],
) -> Events:
    """What is decided from now on, or since the event of that number, as it happens: who is placed where, who is turned
    away and why, which gang is planned, bound, or gives up. It ends when the service does."""
    told = calls.follow(after, namespace=namespace)
    return Events(_lines(told), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _lines(told: AsyncIterator[Announcement | Missed]) -> AsyncIterator[str]:
    """Events as text, and a comment where there has been none for a while."""
    # So that the caller knows that it is connected before anything happens.
    yield ": following\n\n"
    coming: asyncio.Task[Announcement | Missed] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(told))
            done, _ = await asyncio.wait({coming}, timeout=_ALIVE_SECONDS)
            if not done:
                yield ": alive\n\n"
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield _worded(event)
    finally:
        if coming is not None:
            coming.cancel()


async def _next(told: AsyncIterator[Announcement | Missed]) -> Announcement | Missed:
    return await anext(told)


def _worded(event: Announcement | Missed) -> str:
    if isinstance(event, Missed):
        return f"event: Missed\ndata: {json.dumps({'count': event.count, 'before': event.before})}\n\n"
    # In ASCII: who follows with a terminal is told nothing that it would take for a command.
    told = printable(json.dumps(event_view(event).model_dump(mode="json"), separators=(",", ":")))
    return f"id: {event.number}\nevent: {event.what}\ndata: {told}\n\n"
