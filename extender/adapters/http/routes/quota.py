"""Quota: what a namespace uses and may use, and which nodes and names it may touch."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models.parameters import Namespace, management, noun
from extender.adapters.http.models.quota_view import QuotaView, quota_view
from extender.app.contracts.api import QuotaCalls

router = noun("quota")


async def _calls(request: Request) -> QuotaCalls:
    return (await management(request)).quota


Calls = Annotated[QuotaCalls, Depends(_calls)]


@router.get("/namespaces/{ns}/quota")
async def get_quota(calls: Calls, namespace: Namespace) -> QuotaView:
    """What a namespace uses of its quota, and its scheduling domain; set in the settings file, under `isolation`."""
    return quota_view(calls.quota(namespace))
