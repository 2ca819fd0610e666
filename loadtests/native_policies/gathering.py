"""Work of the policies that bring pods together: co-location, bin packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from escher_k8s.esl import CoLocation, KnownGroup, Packing, PolicyEsl, Task
from extender.kube.names import CPU
from lab.compare.trials.policies import together_natively
from loadtests.native_policies import rules
from loadtests.native_policies.work import CPU_OF_A_NODE, PACKED, POOL, Site, Way, Work, alike
from loadtests.shared.pods import Json


class Together(Work):
    name, page = "co-location", "co-location.md"
    rule = "each group of 5 is on one node"
    measure = "groups together"
    said: ClassVar[Mapping[Way, str]] = {"native": "`podAffinity`", "extender": "`co-location`", "esl": "`CoLocation`"}
    each = 5

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, max(1, pods // self.each) * self.each)

    @property
    def best_amount(self) -> str:
        return str(self.size // self.each)

    def group(self, number: int) -> str:
        return f"{self.name}-{number // self.each}"

    governed = group

    async def lay(self, site: Site) -> None:
        for group in sorted(set(self.groups().values())):
            await site.put_policy(group, "co-location")

    async def clear(self, site: Site) -> None:
        for group in sorted(set(self.groups().values())):
            await site.drop_policy(group)

    def native(self, number: int, made: Json) -> None:
        together_natively(made, alike(self.group(number)))

    def policy(self) -> PolicyEsl:
        return CoLocation("near")

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.together(placed, self.groups())


class TogetherWhereAllFit(Together):
    """Half of the nodes lack memory; the others score better, but lack CPU for a whole group."""

    name = "co-location-size"
    rule = "each group of 3 is on one node that has room for all 3; other nodes look better"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`podAffinity`",
        "extender": "`co-location`, `size`",
        "esl": "`KnownGroup`",
    }
    each = 3

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        self._groups = max(1, min(pods // 3, len(nodes) // 2, 10))
        super().__init__(nodes, self._groups * 3)
        self._roomy, self._narrow = self.nodes[: self._groups], self.nodes[self._groups : 2 * self._groups]

    def asks(self, number: int) -> dict[str, Any]:
        return {"cpu": "2", "memory": "64Mi", "selector": {POOL: self.name}}

    async def lay(self, site: Site) -> None:
        await site.label([*self._roomy, *self._narrow], POOL, self.name)
        for node in self._roomy:
            await site.fill(f"filler-{node}", node, cpu="1", memory="28Gi")
        for node in self._narrow:
            await site.fill(f"filler-{node}", node, cpu="4", memory="64Mi")
        for group in sorted(set(self.groups().values())):
            await site.put_policy(group, "co-location", size=3)

    async def clear(self, site: Site) -> None:
        await super().clear(site)
        for node in (*self._roomy, *self._narrow):
            await site.empty(f"filler-{node}")
        await site.label([*self._roomy, *self._narrow], POOL, None)

    def policy(self) -> PolicyEsl:
        return KnownGroup("near", size=3, needs={CPU: 6000})

    def task(self, name: str, number: int) -> Task:
        return Task(name, self.group(number), {CPU: 2000}, {POOL: self.name})


class Packed(Work):
    name, page = "bin-packing", "bin-packing.md"
    rule = "as few nodes as will do"
    measure = "nodes used"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "profile with `MostAllocated`",
        "extender": "`bin-packing`",
        "esl": "`Packing`",
    }

    @property
    def _fewest(self) -> int:
        return -(-self.size * 2 // CPU_OF_A_NODE)

    @property
    def best_amount(self) -> str:
        return str(self._fewest)

    def asks(self, number: int) -> dict[str, Any]:
        return {"cpu": "2"}

    async def lay(self, site: Site) -> None:
        await site.put_policy(self.name, "bin-packing")

    async def clear(self, site: Site) -> None:
        await site.drop_policy(self.name)

    def native(self, number: int, made: Json) -> None:
        made["spec"]["schedulerName"] = PACKED

    def policy(self) -> PolicyEsl:
        return Packing("tight")

    def task(self, name: str, number: int) -> Task:
        return Task(name, "", {CPU: 2000})

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.packed(placed, self._fewest)
