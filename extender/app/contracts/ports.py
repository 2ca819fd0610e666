"""Ports: what the application needs of the world, as protocols that adapters and fakes implement.

Everything here is either a fact coming in (sinks) or an effect going out. A port that fails raises one of the errors of
`kube.errors`, never a client library's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from extender.app.contracts.kind import Declared, Identity, ObjectStore, OurObject, Replacement, Standing, Status
from extender.core.budgets import Budget
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, PodUid, ResourceKey

T = TypeVar("T", contravariant=True)


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod as the API server addresses it; `uid` distinguishes pods of the same name."""

    namespace: str
    name: str
    uid: PodUid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, pod: Pod) -> PodRef:
        return cls(pod.namespace, pod.name, pod.uid)


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, to compare with what other programs wrote. It may jump."""
        ...

    def steady(self) -> float:
        """Seconds of a monotonic clock that starts at `now`: for deadlines and back-offs."""
        ...


class Sink(Protocol[T]):
    """Takes what a watch says about one kind. Called in the event loop, serially; never blocks."""

    def replace(self, objects: Iterable[T]) -> Iterable[None]:
        """These and no others exist: the result of a list, complete after the last step.

        The event loop may do other work between two steps, but this sink gets nothing else. Kinds with few objects have
        no steps."""
        ...

    def upsert(self, item: T) -> None:
        """The object exists, and looks like this now."""
        ...

    def remove(self, item: T) -> None:
        """The object is gone; this is its last state."""
        ...


class Binder(Protocol):
    async def bind(self, pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
        """Writes the Binding, with these annotations for the pod. Does not retry.

        Raises Unavailable, Gone, Occupied, Refused.
        """
        ...

    async def node_of(self, pod: PodRef) -> NodeName | None:
        """Returns the node where the pod is bound, or None. Raises Unavailable, Gone."""
        ...


class LivePods(Protocol):
    async def lives(self, pod: PodRef) -> bool:
        """Returns whether this very pod exists and is unfinished. Raises Unavailable, Refused."""
        ...


class Evictor(Protocol):
    async def evict(self, pod: PodRef, *, dry_run: bool = False) -> None:
        """Evicts the pod, as disruption budgets allow; with `dry_run` only checks that it could.

        Raises Unavailable if a budget does not allow it now, else as Binder.
        """
        ...

    async def preempt(self, pod: PodRef, why: str, *, dry_run: bool = False) -> None:
        """Deletes the pod despite disruption budgets, with its own grace period, and states why.

        So does kube-scheduler with its victims. With `dry_run` it only checks. Raises as Binder.
        """
        ...


class Disruptions(Protocol):
    async def budgets(self, namespace: str) -> Sequence[Budget]:
        """Returns the namespace's present disruption budgets. Raises Unavailable, Refused."""
        ...


class Nominator(Protocol):
    async def nominate(self, pod: PodRef, node: NodeName | None) -> None:
        """Makes kube-scheduler keep room on `node` from pods of no higher priority; None: on none.

        Raises as Binder.
        """
        ...


class Waker(Protocol):
    async def wake(self, pod: PodRef, token: str) -> None:
        """Makes kube-scheduler try the rejected pod again: sets `escher.dev/wake` to `token`.

        Raises as Binder.
        """
        ...

    async def void_attempt(self, pod: PodRef) -> None:
        """Removes the pod's record of the attempt that bound it. Raises as Binder."""
        ...

    async def open_gate(self, pod: PodRef) -> None:
        """Removes Escher's scheduling gate; then kube-scheduler tries the pod. Raises as Binder."""
        ...


class Tidier(Protocol):
    async def tidy(self, pod: PodRef) -> None:
        """Removes the annotations of a Waker from the pod. Raises as Binder."""
        ...


