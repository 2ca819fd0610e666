"""Offline: answers questions of the management API from a state dump, without service and cluster.

The same code answers as in the dumped service, at the moment of the dump. A question that the dump cannot answer is
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, cast

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from extender.adapters.forked import Forked
from extender.adapters.http.api import create_api
from extender.app.contracts.api import Management
from extender.app.contracts.errors import NotFound
from extender.app.explain.explain import Explain
from extender.app.explain.remedy_search import RemedySearch
from extender.app.explain.simulate import WhatIf
from extender.app.explain.snapshot import Circumstances, Record, Reopened, reopened

ADDRESS = "http://state-dump"
_WITHIN = 60.0
"""Seconds for an answer: no other caller waits for it."""


def asked_of(told: Iterable[Record]) -> tuple[FastAPI, Circumstances]:
    """The management API of the dumped service. Raises `snapshot.Incomplete`."""
    there = reopened(told)
    return create_api(_management(there), lambda: True, CollectorRegistry()), there.circumstances


def _management(there: Reopened) -> Management:
    cache = there.scheduler.cache
    what_if = WhatIf(there.scheduler, Forked(_WITHIN, at_once=True))
    explain = Explain(cache, there.why_withheld)
    absent = cast(Any, _Absent())
    return Management(
        resources=absent,
        transactions=absent,
        state=absent,
        gangs=absent,
        explain=RemedySearch(cache, explain, Forked(_WITHIN, at_once=True), what_if.simulate_within),
        safety_switches=absent,
        quota=absent,
        policies=absent,
        asks=absent,
        events=absent,
        what_if=what_if,
        dump=absent,
    )


class _Absent:
    """Calls that only a service answers."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotFound("", name, "a state dump answers only explain and what-if; ask the service for all else")


class InProcess(httpx.BaseTransport):
    """A connection to an app in this process, for callers without an event loop."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._ask(request))

    async def _ask(self, request: httpx.Request) -> httpx.Response:
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        answer = await httpx.ASGITransport(self._app).handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


def what_is_missing(there: Circumstances) -> Iterator[str]:
    """What the dumped service knew and the dump does not contain, in words."""
    if there.foreign_policies:
        yield f"policies that are not part of Escher are not evaluated here: {', '.join(there.foreign_policies)}"
