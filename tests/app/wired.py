"""The verbs over a keeper, wired as bootstrap does it; one thing in memory is all of the API server's ports."""

from __future__ import annotations

from typing import Any, TypeVar

from extender.app.contracts.effects import Decided
from extender.app.cycle.scheduler import Keeper
from extender.app.effects.binding_cycle import Scheduling
from extender.app.effects.dispatcher import Effects
from extender.app.effects.permit_gates import Gates
from extender.app.observability.flight_recorder import Journal

T = TypeVar("T")


class Wired:
    """`api` is every port at once; `more` is for the effects."""

    def __init__(self, keeper: Keeper, api: Any, journal: Journal, *, write_within: float = 3.0, **more: Any) -> None:
        self.keeper = keeper
        self.gates = Gates()
        self.effects = Effects(
            keeper,
            api,
            api,
            api,
            api,
            nominator=api,
            disruptions=api,
            live_pods=api,
            journal=journal,
            gates=self.gates,
            **more,
        )
        self.scheduling = Scheduling(keeper, self.effects, self.gates, api, write_within=write_within, journal=journal)

    def do(self, decided: Decided[T]) -> T:
        return self.effects.do(decided)
