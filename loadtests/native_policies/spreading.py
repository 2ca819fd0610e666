"""Work of the policies that keep pods from each other: anti-affinity, balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from escher_k8s.esl import AntiAffinity, Balance, DynamicBalance, PolicyEsl, Task
from extender.kube.names import CPU
from lab.compare.trials.policies import evenly_natively
from loadtests.native_policies import rules
from loadtests.native_policies.work import HOSTNAME, POOL, Site, Way, Work, alike
from loadtests.shared.pods import Json


class Apart(Work):
    name, page = "anti-affinity", "anti-affinity.md"
    rule = "no node has two pods of a group"
    measure = "most of a group on a node"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`podAntiAffinity`",
        "extender": "`anti-affinity`",
        "esl": "`AntiAffinity`",
    }

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        each = min(10, len(nodes), pods)
        super().__init__(nodes, pods // each * each)
        self._each = each

    @property
    def best_amount(self) -> str:
        return "1"

    def group(self, number: int) -> str:
        return f"apart-{number // self._each}"

    governed = group

    async def lay(self, site: Site) -> None:
        for group in sorted(set(self.groups().values())):
            await site.put_policy(group, "anti-affinity")

    async def clear(self, site: Site) -> None:
        for group in sorted(set(self.groups().values())):
            await site.drop_policy(group)

    def native(self, number: int, made: Json) -> None:
        term = {"topologyKey": HOSTNAME, "labelSelector": alike(self.group(number))}
        made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def policy(self) -> PolicyEsl:
        return AntiAffinity("apart")

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.apart(placed, self.groups())


class Even(Work):
    """The placing component does not know the number of pods."""

    name, page = "balance", "balance.md"
    rule = "nodes differ by one pod at most"
    measure = "by how much nodes differ"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`topologySpreadConstraints`",
        "extender": "`balance`, `maxSkew`",
        "esl": "`DynamicBalance`",
    }
    pool = "even"

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        super().__init__(nodes, pods)
        self.places = self.nodes[: max(2, min(len(nodes), pods * 2 // 5))]

    @property
    def best_amount(self) -> str:
        return "0 or 1"

    def asks(self, number: int) -> dict[str, Any]:
        return {"cpu": "500m", "selector": {POOL: self.pool}}

    async def lay(self, site: Site) -> None:
        await site.label(self.places, POOL, self.pool)
        await site.put_policy(self.name, "balance", max_skew=1)

    async def clear(self, site: Site) -> None:
        await site.label(self.places, POOL, None)
        await site.drop_policy(self.name)

    def native(self, number: int, made: Json) -> None:
        evenly_natively(made, alike(self.group(number)))

    def policy(self) -> PolicyEsl:
        return DynamicBalance("even")

    def task(self, name: str, number: int) -> Task:
        return Task(name, self.group(number), {CPU: 500}, {POOL: self.pool})

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.even(placed, self.places, 1)


class EvenOfKnown(Even):
    """The number of pods is known, and given."""

    name = "balance-known"
    rule = "no node has more than its part of the pods"
    measure = "most on a node"
    said: ClassVar[Mapping[Way, str]] = {
        "native": "`topologySpreadConstraints`, which implies it",
        "extender": "`balance`, `tasks`",
        "esl": "`Balance`",
    }
    pool = "known"

    @property
    def part(self) -> int:
        return -(-self.size // len(self.places))

    @property
    def best_amount(self) -> str:
        return str(self.part)

    async def lay(self, site: Site) -> None:
        await site.label(self.places, POOL, self.pool)
        await site.put_policy(self.name, "balance", tasks=self.size)

    def policy(self) -> PolicyEsl:
        return Balance("even", tasks=self.size)

    def judge(self, placed: rules.Placement, waiting: int) -> rules.Verdict:
        return rules.at_most(placed, self.part)
