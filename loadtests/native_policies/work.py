"""Work: a batch of pods for one policy, as it is said in Kubernetes' own means, to the extender, and to an ESL.

A `Work` makes manifests and policies and says what is to be prepared; `rules` judges, `bench` carries out and measures.
What all ways have in common stands once, in `asks`; what a way adds is all that differs between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from escher_k8s.esl import PolicyEsl, Task
from extender.esl.policy_asks import PolicyAsks
from loadtests.native_policies.rules import Placement, Verdict
from loadtests.pods import EXTENDER, PURE, Json, pod

Way = Literal["native", "extender", "esl"]
WAYS: tuple[Way, ...] = ("native", "extender", "esl")

DOMAIN = "native.test"
POD, BATCH, GROUP, POOL = f"{DOMAIN}/pod", f"{DOMAIN}/batch", f"{DOMAIN}/group", f"{DOMAIN}/pool"
"""Labels: which pod of a batch it is; that it is one of a batch; of which group; and on nodes, of which pool."""
POLICY = "escher.dev/policy"
HOSTNAME = "kubernetes.io/hostname"
PACKED = "native-packed"
"""The profile that is `escher-resources` but for one setting: NodeResourcesFit scores MostAllocated."""
CPU_OF_A_NODE = 8


class Site(Protocol):
    """The cluster, for what a work prepares in it. What is said twice changes nothing."""

    async def label(self, nodes: Sequence[str], key: str, value: str | None) -> None:
        """These nodes have the label; None: they have not."""
        ...

    async def offer(self, nodes: Sequence[str], resource: str, units: int | None) -> None:
        """These nodes have so much of an extended resource; None: none at all."""
        ...

    async def fill(self, name: str, node: str, **asks: Any) -> None:
        """A pod that is no batch's runs there."""
        ...

    async def empty(self, name: str) -> None:
        """The pod that `fill` made is being deleted."""
        ...

    async def make(self, path: str, body: Json) -> None: ...

    async def patch(self, path: str, body: Json) -> None: ...

    async def remove(self, path: str) -> None: ...

    async def put_policy(self, name: str, kind: str, **parameters: Any) -> None:
        """It is in force."""
        ...

    async def drop_policy(self, name: str) -> None: ...

    async def set_resource(self, name: str, units: int, nodes: str | Mapping[str, Any]) -> None:
        """The service's ephemeral resource."""
        ...

    async def drop_resource(self, name: str) -> None: ...


class Work:
    """One policy's. `nodes` are all alike and empty, but for what the work itself lays."""

    name: ClassVar[str]
    page: ClassVar[str]
    """In docs/policies."""
    rule: ClassVar[str]
    measure: ClassVar[str]
    said: ClassVar[Mapping[Way, str]]
    """How it is said; a way that is missing has no means for it."""
    happens: ClassVar[float | None] = None
    """After so many seconds something happens (`happen`). 0: when all pods have been tried and wait, and then latency
    is counted from it; else from each pod's creation."""
    watched: ClassVar[float] = 0.0
    """Seconds for which it is looked at after as many are bound as are expected: others must not be."""

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        self.nodes, self.size = list(nodes), pods
        self.expected = pods

    @property
    def best_amount(self) -> str:
        """What `measure` is at best, as people read it."""
        return ""

    async def lay(self, site: Site) -> None:
        """What stands for all batches of it is there."""

    async def clear(self, site: Site) -> None:
        """And is not any more."""

    async def before(self, site: Site, way: Way) -> None:
        """What each batch needs is there."""

    async def happen(self, site: Site, way: Way, space: PolicyAsks | None, policy: PolicyEsl | None) -> None:
        """See `happens`."""

    async def after(self, site: Site, way: Way) -> None:
        """What `before` and `happen` have made is not there any more."""

    def asks(self, number: int) -> dict[str, Any]:
        """Of each pod, whatever its way: resources, and the keywords of `loadtests.pods.pod`."""
        return {"cpu": "500m"}

    def group(self, number: int) -> str:
        return "all"

    def native(self, number: int, made: Json) -> None:
        """The pod says so in Kubernetes' own means."""

    def governed(self, number: int) -> str:
        """The EscherPolicies that govern it, as the annotation spells them."""
        return self.name

    def policies(self) -> Sequence[PolicyEsl]:
        """New ones for each batch, in one space. Tasks are asked of the last; the others stand beside it."""
        return [self.policy()]

    def policy(self) -> PolicyEsl:
        """The one, where there is one."""
        raise NotImplementedError

    async def entrust(self, space: PolicyAsks, policies: Sequence[PolicyEsl]) -> None:
        """They know what they have to before tasks are asked for."""

    def task(self, name: str, number: int) -> Task:
        return Task(name, self.group(number))

    def judge(self, placed: Placement, waiting: int) -> Verdict:
        """`waiting`: pods of the batch that are there and have no node."""
        raise NotImplementedError

    def pod(self, way: Way, name: str, number: int) -> Json:
        """What is created; of an ESL, what its requirement is attached to."""
        asks = dict(self.asks(number))
        if way == "extender":
            asks["annotations"] = {POLICY: self.governed(number), **asks.get("annotations", {})}
        made = pod(name, EXTENDER if way == "extender" else PURE, **asks)
        made["metadata"]["labels"] |= {POD: name, BATCH: "1", GROUP: self.group(number)}
        if way == "native":
            self.native(number, made)
        return made

    def groups(self) -> dict[int, str]:
        return {number: self.group(number) for number in range(self.size)}


def alike(group: str) -> Json:
    """The label selector of a group's pods."""
    return {"matchLabels": {GROUP: group}}


def node_term(key: str, *values: str) -> Json:
    """A node selector term: the label is there, or has one of the values."""
    said = {"operator": "In", "values": list(values)} if values else {"operator": "Exists"}
    return {"matchExpressions": [{"key": key, **said}]}
