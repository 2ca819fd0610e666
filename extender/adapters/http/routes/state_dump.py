"""State dump: the whole state of the service as one file, to be analysed elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.responses import Response, StreamingResponse

from extender.adapters import state_dump
from extender.adapters.http.models.parameters import management, noun
from extender.app.contracts.api import DumpCalls

router = noun("cluster")


async def _calls(request: Request) -> DumpCalls:
    return (await management(request)).dump


async def _takes_gzip(
    accept_encoding: Annotated[str, Header(description="`gzip`: the response is compressed")] = "",
) -> bool:
    return any(_means_gzip(each) for each in accept_encoding.lower().split(","))


def _means_gzip(encoding: str) -> bool:
    name, _, weight = encoding.partition(";")
    return name.strip() == "gzip" and weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")


class Dump(Response):
    media_type = state_dump.MEDIA_TYPE


@router.get(
    "/state-dump",
    response_class=Dump,
    responses={
        200: {
            "description": "JSON lines: a header with the format, one record a line, and the number of records",
            "content": {state_dump.MEDIA_TYPE: {"schema": {"type": "string"}}},
        }
    },
)
async def dump_state(
    calls: Annotated[DumpCalls, Depends(_calls)], takes_gzip: Annotated[bool, Depends(_takes_gzip)]
) -> Response:
    """The whole state of the service, of all namespaces, for `escher what-if --state` and `escher explain --state`
    on any machine. Of pods and nodes it has only what decides placement, including labels."""
    compressed = await calls.dump()
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if takes_gzip:
        return Dump(compressed, headers={**headers, "Content-Encoding": "gzip"})
    return StreamingResponse(_plainly(compressed), headers=headers, media_type=state_dump.MEDIA_TYPE)


async def _plainly(compressed: bytes) -> AsyncIterator[bytes]:
    for part in state_dump.plainly(compressed):
        yield part
        # Verbs are answered between the parts.
        await asyncio.sleep(0)
