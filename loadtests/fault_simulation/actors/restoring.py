"""Restoring: restores etcd from a backup, and notifies its listeners, but not the service.

The API server has its earlier objects again; the service has to find that out without help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.kube.errors import Away
from kubesim.kinds import POD
from loadtests.fault_simulation.plan import MENDED_WITHIN, Fault
from loadtests.fault_simulation.stage import Stage
from loadtests.life.seeing import uid
from loadtests.shared.reading import gang_of, node_of

_BUMPED_BY = 1_000_000_000
_BACK_AFTER = 1.5
"""Seconds after the restore at which the API server answers, if it was away."""
_AWAY = Away("connection refused")


class Restoring:
    """`until`: when the service must know of the last restore, in seconds of the event loop.

    `gangs`: those with a member bound, or asked for, at a restore: they may be in part, from an unknown earlier state.
    `changed`: how many objects all restores have changed."""

    def __init__(self, stage: Stage) -> None:
        self.until = float("-inf")
        self.gangs: set[str] = set()
        self.changed = 0
        self.under_way = False
        """Whether the writes of this moment belong to a restore."""
        self.listeners: list[Callable[[], None]] = []
        """Called after each restore."""
        self._stage = stage
        self._store = stage.cluster.api.store
        self._store.subscribe(lambda change: self._count())

    def _count(self) -> None:
        self.changed += self.under_way

    def since(self) -> float:
        """Seconds since the last restore was done."""
        return asyncio.get_running_loop().time() - (self.until - MENDED_WITHIN)

    @property
    def is_mended(self) -> bool:
        """Whether the service must know of all restores by now."""
        return asyncio.get_running_loop().time() >= self.until

    async def mended(self) -> None:
        await asyncio.sleep(max(0.0, self.until - asyncio.get_running_loop().time()))

    async def restore(self, fault: Fault) -> None:
        """Restores etcd; afterwards people may ask again for what was lost."""
        backup = self._store.back_up()
        await asyncio.sleep(max(0.0, fault.seconds - _BACK_AFTER))
        lives = list(self._stage.living) if fault.losing else []
        for life in lives:
            life.line.turn_away(_AWAY)
        await asyncio.sleep(min(fault.seconds, _BACK_AFTER))
        self._note_gangs()
        self._forget_binds()
        version = self._store.version
        self.under_way = True
        try:
            self._stage.restore(backup, {"on": version + _BUMPED_BY, "back": None, "same": version}[fault.of])
        finally:
            self.under_way = False
        self._note_gangs()
        self.until = asyncio.get_running_loop().time() + MENDED_WITHIN
        for listener in self.listeners:
            listener()
        await self._stage.cluster.restart_scheduler(0, 1.0)
        for life in lives:
            life.line.let_in()

    def _note_gangs(self) -> None:
        for each in self._store.list(POD):
            if (gang := gang_of(each)) is not None and (node_of(each) or uid(each) in self._stage.calls.binds):
                self.gangs.add(gang.key)

    def _forget_binds(self) -> None:
        """Forgets binds of bound pods: kube-scheduler asks again; old ones may still arrive."""
        for each in self._store.list(POD):
            if node_of(each):
                self._stage.calls.binds.pop(uid(each), None)
