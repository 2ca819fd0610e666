"""The verbs over a `Scheduler`, wired as bootstrap does it; one thing in memory is all of the API server's ports."""

from __future__ import annotations

from typing import Any, TypeVar

from extender.app.contracts.effects import Decided
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.binding_cycle import BindingCycle
from extender.app.effects.dispatcher import Effects
from extender.app.effects.permit_gates import PermitGates
from extender.app.observability.flight_recorder import FlightRecorder

T = TypeVar("T")


class Wired:
    """`api` is every port at once; `more` is for the effects."""

    def __init__(
        self, scheduler: Scheduler, api: Any, flight_recorder: FlightRecorder, *, write_within: float = 3.0, **more: Any
    ) -> None:
        self.scheduler = scheduler
        self.gates = PermitGates()
        self.effects = Effects(
            scheduler,
            api,
            api,
            api,
            api,
            nominator=api,
            disruptions=api,
            live_pods=api,
            flight_recorder=flight_recorder,
            gates=self.gates,
            **more,
        )
        self.scheduling = BindingCycle(
            scheduler, self.effects, self.gates, api, write_within=write_within, flight_recorder=flight_recorder
        )

    def do(self, decided: Decided[T]) -> T:
        return self.effects.do(decided)
