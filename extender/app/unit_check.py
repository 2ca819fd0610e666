"""Unit check: before the first pod of a unit leaves, checks as far as possible that all may leave.

The disruption budgets of the pods are read again and counted: the API server counts one pod at a time, and a dry run
spends nothing. Then each eviction is tried as a dry run, and the API server confirms where each pod is bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from extender.app.cache.cache import Cache
from extender.app.contracts.messages import in_short
from extender.app.contracts.ports import Binder, Disruptions, Evictor, PodRef
from extender.core.budgets import Budgets
from extender.core.cluster import Pod
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import PodUid

_AT_ONCE = 16
"""Pods about whose node the API server is asked at once."""


class UnitCheck:
    def __init__(self, cache: Cache, binder: Binder, evictor: Evictor, disruptions: Disruptions) -> None:
        self._cache = cache
        self._binder = binder
        self._evictor = evictor
        self._disruptions = disruptions

    async def look(self, unit: Sequence[Pod], protected: dict[PodUid, str] | None = None) -> tuple[list[Pod], str]:
        """The pods of the unit that exist, in the order in which they leave; or why they may not.

        `protected`: if budgets may be broken, the pods that a budget protects are put there, with its name. They leave
        last: no budget refuses a deletion."""
        try:
            pods, budgets = await self._now(unit)
        except (Unavailable, Refused) as error:
            return [], f"the disruption budgets cannot be read: {error}"
        if protected is None and (objection := budgets.objection(pods)) is not None:
            return [], in_short(objection)
        pods = budgets.likeliest_refused_first(pods)
        if protected is not None:
            protected.clear()
            protected |= _protected(pods, budgets)
            pods.sort(key=lambda pod: pod.uid in protected)
        return pods, await self._tried(pods, protected or {}) if len(pods) > 1 else ""

    async def refusal(self, pods: Sequence[Pod]) -> str:
        """Why one of the pods that a budget protects may not be deleted; empty if each may.

        The budgets count the pods together."""
        try:
            there, budgets = await self._now(pods)
        except (Unavailable, Refused) as error:
            return f"the disruption budgets cannot be read: {error}"
        protected = _protected(there, budgets)
        return await self._tried([pod for pod in there if pod.uid in protected], protected)

    def is_there(self, pod: Pod) -> bool:
        """Whether the pod is still bound to that node and not deleting, as far as Escher knows."""
        known = self._cache.pods.get(pod.uid)
        if known is None or known.node is None or known.deleting:
            return False
        return pod.node in (None, known.node)

    async def confirm(self, pods: Sequence[Pod]) -> None:
        """The API server has each pod bound as known here, or gone. Raises Unavailable, Refused.

        Escher's watch may be late: a restore of etcd undoes Bindings, and no watch need report that."""
        for first in range(0, len(pods), _AT_ONCE):
            known = (self._cache.pods.get(pod.uid, pod) for pod in pods[first : first + _AT_ONCE])
            await asyncio.gather(*(self._confirm(pod) for pod in known))

    async def _confirm(self, pod: Pod) -> None:
        with suppress(Gone):
            await confirm(self._binder, pod)

    async def _now(self, pods: Sequence[Pod]) -> tuple[list[Pod], Budgets]:
        """The pods that exist, and the budgets of their namespaces as they are now."""
        budgets = Budgets()
        for namespace in sorted({pod.namespace for pod in pods}):
            for budget in await self._disruptions.budgets(namespace):
                budgets.see(budget)
        # A pod that has become ready since counts.
        return [self._cache.pods[pod.uid] for pod in pods if self.is_there(pod)], budgets

    async def _tried(self, pods: Sequence[Pod], protected: Mapping[PodUid, str]) -> str:
        """Why one of the pods is refused, each tried alone; empty if none is."""
        for pod in pods:
            try:
                if pod.uid in protected:
                    await self._evictor.preempt(PodRef.of(pod), "", dry_run=True)
                else:
                    await self._evictor.evict(PodRef.of(pod), dry_run=True)
            except Gone:
                continue
            except (Unavailable, Refused) as error:
                return str(error)
        return ""


async def confirm(binder: Binder, pod: Pod) -> None:
    """The API server has the pod bound, or unbound, as it is here. Raises Unavailable, Refused."""
    node = await binder.node_of(PodRef.of(pod))
    if node != pod.node:
        raise Unavailable(f"{pod} is not bound" if node is None else f"{pod} is bound to {node}")


def _protected(pods: Sequence[Pod], budgets: Budgets) -> dict[PodUid, str]:
    """The pods that the budgets do not let go after the others, and by which budget."""
    spending = budgets.spending()
    return {pod.uid: ", ".join(map(str, budgets.about(pod))) for pod in pods if not spending.add((pod,))}
