"""Work of policies that select or prefer nodes: data locality, objective, soft constraints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from escher_k8s.esl import DataLocality, Node, Objective, PodRequirement, PolicyEsl, Soft, Task
from extender.esl.runtime.policy_asks import PolicyAsks
from extender.kube.names import CPU
from loadtests.native_policies import rules
from loadtests.native_policies.work import CPU_OF_A_NODE, DOMAIN, Site, Way, Work, node_term
from loadtests.shared.pods import Json

_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
_DATA = f"data.{DOMAIN}/"
_VALUE = f"{DOMAIN}/value"
_WISH = f"{DOMAIN}/wish"
_CLASSES = 10
_ON_A_NODE = 10


class NearData(Work):
    """The data is on its nodes before the pods are created."""

    name, page = "data-locality", "data-locality.md"
    rule = "each pod is on the node that has its data"
    measure = "pods at their data"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`nodeAffinity` to a label",
        "extender": "`data-locality`",
        "esl": "`DataLocality`",
    }

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods)
        # Nodes in the middle: a scheduler that takes nodes in their order does not find them at once.
        middle = self.nodes[len(nodes) // 2 :] + self.nodes[: len(nodes) // 2]
        self.holders = {f"{self.name}-{number}": middle[number] for number in range(-(-pods // _ON_A_NODE))}

    @property
    def best_amount(self) -> str:
        return str(self.size)

    def group(self, number: int) -> str:
        return f"{self.name}-{number // _ON_A_NODE}"

    governed = group

    async def lay(self, site: Site) -> None:
        for data in self.holders:
            await site.put_policy(data, "data-locality", data=[data])
        await self._come(site, ("native", "extender"))

    async def _come(self, site: Site, ways: Sequence[Way]) -> None:
        for way in ways:
            if way == "native":
                await asyncio.gather(*(site.label([node], _DATA + data, "") for data, node in self.holders.items()))
            else:
                await asyncio.gather(*(site.set_resource(data, 1, node) for data, node in self.holders.items()))

    async def _go(self, site: Site, ways: Sequence[Way]) -> None:
        for way in ways:
            if way == "native":
                await asyncio.gather(*(site.label([node], _DATA + data, None) for data, node in self.holders.items()))
            else:
                await asyncio.gather(*(site.drop_resource(data) for data in self.holders))

    async def clear(self, site: Site) -> None:
        await self._go(site, ("native", "extender"))
        for data in self.holders:
            await site.drop_policy(data)

    def native(self, number: int, made: Json) -> None:
        terms = {"nodeSelectorTerms": [node_term(_DATA + self.group(number))]}
        made["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: terms}}

    def policy(self) -> DataLocality:
        return DataLocality("near", {data: [node] for data, node in self.holders.items()})

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.near(placed, {number: [self.holders[self.group(number)]] for number in range(self.size)})


class DataComes(NearData):
    """The pods were tried and wait when the data comes; latency counts from then."""

    name = "data-comes"
    rule = "each pod that waits goes to the node that gets its data"
    happens = 0.0

    async def lay(self, site: Site) -> None:
        for data in self.holders:
            await site.put_policy(data, "data-locality", data=[data])

    async def clear(self, site: Site) -> None:
        for data in self.holders:
            await site.drop_policy(data)

    def policy(self) -> DataLocality:
        return DataLocality("near")

    async def happen(self, site: Site, way: Way, space: PolicyAsks | None, policy: PolicyEsl | None) -> None:
        if space is None or not isinstance(policy, DataLocality):
            return await self._come(site, [way])
        for data, node in self.holders.items():
            await space.do(lambda now, data=data, node=node: policy.hold(data, [node], now))  # type: ignore[misc]
        return None

    async def after(self, site: Site, way: Way) -> None:
        if way != "esl":
            await self._go(site, [way])


class Best(Work):
    """Nodes have a value from 1 to 10, as generations of a GPU; four pods fill a node."""

    name, page = "objective", "objective.md"
    rule = "the best nodes that have room"
    measure = "percent of the best sum of values"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "preferred `nodeAffinity`, a weight for each value",
        "extender": "`objective`",
        "esl": "`Objective`, its alternatives a second each by `Soft`",
    }

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods)
        self._values = {node: 1 + number * 7 % _CLASSES for number, node in enumerate(self.nodes)}

    @property
    def best_amount(self) -> str:
        return "100"

    def asks(self, number: int) -> dict[str, Any]:
        return {"cpu": "2"}

    async def lay(self, site: Site) -> None:
        for value in range(1, _CLASSES + 1):
            await site.label([node for node, its in self._values.items() if its == value], _VALUE, str(value))
        await site.put_policy(self.name, "objective", label=_VALUE)

    async def clear(self, site: Site) -> None:
        await site.label(self.nodes, _VALUE, None)
        await site.drop_policy(self.name)

    def native(self, number: int, made: Json) -> None:
        terms = [
            {"weight": 100 * value // _CLASSES, "preference": node_term(_VALUE, str(value))}
            for value in range(1, _CLASSES + 1)
        ]
        made["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: terms}}

    def policies(self) -> Sequence[PolicyEsl]:
        def score(node: Node) -> float:
            return 1024 * self._values.get(node.name, 0) / _CLASSES

        best = Objective("best", score)

        def alternatives(task: Task) -> list[PodRequirement]:
            return [
                PodRequirement({str(key): str(units) for key, units in each.items()})
                for each in best.alternatives(task)
            ]

        return [best, Soft("soft", alternatives, wait=1.0)]

    async def entrust(self, space: PolicyAsks, policies: Sequence[PolicyEsl]) -> None:
        await space.ask(policies[0], Task("any"))

    def task(self, name: str, number: int) -> Task:
        return Task(name, "", {CPU: 2000})

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.best(placed, self._values, CPU_OF_A_NODE // 2)


class Wish(Work):
    """The first preference is available at once."""

    name, page = "soft", "soft.md"
    rule = "each pod is on a node that it prefers, where that can be had at once"
    measure = "pods with their wish"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "preferred `nodeAffinity`",
        "extender": "`soft`",
        "esl": "`Soft`",
    }
    _data, _wish = "soft-data", "soft-wish"

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods)
        self._wished = self.nodes[len(nodes) // 2 :][: -(-pods // _ON_A_NODE)]

    @property
    def best_amount(self) -> str:
        return str(self.size)

    def governed(self, number: int) -> str:
        return self._wish

    async def lay(self, site: Site) -> None:
        await site.label(self._wished, f"{DOMAIN}/holds", "data")
        await site.put_policy(self._data, "data-locality", data=[self._data])
        await site.put_policy(self._wish, "soft", preferences=[self._data], wait_seconds=5, required=False)

    async def clear(self, site: Site) -> None:
        await site.drop_policy(self._wish)
        await site.drop_policy(self._data)
        await site.label(self._wished, f"{DOMAIN}/holds", None)

    async def before(self, site: Site, way: Way) -> None:
        await self._come(site, way)

    async def _come(self, site: Site, way: Way) -> None:
        match way:
            case "native":
                await site.label(self._wished, _WISH, "")
            case "extender":
                where: Mapping[str, Any] = {"labels": {f"{DOMAIN}/holds": "data"}}
                await site.set_resource(self._data, 1, where)
            case "esl":
                await site.offer(self._wished, _WISH, 1000)

    async def after(self, site: Site, way: Way) -> None:
        match way:
            case "native":
                await site.label(self._wished, _WISH, None)
            case "extender":
                await site.drop_resource(self._data)
            case "esl":
                await site.offer(self._wished, _WISH, None)

    def native(self, number: int, made: Json) -> None:
        terms = [{"weight": 100, "preference": node_term(_WISH)}]
        made["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: terms}}

    def policy(self) -> PolicyEsl:
        return Soft("soft", lambda task: [PodRequirement({_WISH: "1"}), PodRequirement({})], wait=5.0)

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.near(placed, dict.fromkeys(range(self.size), self._wished))


class LateWish(Wish):
    """The preference is available a second after the pods were created; they would wait five."""

    name = "soft-late"
    rule = "each pod is on a node that it prefers, where that can be had a second later"
    happens = 1.0

    async def before(self, site: Site, way: Way) -> None:
        """Does nothing: the preference is not available yet."""

    async def happen(self, site: Site, way: Way, space: PolicyAsks | None, policy: PolicyEsl | None) -> None:
        await self._come(site, way)
