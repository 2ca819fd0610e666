"""Permit gates: bind calls wait here until they are let through or refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from extender.core.attempt import Attempt
from extender.kube.names import PodUid

_STOPPING = "Escher is shutting down: the pod is tried again"


@dataclass(frozen=True, slots=True)
class Passage:
    """How a bind's wait ended: `refusal` is empty, or says why. `attempt` is for the Binding."""

    refusal: str
    attempt: Attempt | None = None


class PermitGates:
    def __init__(self) -> None:
        self._waiting: dict[PodUid, asyncio.Future[Passage]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, uid: PodUid) -> asyncio.Future[Passage]:
        """Returns a future that is done when the pod's bind is let through or refused."""
        gate: asyncio.Future[Passage] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = gate
        if self._closed:
            self.let(uid, _STOPPING)
        return gate

    def let(self, uid: PodUid, refusal: str, attempt: Attempt | None = None) -> None:
        """Ends the wait of the pod's bind; does nothing if it does not wait."""
        gate = self._waiting.pop(uid, None)
        if gate is not None and not gate.done():
            gate.set_result(Passage(refusal, attempt))

    def close(self) -> None:
        """Refuses all waiting binds, and all later ones, because the service stops."""
        self._closed = True
        for uid in list(self._waiting):
            self.let(uid, _STOPPING)
