"""Unit check: before the first pod of a unit leaves, it is made as sure as can be that all of them may.

The disruption budgets about them are read anew and counted, for the API server counts one pod at a time, and a dry run
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
"""Of how many pods it is asked at once where they are bound."""


class UnitCheck:
    def __init__(self, cache: Cache, binder: Binder, evictor: Evictor, disruptions: Disruptions) -> None:
        self._cache = cache
        self._binder = binder
        self._evictor = evictor
        self._disruptions = disruptions

    async def look(self, unit: Sequence[Pod], protected: dict[PodUid, str] | None = None) -> tuple[list[Pod], str]:
        """Those of the unit that are there, in the order in which they are to leave; or why they may not.

        `protected`: where budgets may be broken, the pods that a budget protects are put there, with its name. They
        leave last: no budget refuses a deletion.
        """
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
        """Why one of these, counted together, is not deleted that a budget protects; empty if each may be."""
        try:
            there, budgets = await self._now(pods)
        except (Unavailable, Refused) as error:
            return f"the disruption budgets cannot be read: {error}"
        protected = _protected(there, budgets)
        return await self._tried([pod for pod in there if pod.uid in protected], protected)

    def is_there(self, pod: Pod) -> bool:
        """Whether it is bound, still on that node, and not about to go, as far as we know."""
        known = self._cache.pods.get(pod.uid)
        if known is None or known.node is None or known.deleting:
            return False
        return pod.node in (None, known.node)

    async def confirm(self, pods: Sequence[Pod]) -> None:
        """The API server itself says that each is bound where we know it to be, or gone. Raises Unavailable, Refused.

        Our watch may be late: a restore of etcd takes Bindings back, and no watch need tell of that.
        """
        for first in range(0, len(pods), _AT_ONCE):
            known = (self._cache.pods.get(pod.uid, pod) for pod in pods[first : first + _AT_ONCE])
            await asyncio.gather(*(self._confirm(pod) for pod in known))

    async def _confirm(self, pod: Pod) -> None:
        with suppress(Gone):
            await confirm(self._binder, pod)

    async def _now(self, pods: Sequence[Pod]) -> tuple[list[Pod], Budgets]:
        """Those that are there, and the budgets of their namespaces, as they are now."""
        budgets = Budgets()
        for namespace in sorted({pod.namespace for pod in pods}):
            for budget in await self._disruptions.budgets(namespace):
                budgets.see(budget)
        # A pod that has become ready since counts.
        return [self._cache.pods[pod.uid] for pod in pods if self.is_there(pod)], budgets

    async def _tried(self, pods: Sequence[Pod], protected: Mapping[PodUid, str]) -> str:
        """Why one of them is refused; empty if none is, each by itself."""
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
    """The API server has the pod bound as it is here, or unbound. Raises Unavailable, Refused."""
    node = await binder.node_of(PodRef.of(pod))
    if node != pod.node:
        raise Unavailable(f"{pod} is not bound" if node is None else f"{pod} is bound to {node}")


def _protected(pods: Sequence[Pod], budgets: Budgets) -> dict[PodUid, str]:
    """Those that the budgets do not let go after the others, and by which budget."""
    spending = budgets.spending()
    return {pod.uid: ", ".join(map(str, budgets.about(pod))) for pod in pods if not spending.add((pod,))}
