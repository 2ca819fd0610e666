"""Foreign: plays another scheduler, which binds some members of its PodGroups and leaves others.

It uses nodes and pods as the API server has them, and nothing of Escher.
"""

from __future__ import annotations

import random
from typing import Any

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import POD, Json
from loadtests.life.actors.hands import Hands
from loadtests.life.seeing import cpu_of, free_cpu, uid
from loadtests.shared.reading import is_gated, is_leaving, is_over, node_of, scheduler_of

COSCHEDULING = "coscheduling"
_SLOWEST = 5.0
_FORGOTTEN, _FORGOTTEN_FOR = 0.3, 36_000.0
"""The share of members that it leaves pending for long, and the most seconds for which it does."""


class ForeignScheduler(Controller):
    kinds = (POD,)

    def __init__(self, *given: Any, hands: Hands, rng: random.Random) -> None:
        super().__init__(*given)
        self._hands = hands
        self._rng = rng

    def hear(self, change: Change) -> None:
        pod = change.object
        if scheduler_of(pod) != COSCHEDULING or change.type != "ADDED":
            return
        forgets = self._rng.random() < _FORGOTTEN
        self._try_after(self._rng.uniform(0.1, _FORGOTTEN_FOR if forgets else _SLOWEST), pod)

    def _try_after(self, seconds: float, pod: Json) -> None:
        self.later(uid(pod), seconds, lambda: self._try(pod))

    async def _try(self, pod: Json) -> None:
        now = self._store.get(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if now is None or uid(now) != uid(pod) or node_of(now) or is_over(now) or is_leaving(now) or is_gated(now):
            return
        fits = [node for node, free in free_cpu(self._store).items() if free >= cpu_of(pod)]
        if not fits or not await self._hands.bind(now, self._rng.choice(fits)):
            self._try_after(self._rng.uniform(60.0, 600.0), pod)