class EventType(Enum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes Event about a pod. `reason`: a CamelCase word of a fixed list; `note`: text."""

    pod: PodRef
    type: EventType
    reason: str
    note: str


class Recorder(Protocol):
    async def record(self, notice: Notice) -> None:
        """Stores the event once, even if it is recorded again: its content identifies it.

        Raises as Binder.
        """
        ...


class NodeStatusWriter(Protocol):
    async def advertise(self, node: NodeName, desired: Mapping[ResourceKey, int], absent: Iterable[ResourceKey]) -> str:
        """Sets capacity and allocatable of the node to `desired`, without the keys of `absent`.

        Makes one request. Returns the node's version afterwards, empty if unknown. Raises Unavailable, Gone, Refused.
        """
        ...

    async def managers(self, node: NodeName, resources: Iterable[ResourceKey]) -> Sequence[str]:
        """Returns the field managers that last wrote these in capacity or allocatable.

        Raises Unavailable, Refused.
        """
        ...


FIRST_MOMENT, LAST_MOMENT = -62_135_596_800.0, 253_402_300_799.0
"""Epoch seconds of 0001-01-01T00:00:00Z, 9999-12-31T23:59:59Z: limits of RFC 3339 and Python."""


@dataclass(frozen=True, slots=True)
class PodOwner:
    """The pod whose end ends a resource."""

    name: str
    uid: PodUid


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes that a resource is meant for, if they are not named singly.

    At most one of `node`, `available` and `labels` narrows; `limit` is the most nodes chosen. All empty: every node.
    """

    node: NodeName | None = None
    available: Mapping[ResourceKey, int] | None = None
    labels: Mapping[str, str] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class MadeChoice:
    """A choice by rule that was made: the units on each node, and the nodes that it took.

    It stays until something else is asked for. Without nodes it says only what was asked.
    """

    capacity: int
    choice: NodeChoice
    nodes: tuple[NodeName, ...] = ()


NO_CHOICE = MadeChoice(0, NodeChoice())
"""In a `ResourceChange`, it removes the choice that exists."""


@dataclass(frozen=True, slots=True)
class EphemeralResource(OurObject):
    """The durable form of an ephemeral resource.

    `nodes`: units by node, if they are known singly (what the management API writes). `choice` and `capacity`: the form
    for kubectl, resolved into `chosen`. Desired on a node is `chosen | nodes`.
    """

    name: EphemeralName
    nodes: Mapping[NodeName, int]
    capacity: int | None = None
    choice: NodeChoice | None = None
    chosen: Mapping[NodeName, int] | None = None
    chosen_for: MadeChoice | None = None
    """What `chosen` was chosen for, without nodes; None if that is not known."""
    made: MadeChoice | None = None
    """The last choice by rule of the management API, which it wrote into `nodes`; or None."""
    owner: PodOwner | None = None
    exports: tuple[str, ...] = ()
    """Namespaces whose pods may ask for it besides its own."""
    policy: str = ""
    """The policy that set it, if any: `queue/slots`. It goes when that is no longer in force."""
    created: float = 0.0
    problem: str = ""
    """Why the object cannot be understood, in words for its author; empty if it can.

    Its desired state is then empty.
    """

    def desired(self) -> dict[NodeName, int]:
        """Returns the units by node that should exist now, without nodes with 0."""
        if self.deleting or self.problem:
            return {}
        return {node: units for node, units in {**(self.chosen or {}), **self.nodes}.items() if units}


@dataclass(frozen=True, slots=True)
class Former:
    """An object before a transaction (None: absent). `deletes`: the transaction may delete it."""

    name: Identity
    resource: EphemeralResource | None
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """What a transaction is about to write: from before the first write until it is in force.

    See `app.resources.intent_log`. `given_up`: the transaction is being rolled back, and cannot come into force.
    """

    formers: tuple[Former, ...]
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """Sets the units of these nodes (None removes), and owner and expiry (None removes).

    Other nodes stay. `made`: the choice that was made for it; None keeps the former one, and one without nodes removes
    it. `exports`: the namespaces to which it is exported from now on; None: the same as before.
    """

    nodes: Mapping[NodeName, int | None]
    owner: PodOwner | None = None
    expires_at: float | None = None
    made: MadeChoice | None = None
    exports: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResourceStatus(Status):
    """`chosen`: units by node as nodeSpec chose them for its present request; None: no nodeSpec."""

    chosen: Mapping[NodeName, int] | None = None


ResourceStore = ObjectStore[EphemeralResource, ResourceChange, ResourceStatus]
"""EphemeralResource objects."""
IntentStore = ObjectStore[Declared[Intent], Replacement[Intent], Standing[Intent]]
"""TransactionIntent objects of the service's own namespace."""
