"""Safety switches: the call that returns what Escher may do now."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import BrakeView, SafetySwitchesView
from extender.adapters.http.models.parameters import management, noun
from extender.app.contracts.api import SafetySwitchesCalls

router = noun("safety-switches")


async def _calls(request: Request) -> SafetySwitchesCalls:
    return (await management(request)).safety_switches


Calls = Annotated[SafetySwitchesCalls, Depends(_calls)]


@router.get("/safety-switches")
async def get_safety_switches(calls: Calls) -> SafetySwitchesView:
    """What Escher may do now: evict partial gangs, preempt, reserve, refuse; everywhere, and by namespace."""
    return answers.safety_switches_view(calls.state())


@router.get("/brake", deprecated=True)
async def get_brake(calls: Calls) -> BrakeView:
    """The same under its old name, with the switches' old names; use `GET /v1/safety-switches`."""
    return answers.brake_view(calls.state())
