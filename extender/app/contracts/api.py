"""What people and programs may ask of the application beyond kube-scheduler's verbs, in the core's words.

Each noun has a Protocol, which the application implements and adapters/http calls. Must not know JSON,
HTTP or status codes. Every call either answers, or raises one of the errors below or `ports.Unavailable`, and then
nothing has changed. Names arrive well formed (`core.names`), numbers not negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from extender.app.contracts.explanation import Explanation
from extender.app.contracts.policy_answers import AskCalls
from extender.app.contracts.policy_state import PolicyState
from extender.app.contracts.ports import NodeChoice, PodOwner, PodRef
from extender.app.contracts.quota_state import QuotaCalls
from extender.app.contracts.simulation_request import SimulationRequest, Wondered
from extender.app.objects.kind import Identity
from extender.app.observability.decision_stream import Following
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import Detection, HoldingKind, Mode, Stale
from extender.core.names import EphemeralName, GangKey
from extender.core.policy_types import PolicySpec
from extender.core.safety_switches import Switches
from extender.core.units import Short
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector


class ManagementError(Exception):
    """A call that was refused. `field` names the part of the request at fault, `value` what it said."""

    def __init__(self, field: str, value: object, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.value = value
        self.detail = detail


class NotFound(ManagementError):
    """What was asked for is not there."""


class Invalid(ManagementError):
    """Understood, and cannot be done: an unknown node, a caller whose node is unknown."""


class BeingDeleted(ManagementError):
    """It, or its namespace, is on its way out: nothing can be set until it is gone."""


class NotInForce(ManagementError):
    """The policy is there, and nothing of it is in force, or it cannot be carried out."""


class NotYet(ManagementError):
    """It will be possible, `retry_after` seconds from now or later."""

    def __init__(self, field: str, value: object, detail: str, retry_after: int) -> None:
        super().__init__(field, value, detail)
        self.retry_after = retry_after


class VersionConflict(ManagementError):
    """The object is not at the version that the caller expected (`value`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResource:
    """Absolute: the chosen nodes have `capacity` units of `name` afterwards; 0 removes it from them.

    A node's name speaks for that node alone, a rule for the whole: nodes that it does not choose lose the resource.
    What a rule chose stands as long as the same is asked and no chosen node has left for good: see `node_selection`.

    `choice` None means the caller's own node: `caller_node`, or else the node of the pod `owner`. Where neither tells,
    the call is Invalid in field `node_spec`. `choice.limit` caps how many nodes are chosen (num_nodes).
    """

    name: EphemeralName
    capacity: int
    choice: NodeChoice | None = None
    caller_node: NodeName | None = None
    ttl_seconds: float | None = None
    owner: PodOwner | None = None
    if_version: str | None = None
    if_absent: bool = False
    """Only if there is none of that name."""
    dry_run: bool = False
    exports: tuple[str, ...] | None = None
    """The other namespaces whose pods may ask for it; None: the same as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceState:
    """An ephemeral resource as it is desired now. `nodes`: units by node, all above 0; empty once it is gone."""

    name: EphemeralName
    key: ResourceKey
    nodes: Mapping[NodeName, int]
    version: str = ""
    """What If-Match compares with; empty once it is gone."""
    owner: PodOwner | None = None
    expires_at: float | None = None
    """Seconds since the epoch; None where it has no time to live."""
    problem: str = ""
    """Why it is not in force: it cannot be understood, its key is taken, it is being deleted. Empty if it is."""
    finalizers: Sequence[str] = ()
    """Who has to let go of it, where it is being deleted; else empty."""
    exports: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderState:
    """Who holds units on a node. `pod` where it holds for a pod that is known, `gang` where for a gang."""

    holder: str
    kind: HoldingKind
    units: Vector
    pod: PodRef | None = None
    gang: GangKey | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One row of the ledger. `available` may be below 0 after capacity was lowered under holders."""

    node: NodeName
    capacity: Vector
    available: Vector
    holders: Sequence[HolderState] = ()
    sequence: int = 0
    """Grows with every claim on the node: what `Transact.read` compares with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Operation: `units` on `node` are held for `holder`, a name in `namespace`, for so many seconds.

    It replaces what the same holder of the same namespace held before. `units` may name any resource.
    """

    namespace: str
    holder: str
    node: NodeName
    units: Vector
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Operation: the holder holds nothing any more; nothing happens if it held nothing."""

    namespace: str
    holder: str


Operation = SetResource | Claim | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """Several operations as one, committed as `mode` says. `read`: the sequence numbers the caller decided on.

    `SetResource.if_version` is honoured per operation; its `dry_run` is that of the transaction.
    """

    operations: Sequence[Operation]
    mode: Mode = Mode.ALL_OR_NOTHING
    detection: Detection = Detection.RESOURCE_FIT
    read: Mapping[NodeName, int] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The operation at `index` was not committed: a conflict with numbers, or an error in `field` of it."""

    index: int
    cause: Short | Stale | None = None
    field: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a transaction. `resources`: each resource that a committed operation set, by its index."""

    committed: Sequence[int] = ()
    refused: Sequence[Refusal] = ()
    resources: Mapping[int, ResourceState] = field(default_factory=dict)


class MemberPhase(Enum):
    """How far one member of a gang has come."""

    PENDING = "pending"
    RESERVED = "reserved"
    AT_BARRIER = "at-barrier"
    BINDING = "binding"
    BOUND = "bound"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """One member. `node` is None while nothing is held for it."""

    pod: PodRef
    phase: MemberPhase
    node: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangState:
    """One gang, by the key that people name it by. `reason` says in words, with numbers, why it waits; or is empty."""

    key: GangKey
    phase: Phase
    quorum: int
    members: Sequence[MemberState] = ()
    deadline: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeState:
    """What holds now. `namespaces`: those whose labels switch something, beside what holds everywhere."""

    everywhere: Switches
    namespaces: Mapping[str, Switches]
    unclear: Mapping[str, list[str]]
    """Labels, by namespace, that say neither of their two words, and hold the brake for that."""
    labels_are_read: bool
    """Whether namespaces could be listed at all."""


class ResourceCalls(Protocol):
    """Ephemeral resources."""

    async def set_resource(self, request: SetResource) -> ResourceState:
        """Durable, in the ledger, on its way to the nodes.

        Raises Invalid, BeingDeleted, VersionConflict, OutsideDomain, QuotaExceeded, NotFound, Unavailable.
        """
        ...

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        """Raises NotFound."""
        ...

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        """All of the namespace, in any order."""
        ...

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        """It is gone from every node. None; or, where finalizers hold the object, what is left of it.

        Nothing if it was not there. Raises VersionConflict, Unavailable.
        """
        ...


class TransactionCalls(Protocol):
    """Several operations as one."""

    async def transact(self, request: Transact) -> Outcome:
        """Conflicts are an answer, not an error. Raises Unavailable."""
        ...


class StateCalls(Protocol):
    """What nodes have, and who holds it."""

    def cluster_state(
        self,
        *,
        namespace: str | None = None,
        node: NodeName | None = None,
        resource: ResourceKey | None = None,
        after: str | None = None,
    ) -> Iterator[NodeState]:
        """The nodes that are present, by their names and beginning after that one; reduced to what was asked. Each is
        looked at when it is asked for, without a turn of the event loop in between.

        `namespace`: only ephemeral resources of it and holders in it; `node`: only that one (NotFound if unknown);
        `resource`: only that one, and only nodes that have or hold it.
        """
        ...


class GangCalls(Protocol):
    """How far gangs have come."""

    def gangs(self, namespace: str, *, after: str | None = None) -> Iterator[GangState]:
        """All of the namespace, by their names and beginning after that one. Each is looked at when it is asked for, as
        nodes are."""
        ...

    def gang(self, key: GangKey) -> GangState:
        """Raises NotFound; Invalid where several are called so."""
        ...


class ExplainCalls(Protocol):
    """Why something waits, and what would help."""

    async def pod(self, namespace: str, name: str, *, everywhere: bool = True) -> Explanation:
        """`everywhere`: pods, gangs and claims of other namespaces may be named. Raises NotFound."""
        ...

    async def gang(self, key: GangKey, *, everywhere: bool = True) -> Explanation:
        """The same. Raises NotFound; Invalid where several are called so."""
        ...


class PolicyCalls(Protocol):
    """Policies that people create, change and remove."""

    def list_policies(self, namespace: str) -> Sequence[PolicyState]:
        """All of the namespace, in any order."""
        ...

    def get_policy(self, name: Identity) -> PolicyState:
        """Raises NotFound."""
        ...

    async def change_policy(
        self,
        name: Identity,
        becomes: Callable[[PolicySpec | None], PolicySpec],
        *,
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> PolicyState:
        """It says what `becomes` makes of what it says (None: it is not there, or not understood), and is in force.

        What `becomes` raises is raised. Raises Invalid, BeingDeleted, VersionConflict, QuotaExceeded, NotFound,
        Unavailable.
        """
        ...

    async def delete_policy(
        self, name: Identity, *, if_version: str | None = None, dry_run: bool = False
    ) -> PolicyState | None:
        """It is in force no more, and gone: None; or finalizers hold what is answered.

        Nothing if it was not there. Raises VersionConflict, Unavailable.
        """
        ...

    def judge_policy(self, name: Identity, spec: PolicySpec) -> PolicyState:
        """How it would stand if it said this; nothing is changed. Raises Invalid, QuotaExceeded."""
        ...


class BrakeCalls(Protocol):
    """What may be done now."""

    def state(self) -> BrakeState:
        """What is held back now, everywhere and by namespace."""
        ...


class EventCalls(Protocol):
    """What is decided, as it happens."""

    def follow(self, after: int | None = None, *, namespace: str | None = None) -> Following:
        """From now on, or after that number; ends with the service."""
        ...


class WhatIfCalls(Protocol):
    """What would be, on a cluster that is not so."""

    async def wonder(self, wondered: Wondered) -> SimulationRequest:
        """Nothing changes. Raises NotFound, Invalid, Unavailable."""
        ...


class DumpCalls(Protocol):
    """The whole state, to be asked elsewhere."""

    async def dump(self) -> bytes:
        """As it is at this moment, compressed (gzip). Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """Who answers the calls of `/v1`, noun by noun."""

    resources: ResourceCalls
    transactions: TransactionCalls
    state: StateCalls
    gangs: GangCalls
    explain: ExplainCalls
    brake: BrakeCalls
    quota: QuotaCalls
    policies: PolicyCalls
    asks: AskCalls
    events: EventCalls
    what_if: WhatIfCalls
    dump: DumpCalls
