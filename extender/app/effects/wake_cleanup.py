"""Wake cleanup: removes the wake annotation from pods that are bound.

A bound pod needs it no more. Escher never wakes pods of other schedulers; such a pod has a copied annotation, which
stays. Removal is not urgent, and a pod may end soon. So only pods that have been bound for a whole round lose it, one
after the other, so that urgent writes do not wait. A failure is tried again in the next round, and does not delay pods
of other namespaces. It is removed once a pod: if it is there again, another writer put it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from extender.app.cache.cache import Cache
from extender.app.contracts.ports import PodRef, Tidier
from extender.kube.errors import Away, Refused, Unavailable
from extender.kube.names import PodUid

_log = structlog.get_logger(__name__)

ROUND = 60.0
"""Seconds between rounds."""


class WakeCleanup:
    def __init__(self, cache: Cache, tidier: Tidier, every: float = ROUND) -> None:
        self._cache = cache
        self._tidier = tidier
        self._every = every

    async def run(self) -> None:
        """Removes the annotations, until it is cancelled."""
        before: frozenset[PodUid] = frozenset()
        done: set[PodUid] = set()
        while True:
            await asyncio.sleep(self._every)
            stale = {
                pod.uid: PodRef.of(pod)
                for pod in self._cache.pods.values()
                if pod.woken and pod.node is not None and not pod.deleting and self._cache.ours(pod)
            }
            done.intersection_update(self._cache.pods)
            await self._take_off({uid: pod for uid, pod in stale.items() if uid in before and uid not in done}, done)
            before = frozenset(stale)

    async def _take_off(self, stale: Mapping[PodUid, PodRef], done: set[PodUid]) -> None:
        """Skips namespaces after a failure. `done` gets pods that succeeded or were refused."""
        failed: set[str] = set()
        for uid, pod in stale.items():
            if pod.namespace in failed:
                continue
            try:
                await self._tidier.tidy(pod)
            except Unavailable as error:
                _log.info("stale annotations are left for the next round", pod=str(pod), why=str(error))
                if isinstance(error, Away):
                    return
                failed.add(pod.namespace)
                continue
            except Refused as error:
                _log.info("a stale annotation stays", pod=str(pod), why=str(error))
            done.add(uid)
