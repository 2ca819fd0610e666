"""Management API: what callers may request beyond kube-scheduler's verbs, in the core's words.

Each noun has a Protocol, which the application implements and adapters/http calls. Every call either answers, or raises
one of `errors` or `kube.errors.Unavailable`; then nothing has changed. Names arrive well formed (`core.names`),
numbers not negative."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from extender.app.contracts.decisions import EventCalls
from extender.app.contracts.explanation import Explanation
from extender.app.contracts.kind import Identity
from extender.app.contracts.policy_state import AskCalls, PolicyState
from extender.app.contracts.ports import NodeChoice, PodOwner, PodRef
from extender.app.contracts.simulation_request import SimulationRequest, SimulationResult
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Detection, HoldingKind, Mode, Stale
from extender.core.ledger.units import Short
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import PolicySpec
from extender.core.safety_switches import Switches
from extender.core.tenancy.isolation import Counted
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResource:
    """Absolute: the chosen nodes have `capacity` units of `name` afterwards; 0 removes it there.

    A node's name means that node alone. A rule means the whole: nodes that it does not choose lose the resource. The
    nodes that a rule chose stay, unless the request changes or a chosen node leaves for good: see `node_selection`.

    `choice` None means the caller's own node: `caller_node`, or else the node of the pod `owner`. If neither is known,
    the call is Invalid in field `node_spec`. `choice.limit` is the most nodes that are chosen (num_nodes)."""

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
    """An ephemeral resource as it is desired now.

    `nodes`: units by node, all above 0; empty once it is gone."""

    name: EphemeralName
    key: ResourceKey
    nodes: Mapping[NodeName, int]
    version: str = ""
    """What If-Match compares with; empty once it is gone."""
    owner: PodOwner | None = None
    expires_at: float | None = None
    """Seconds since the epoch; None if it has no time to live."""
    problem: str = ""
    """Why it is not in force: not understood, its key is taken, it is being deleted; or empty."""
    finalizers: Sequence[str] = ()
    """What holds the object while it is being deleted; else empty."""
    exports: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderState:
    """A holder of units on a node. `pod`, `gang`: for which it holds, if known."""

    holder: str
    kind: HoldingKind
    units: Vector
    pod: PodRef | None = None
    gang: GangKey | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One row of the ledger. `available` is below 0 if capacity fell below what is held."""

    node: NodeName
    capacity: Vector
    available: Vector
    holders: Sequence[HolderState] = ()
    sequence: int = 0
    """Grows with every claim on the node: what `Transact.read` compares with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Operation: `units` on `node` are held for `holder`, a name in `namespace`, for `ttl_seconds`.

    It replaces what the same holder of the same namespace held before. `units` may name any resource.
    """

    namespace: str
    holder: str
    node: NodeName
    units: Vector
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Operation: the holder holds nothing any more; no effect if it held nothing."""

    namespace: str
    holder: str


Operation = SetResource | Claim | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """Several operations as one, committed as `mode` says.

    `read`: the sequence numbers that the caller decided on. `SetResource.if_version` is honoured per operation; its
    `dry_run` is that of the transaction.
    """

    operations: Sequence[Operation]
    mode: Mode = Mode.ALL_OR_NOTHING
    detection: Detection = Detection.RESOURCE_FIT
    read: Mapping[NodeName, int] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The operation at `index` failed: a conflict with numbers, or an error in its `field`."""

    index: int
    cause: Short | Stale | None = None
    field: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a transaction. `resources`: what committed operations set, by their index."""

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
    """One gang, by its key for people. `reason`: why it waits, in words with numbers, or empty."""

    key: GangKey
    phase: Phase
    quorum: int
    members: Sequence[MemberState] = ()
    deadline: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySwitchesState:
    """Safety switches in force. `namespaces`: those with labels that add to `everywhere`."""

    everywhere: Switches
    namespaces: Mapping[str, Switches]
    unclear: Mapping[str, list[str]]
    """Labels, by namespace, with neither of their two values; their safety switches hold back."""
    labels_are_read: bool
    """Whether namespaces could be listed at all."""


class ResourceCalls(Protocol):
    """Ephemeral resources."""

    async def set_resource(self, request: SetResource) -> ResourceState:
        """Stores the resource; it is in the ledger, and on its way to the nodes.

        Raises Invalid, BeingDeleted, VersionConflict, OutsideDomain, QuotaExceeded, NotFound, NotYet, Unavailable.
        """
        ...

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        """Raises NotFound."""
        ...

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        """Returns all resources of the namespace, in any order."""
        ...

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        """Deletes it from every node. Returns None, or what is left if finalizers hold the object.

        No effect if it does not exist. Raises VersionConflict, Invalid, NotYet, Unavailable.
        """
        ...


class TransactionCalls(Protocol):
    """Several operations as one."""

    async def transact(self, request: Transact) -> Outcome:
        """Conflicts are an answer, not an error. Raises Unavailable, NotYet, NotAnnounced."""
        ...


class StateCalls(Protocol):
    """What nodes have, and what holds it."""

    def cluster_state(
        self,
        *,
        namespace: str | None = None,
        node: NodeName | None = None,
        resource: ResourceKey | None = None,
        after: str | None = None,
    ) -> Iterator[NodeState]:
        """Yields the nodes by name, those after `after`, with what was asked for.

        Each is read when the iterator reaches it, with no turn of the event loop between. `namespace`: only its
        ephemeral resources and holders; `node`: only that one (NotFound if unknown); `resource`: only that one, and
        only nodes that have or hold it.
        """
        ...


class GangCalls(Protocol):
    """How far gangs have come."""

    def gangs(self, namespace: str, *, after: str | None = None) -> Iterator[GangState]:
        """Yields the gangs by name, those after `after`. Each is read when it is reached."""
        ...

    def gang(self, key: GangKey) -> GangState:
        """Raises NotFound; Invalid if several have that name."""
        ...


class ExplainCalls(Protocol):
    """Why something waits, and what would help."""

    async def pod(self, namespace: str, name: str, *, everywhere: bool = True) -> Explanation:
        """`everywhere`: may name pods, gangs and claims of other namespaces. Raises NotFound."""
        ...

    async def gang(self, key: GangKey, *, everywhere: bool = True) -> Explanation:
        """As `pod`. Raises NotFound; Invalid if several have that name."""
        ...


class PolicyCalls(Protocol):
    """EscherPolicies that people create, change and remove."""

    def list_policies(self, namespace: str) -> Sequence[PolicyState]:
        """Returns all policies of the namespace, in any order."""
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
        """Changes the policy to what `becomes` makes of it, and puts it in force.

        `becomes` gets None if the policy does not exist or is not understood; its errors are raised. Raises Invalid,
        BeingDeleted, VersionConflict, QuotaExceeded, NotFound, Unavailable.
        """
        ...

    async def delete_policy(
        self, name: Identity, *, if_version: str | None = None, dry_run: bool = False
    ) -> PolicyState | None:
        """Deletes the policy; it is no longer in force. Returns what finalizers hold, or None.

        No effect if it does not exist. Raises VersionConflict, Unavailable.
        """
        ...

    def judge_policy(self, name: Identity, spec: PolicySpec) -> PolicyState:
        """Returns the state that this spec would have. Raises Invalid, QuotaExceeded."""
        ...


class SafetySwitchesCalls(Protocol):
    """Safety switches."""

    def state(self) -> SafetySwitchesState:
        """Returns what is held back now, everywhere and by namespace."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaState:
    """A namespace's use and limit (None: no limit) of each, and its domain (None: not narrowed)."""

    namespace: str
    counted: Mapping[Counted, tuple[int, int | None]]
    waiting: Mapping[Counted, int]
    """How many wait for the quota: objects that are not wholly in force, gangs, kinds of pods."""
    nodes: Mapping[str, Sequence[str]] | None = None
    names: Sequence[str] | None = None
    node_count: int = 0


class QuotaCalls(Protocol):
    """Quotas and scheduling domains of namespaces, and their use."""

    def quota(self, namespace: str) -> QuotaState:
        """Returns the present state."""
        ...


class SimulationCalls(Protocol):
    """Simulation: what would be on a changed cluster."""

    async def simulate(self, request: SimulationRequest) -> SimulationResult:
        """Changes nothing. Raises NotFound, Invalid, Unavailable."""
        ...


class DumpCalls(Protocol):
    """The whole state, for analysis elsewhere."""

    async def dump(self) -> bytes:
        """Returns the state at this moment, compressed (gzip). Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """The objects that answer the calls of `/v1`, noun by noun."""

    resources: ResourceCalls
    transactions: TransactionCalls
    state: StateCalls
    gangs: GangCalls
    explain: ExplainCalls
    safety_switches: SafetySwitchesCalls
    quota: QuotaCalls
    policies: PolicyCalls
    asks: AskCalls
    events: EventCalls
    what_if: SimulationCalls
    dump: DumpCalls
