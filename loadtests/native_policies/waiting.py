"""Work of the policies about waiting pods: priority, queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from escher_k8s.esl import PolicyEsl, Queue
from extender.esl.runtime.policy_asks import PolicyAsks
from loadtests.native_policies import rules
from loadtests.native_policies.work import DOMAIN, Site, Way, Work
from loadtests.shared.pods import Json

_LICENCE = f"{DOMAIN}/licence"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_QUOTAS = "/api/v1/namespaces/default/resourcequotas"
_LOOK_ON = 0.5


class Urgent(Work):
    """All licences are in use, and urgent pods come last. Then licences for half become free."""

    name, page = "priority", "priority.md"
    rule = "of those that wait the urgent ones go first, when there is room for as many"
    measure = "urgent ones among the first"
    said: ClassVar[Mapping[Way, str]] = {"native": "`PriorityClass`", "extender": "`priority`, gangs of one"}
    happens = 0.0
    watched = _LOOK_ON

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods // 2 * 2)
        self.expected = self._room = self.size // 2

    @property
    def best_amount(self) -> str:
        return str(self._room)

    def group(self, number: int) -> str:
        return "rest" if number < self._room else "urgent"

    def governed(self, number: int) -> str:
        return f"priority-{self.group(number)}"

    def asks(self, number: int) -> dict[str, Any]:
        return {"cpu": "10m", _LICENCE: 1}

    async def lay(self, site: Site) -> None:
        await site.offer(self.nodes[:1], _LICENCE, self._room)
        for group, value in (("rest", 0), ("urgent", 10)):
            await site.put_policy(f"priority-{group}", "priority", priority=value)
            # It evicts no pod, like the policy.
            made = {"metadata": {"name": f"native-{group}"}, "value": 1000 + value, "preemptionPolicy": "Never"}
            await site.make(_CLASSES, made)

    async def clear(self, site: Site) -> None:
        await site.offer(self.nodes[:1], _LICENCE, None)
        for group in ("rest", "urgent"):
            await site.drop_policy(f"priority-{group}")
            await site.remove(f"{_CLASSES}/native-{group}")

    async def before(self, site: Site, way: Way) -> None:
        await site.fill("holder", self.nodes[0], cpu="10m", **{_LICENCE: str(self._room)})

    async def happen(self, site: Site, way: Way, space: PolicyAsks | None, policy: PolicyEsl | None) -> None:
        await site.empty("holder")

    def native(self, number: int, made: Json) -> None:
        made["spec"]["priorityClassName"] = f"native-{self.group(number)}"

    def pod(self, way: Way, name: str, number: int) -> Json:
        made = super().pod(way, name, number)
        if way == "extender":
            made["metadata"]["labels"]["escher.dev/gang"] = name
            made["metadata"]["annotations"]["escher.dev/gang-min-member"] = "1"
        return made

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        urgent = {number for number in range(self.size) if self.group(number) == "urgent"}
        return rules.in_order(list(placed), urgent, self._room)


class Limited(Work):
    """Half of the pods may run at a time."""

    name, page = "queue", "primitives.md"
    rule = "so many run at a time, and the others wait"
    measure = "pods that wait"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`ResourceQuota` on `pods`, which refuses the others",
        "esl": "`Queue`",
    }
    watched = _LOOK_ON

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods // 2 * 2)
        self.expected = self.size // 2

    @property
    def best_amount(self) -> str:
        return str(self.size - self.expected)

    async def before(self, site: Site, way: Way) -> None:
        if way == "native":
            hard = {"pods": str(self.expected)}
            await site.make(_QUOTAS, {"metadata": {"name": "queue"}, "spec": {"hard": hard}})
            # This control plane has no quota controller, so the test itself writes that nothing is used yet.
            await site.patch(f"{_QUOTAS}/queue/status", {"status": {"hard": hard, "used": {"pods": "0"}}})
            await asyncio.sleep(_LOOK_ON)  # until the API server's admission has seen it

    async def after(self, site: Site, way: Way) -> None:
        if way == "native":
            await site.remove(f"{_QUOTAS}/queue")

    def policy(self) -> PolicyEsl:
        return Queue("slots", capacity=self.expected)

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.limited(placed, self.expected, waiting, self.size - self.expected)
