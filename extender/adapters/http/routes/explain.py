"""Explain: why pods and gangs wait."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models import explained
from extender.adapters.http.models.explained import ExplanationView
from extender.adapters.http.models.parameters import Namespace, management, noun
from extender.adapters.http.rights import admitted_in
from extender.app.admin.authorization import Right
from extender.app.contracts.api import ExplainCalls
from extender.core.names import GangKey

router = noun("explain")


async def _calls(request: Request) -> ExplainCalls:
    return (await management(request)).explain


Calls = Annotated[ExplainCalls, Depends(_calls)]


async def _everywhere(request: Request) -> bool:
    """Whether the caller may get all explanations, and so read about other namespaces."""
    return await admitted_in(request).may(Right(verb="get", resource="explanations"))


Everywhere = Annotated[bool, Depends(_everywhere)]


@router.get("/namespaces/{ns}/gangs/{name}/explain")
async def explain_gang(calls: Calls, everywhere: Everywhere, namespace: Namespace, name: str) -> ExplanationView:
    """Why the gang waits, with numbers, since when, and what would help; `tried` was tried on a copy of the cluster."""
    return explained.explanation_view(await calls.gang(GangKey(namespace, name), everywhere=everywhere))


@router.get("/namespaces/{ns}/pods/{pod}/explain")
async def explain_pod(calls: Calls, everywhere: Everywhere, namespace: Namespace, pod: str) -> ExplanationView:
    """Why the pod waits, with numbers, since when, and what would help; `tried` was tried on a copy of the cluster."""
    return explained.explanation_view(await calls.pod(namespace, pod, everywhere=everywhere))
