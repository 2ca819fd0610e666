"""What if: what would happen to pods, gangs and nodes in a changed cluster. Changes nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models.parameters import management, noun
from extender.adapters.http.models.what_if_models import SuppositionView, WhatIfBody, supposition_view
from extender.app.contracts.api import SimulationCalls

router = noun("explain")


async def _calls(request: Request) -> SimulationCalls:
    return (await management(request)).what_if


@router.post("/what-if")
async def what_if(calls: Annotated[SimulationCalls, Depends(_calls)], body: WhatIfBody) -> SuppositionView:
    """Simulates changes on a snapshot of this moment: whether new pods or a new gang would fit, and where; what
    becomes of a node's pods when it is drained; whether a waiting gang would fit with a lower quorum or more nodes.

    It uses the rules of real decisions, as if kube-scheduler offered every node that selectors, taints and capacity
    allow. Nothing changes.
    """
    return supposition_view(await calls.simulate(body.request()))
