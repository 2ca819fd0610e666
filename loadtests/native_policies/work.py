"""Work: a batch of pods for one policy, expressed natively, for the extender, and for an ESL.

A `Work` makes manifests and policies and prepares the cluster; `rules` judges, `bench` runs and measures. `asks` is
common to all ways; the ways differ only in what each adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from escher_k8s.esl import PolicyEsl, Task
from extender.esl.runtime.policy_asks import PolicyAsks
from loadtests.native_policies.rules import Placement, Verdict
from loadtests.shared.pods import EXTENDER, PURE, Json, pod

Way = Literal["native", "extender", "esl"]
WAYS: tuple[Way, ...] = ("native", "extender", "esl")

DOMAIN = "native.test"
POD, BATCH, GROUP, POOL = f"{DOMAIN}/pod", f"{DOMAIN}/batch", f"{DOMAIN}/group", f"{DOMAIN}/pool"
"""Labels: the pod of a batch; that it is in a batch; its group; and on nodes, the pool."""
POLICY = "escher.dev/policy"
HOSTNAME = "kubernetes.io/hostname"
PACKED = "native-packed"
"""The profile that is `escher-resources` except that NodeResourcesFit scores MostAllocated."""
CPU_OF_A_NODE = 8


class Site(Protocol):
    """The cluster in which a work prepares objects. Every call is idempotent."""

    async def label(self, nodes: Sequence[str], key: str, value: str | None) -> None:
        """Sets the label on these nodes; None removes it."""
        ...

    async def offer(self, nodes: Sequence[str], resource: str, units: int | None) -> None:
        """Sets the units of an extended resource on these nodes; None removes it."""
        ...

    async def fill(self, name: str, node: str, **asks: Any) -> None:
        """Runs a pod outside of all batches on the node."""
        ...

    async def empty(self, name: str) -> None:
        """Deletes the pod that `fill` created."""
        ...

    async def make(self, path: str, body: Json) -> None: ...

    async def patch(self, path: str, body: Json) -> None: ...

    async def remove(self, path: str) -> None: ...

    async def put_policy(self, name: str, kind: str, **parameters: Any) -> None:
        """Returns when the policy is in force."""
        ...

    async def drop_policy(self, name: str) -> None: ...

    async def set_resource(self, name: str, units: int, nodes: str | Mapping[str, Any]) -> None:
        """Sets an ephemeral resource of the service."""
        ...

    async def drop_resource(self, name: str) -> None: ...


class Work:
    """One policy's work. `nodes` are equal and empty, except for what the work itself prepares."""

    name: ClassVar[str]
    page: ClassVar[str]
    """Its page in docs/policies."""
    rule: ClassVar[str]
    measure: ClassVar[str]
    said: ClassVar[Mapping[Way, str]]
    """How each way expresses it; a missing way cannot."""
    happens: ClassVar[float | None] = None
    """Seconds until `happen`. 0: once all pods were tried and wait; latency then counts from it."""
    watched: ClassVar[float] = 0.0
    """Seconds of watching after the expected number is bound: no other pod may be bound."""

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        self.nodes, self.size = list(nodes), pods
        self.expected = pods

    @property
    def best_amount(self) -> str:
        """Returns the best value of `measure`, for people."""
        return ""

    async def lay(self, site: Site) -> None:
        """Prepares what all batches of the work need."""

    async def clear(self, site: Site) -> None:
        """Removes what `lay` prepared."""

    async def before(self, site: Site, way: Way) -> None:
        """Prepares what each batch needs."""

    async def happen(self, site: Site, way: Way, space: PolicyAsks | None, policy: PolicyEsl | None) -> None:
        """See `happens`."""

    async def after(self, site: Site, way: Way) -> None:
        """Removes what `before` and `happen` made."""

    def asks(self, number: int) -> dict[str, Any]:
        """Returns each pod's requests, in any way, and keywords of `loadtests.shared.pods.pod`."""
        return {"cpu": "500m"}

    def group(self, number: int) -> str:
        return "all"

    def native(self, number: int, made: Json) -> None:
        """Adds the policy to the pod by Kubernetes' own means."""

    def governed(self, number: int) -> str:
        """Returns the EscherPolicies that match the pod, as in its annotation."""
        return self.name

    def policies(self) -> Sequence[PolicyEsl]:
        """Returns new policies for a batch, in one space. Tasks are for the last one."""
        return [self.policy()]

    def policy(self) -> PolicyEsl:
        """Returns the policy, if there is exactly one."""
        raise NotImplementedError

    async def entrust(self, space: PolicyAsks, policies: Sequence[PolicyEsl]) -> None:
        """Gives the policies what they need before tasks ask."""

    def task(self, name: str, number: int) -> Task:
        return Task(name, self.group(number))

    def judge(self, placed: Placement, waiting: int) -> Verdict:
        """`waiting`: pods of the batch that exist and have no node."""
        raise NotImplementedError

    def pod(self, way: Way, name: str, number: int) -> Json:
        """Returns the pod to create, to which an ESL's requirement is attached."""
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
    """Returns the label selector of a group's pods."""
    return {"matchLabels": {GROUP: group}}


def node_term(key: str, *values: str) -> Json:
    """Returns a node selector term: the label exists, or has one of the values."""
    said = {"operator": "In", "values": list(values)} if values else {"operator": "Exists"}
    return {"matchExpressions": [{"key": key, **said}]}
