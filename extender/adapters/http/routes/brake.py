"""Safety switches: the call that returns what Escher may do now."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import BrakeView
from extender.adapters.http.models.parameters import management, noun
from extender.app.contracts.api import BrakeCalls

router = noun("brake")


async def _calls(request: Request) -> BrakeCalls:
    return (await management(request)).brake


Calls = Annotated[BrakeCalls, Depends(_calls)]


@router.get("/brake")
async def get_brake(calls: Calls) -> BrakeView:
    """What Escher may do now: evict parts of gangs, preempt, save room, refuse; everywhere, and by namespace."""
    return answers.brake_view(calls.state())
