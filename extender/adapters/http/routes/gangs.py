"""Gangs: phase, quorum, members and nodes of each gang."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import GangView, Page
from extender.adapters.http.models.parameters import Limit, Namespace, Token, management, noun
from extender.app.contracts.api import GangCalls
from extender.core.names import GangKey

router = noun("gangs")


async def _calls(request: Request) -> GangCalls:
    return (await management(request)).gangs


Calls = Annotated[GangCalls, Depends(_calls)]


@router.get("/namespaces/{ns}/gangs")
async def list_gangs(calls: Calls, namespace: Namespace, limit: Limit = 500, token: Token = None) -> Page[GangView]:
    """The gangs of a namespace. A page ends early if they have many members."""
    found = calls.gangs(namespace, after=answers.name_in(token))
    return answers.page_in_order(
        found, lambda state: state.key.name, answers.gang_view, limit, weight=lambda state: len(state.members)
    )


@router.get("/namespaces/{ns}/gangs/{name}")
async def get_gang(calls: Calls, namespace: Namespace, name: str) -> GangView:
    """One gang: its phase, quorum, members and their nodes, deadline."""
    return answers.gang_view(calls.gang(GangKey(namespace, name)))
