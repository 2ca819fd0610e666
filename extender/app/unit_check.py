"""Unit check: before the first pod of a unit leaves, it is made as sure as can be that all of them may.

The disruption budgets about them are read anew and counted, for the API server counts one pod at a time, and a dry run
spends nothing. Then each eviction is tried as a dry run. Must not know what the pods leave for.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.ports import Disruptions, Evictor, PodRef
from extender.app.tables import Tables
from extender.app.wording import in_short
from extender.core.budgets import Budgets
from extender.core.cluster import Pod
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import PodUid


class UnitCheck:
    def __init__(self, tables: Tables, evictor: Evictor, disruptions: Disruptions) -> None:
        self._tables = tables
        self._evictor = evictor
        self._disruptions = disruptions

    async def look(self, unit: Sequence[Pod], protected: dict[PodUid, str] | None = None) -> tuple[list[Pod], str]:
        """Those of the unit that are there, in the order in which they are to leave; or why they may not.

        `protected`: where budgets may be broken, the pods that a budget protects are put there, with its name. They
        leave last: no budget refuses a deletion.
        """
        budgets = Budgets()
        try:
            for namespace in sorted({pod.namespace for pod in unit}):
                for budget in await self._disruptions.budgets(namespace):
                    budgets.see(budget)
        except (Unavailable, Refused) as error:
            return [], f"the disruption budgets cannot be read: {error}"
        # As they are now: a pod that has become ready since counts.
        known = (self._tables.pods.get(pod.uid) for pod in unit)
        pods = [pod for pod in known if pod is not None and not pod.deleting]
        objection = budgets.objection(pods)
        if objection is not None and protected is None:
            return [], in_short(objection)
        pods = budgets.likeliest_refused_first(pods)
        if protected is not None:
            spending = budgets.spending()
            kept = [pod for pod in pods if not spending.add((pod,))]
            protected.clear()
            protected |= {pod.uid: ", ".join(map(str, budgets.about(pod))) for pod in kept}
            pods.sort(key=lambda pod: pod.uid in protected)
        for pod in pods if len(pods) > 1 or protected else ():
            try:
                if protected and pod.uid in protected:
                    await self._evictor.preempt(PodRef.of(pod), "", dry_run=True)
                else:
                    await self._evictor.evict(PodRef.of(pod), dry_run=True)
            except Gone:
                continue
            except (Unavailable, Refused) as error:
                return [], str(error)
        return pods, ""
