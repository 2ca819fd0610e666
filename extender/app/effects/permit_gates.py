"""Gates: calls of bind that wait to be let through, or to be told why not. Must not know what they wait for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from extender.core.attempt import Attempt
from extender.kube.names import PodUid

_STOPPING = "Escher is shutting down: the pod is tried again"


@dataclass(frozen=True, slots=True)
class Passage:
    """How a bind has passed: empty, and what its pod is to say of that; or why it has not."""

    refusal: str
    attempt: Attempt | None = None


class PermitGates:
    def __init__(self) -> None:
        self._waiting: dict[PodUid, asyncio.Future[Passage]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, uid: PodUid) -> asyncio.Future[Passage]:
        """Done once somebody lets the pod's bind through, or refuses it."""
        gate: asyncio.Future[Passage] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = gate
        if self._closed:
            self.let(uid, _STOPPING)
        return gate

    def let(self, uid: PodUid, refusal: str, attempt: Attempt | None = None) -> None:
        """The pod's bind waits no more; nothing happens if it did not."""
        gate = self._waiting.pop(uid, None)
        if gate is not None and not gate.done():
            gate.set_result(Passage(refusal, attempt))

    def close(self) -> None:
        """Nobody waits any more: those that did, and all that come, are told that the service stops."""
        self._closed = True
        for uid in list(self._waiting):
            self.let(uid, _STOPPING)
