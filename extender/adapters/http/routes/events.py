"""Events: decisions as server-sent events (the EventSource of WHATWG's HTML standard)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from extender.adapters.http.models.answers import event_view
from extender.adapters.http.models.models import LABEL_SCHEMA
from extender.adapters.http.models.parameters import management, noun
from extender.adapters.http.problems import Problem, ProblemKind, documented, quoted
from extender.adapters.http.rights import admitted_in
from extender.app.contracts.decisions import DecisionEvent, EventCalls, Following, Missed
from extender.app.observability.decision_stream import REMEMBERED
from extender.kube.names import require_label
from extender.kube.printable import printable

router = noun("events")

_ALIVE_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, which reveals a lost connection."""
_AT_ONCE = 32
"""Events that are sent in one piece, before other tasks run."""
_EXAMPLE = """\
id: 42
event: GangBound
data: {"number":42,"time":"2026-11-23T08:00:00Z","what":"GangBound","namespace":"team-a","gang":"train","pod":"",\
"node":"","detail":"0.212 s after its first member was seen"}

"""


async def _calls(request: Request) -> EventCalls:
    return (await management(request)).events


async def _last_event_id(
    last_event_id: Annotated[str | None, Header(description="The number of the last received event")] = None,
) -> int | None:
    if last_event_id is None or (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 15):
        return None if last_event_id is None else int(last_event_id)
    raise Problem(ProblemKind.INVALID, f"{quoted(last_event_id)} is not an event number", field="Last-Event-ID")


async def _of_namespace(
    namespace: Annotated[
        str | None, Query(description="Only decisions in this namespace", json_schema_extra=LABEL_SCHEMA)
    ] = None,
) -> str | None:
    return None if namespace is None else require_label("namespace", namespace)


class Events(StreamingResponse):
    media_type = "text/event-stream"
    streaming: AbstractContextManager[None] = nullcontext()
    """Held from the first event to the last; entering it may raise Problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.streaming:
            await super().__call__(scope, receive, send)


@router.get(
    "/events",
    response_class=Events,
    responses={
        200: {
            "description": "An endless stream of `EventView`; `Missed` says how many earlier events were dropped",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **documented({429: "Too many calls or streams; the detail names the setting"}),
    },
)
async def follow_events(
    request: Request,
    calls: Annotated[EventCalls, Depends(_calls)],
    namespace: Annotated[str | None, Depends(_of_namespace)],
    after: Annotated[int | None, Depends(_last_event_id)],
) -> Events:
    """Decisions as they happen, from now on or since the event of that number: which pod is placed where, which pod is
    refused and why, which gang is planned, bound, or gives up. It ends when the service ends, and with `Missed` for a
    caller that reads too slowly, whose unread events were dropped."""
    told = calls.follow(after, namespace=namespace)
    events = Events(_lines(told), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    events.streaming = admitted_in(request).streaming(namespace)
    return events


async def _lines(told: Following) -> AsyncIterator[bytes]:
    """Yields events as text, and a comment after some time without any."""
    # Shows the caller that it is connected, before anything happens.
    yield b": following\n\n"
    while True:
        if events := told.take(_AT_ONCE):
            yield b"".join(map(_worded, events))
            # Lets other tasks run.
            await asyncio.sleep(0)
        elif told.ended:
            return
        else:
            try:
                async with asyncio.timeout(_ALIVE_SECONDS):
                    await told.wait()
            except TimeoutError:
                yield b": alive\n\n"


@lru_cache(REMEMBERED)
def _worded(event: DecisionEvent | Missed) -> bytes:
    """Returns the event's lines, cached for all followers."""
    if isinstance(event, Missed):
        # With this id a reconnecting caller continues with the first remembered event.
        data = json.dumps({"count": event.count, "before": event.before})
        return f"id: {event.before - 1}\nevent: Missed\ndata: {data}\n\n".encode()
    # In ASCII: a follower's terminal gets nothing that it would take for a command.
    told = printable(json.dumps(event_view(event).model_dump(mode="json"), separators=(",", ":")))
    return f"id: {event.number}\nevent: {event.what}\ndata: {told}\n\n".encode()
