"""What the application needs of the world, as protocols that adapters and fakes implement.

Must not know Kubernetes' JSON, HTTP or clients. Everything here is either a fact coming in (sinks) or an effect
going out. A port that fails raises one of the errors of `kube.errors`, never a client library's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from extender.app.objects.kind import Declared, Identity, ObjectStore, OurObject, Replacement, Standing, Status
from extender.core.budgets import Budget
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, PodUid, ResourceKey

T = TypeVar("T", contravariant=True)


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod as the API server addresses it; `uid` guards against a namesake."""

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
        """Seconds since the epoch, to compare with what other programs wrote. It may be set forward and back."""
        ...

    def steady(self) -> float:
        """Seconds that only ever pass, counted from what `now` said at the start: for deadlines and back-offs."""
        ...


class Sink(Protocol[T]):
    """Takes what a watch says about one kind. Called from the event loop, never concurrently, never blocking."""

    def replace(self, objects: Iterable[T]) -> Iterable[None]:
        """These and no others exist: the outcome of a list, once the steps are walked through to which it is taken in.
        Others have their turn between any two, and nothing else is said to this sink meanwhile; there are none where
        the kind is few."""
        ...

    def upsert(self, item: T) -> None:
        """It exists, and looks like this now."""
        ...

    def remove(self, item: T) -> None:
        """It is gone; this is how it looked last."""
        ...


class Binder(Protocol):
    async def bind(self, pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
        """The Binding is written, and the pod has these annotations besides. Does not retry.

        Raises Unavailable, Gone, Occupied, Refused.
        """
        ...

    async def node_of(self, pod: PodRef) -> NodeName | None:
        """Where the API server says the pod is bound; None while it is not. Raises Unavailable, Gone."""
        ...


class LivePods(Protocol):
    async def lives(self, pod: PodRef) -> bool:
        """Whether the API server has this very pod, and it has not finished. Raises Unavailable, Refused."""
        ...


class Evictor(Protocol):
    async def evict(self, pod: PodRef, *, dry_run: bool = False) -> None:
        """The pod is being deleted, as disruption budgets allow; with `dry_run` it could be, and nothing is done.

        Raises Unavailable where a budget does not allow it now, else as Binder.
        """
        ...

    async def preempt(self, pod: PodRef, why: str, *, dry_run: bool = False) -> None:
        """The pod is being deleted, whatever disruption budgets say, with its own grace period, and says why.

        As kube-scheduler deletes its victims. With `dry_run` it could be. Raises as Binder.
        """
        ...


class Disruptions(Protocol):
    async def budgets(self, namespace: str) -> Sequence[Budget]:
        """The namespace's disruption budgets as they are now. Raises Unavailable, Refused."""
        ...


class Nominator(Protocol):
    async def nominate(self, pod: PodRef, node: NodeName | None) -> None:
        """kube-scheduler keeps room on the node for the pod, from pods of no higher priority; None: nowhere.

        Raises as Binder.
        """
        ...


class Waker(Protocol):
    async def wake(self, pod: PodRef, token: str) -> None:
        """kube-scheduler tries the rejected pod again: its annotation `escher.dev/wake` says `token`.

        Raises as Binder.
        """
        ...

    async def void_attempt(self, pod: PodRef) -> None:
        """The pod says no more in which attempt it was bound. Raises as Binder."""
        ...

    async def open_gate(self, pod: PodRef) -> None:
        """The pod has our scheduling gate no more, and kube-scheduler tries it. Raises as Binder."""
        ...


class Tidier(Protocol):
    async def tidy(self, pod: PodRef) -> None:
        """The pod has no annotation of a Waker any more. Raises as Binder."""
        ...


class EventType(Enum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes event about a pod. `reason` is one CamelCase word of a fixed list, `note` is for people."""

    pod: PodRef
    type: EventType
    reason: str
    note: str


class Recorder(Protocol):
    async def record(self, notice: Notice) -> None:
        """The event is stored, and only once though it is recorded again: what it says is what it is known by.

        Raises as Binder.
        """
        ...


class NodeStatusWriter(Protocol):
    async def advertise(self, node: NodeName, desired: Mapping[ResourceKey, int], absent: Iterable[ResourceKey]) -> str:
        """Capacity and allocatable of the node both say `desired`, and have no key of `absent`. One request.

        Answers the node's version afterwards, empty if unknown. Raises Unavailable, Gone, Refused.
        """
        ...

    async def managers(self, node: NodeName, resources: Iterable[ResourceKey]) -> Sequence[str]:
        """Who wrote what capacity or allocatable say of these last, by the names of field managers.

        Raises Unavailable, Refused.
        """
        ...


FIRST_MOMENT, LAST_MOMENT = -62_135_596_800.0, 253_402_300_799.0
"""Seconds since the epoch: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z, which is what RFC 3339 and Python hold."""


@dataclass(frozen=True, slots=True)
class PodOwner:
    """The pod whose end ends a resource."""

    name: str
    uid: PodUid


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Which nodes a resource is meant for, when they are not named one by one (mission.md section 2).

    At most one of `node`, `available` and `labels` narrows; `limit` caps how many are chosen. All empty: every node.
    """

    node: NodeName | None = None
    available: Mapping[ResourceKey, int] | None = None
    labels: Mapping[str, str] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class MadeChoice:
    """A choice by rule that was made: for so many units on each node, and the nodes that it took.

    It stands until something else is asked for. One that names no nodes says only what was asked.
    """

    capacity: int
    choice: NodeChoice
    nodes: tuple[NodeName, ...] = ()


NO_CHOICE = MadeChoice(0, NodeChoice())
"""In a `ResourceChange` it removes the choice that is there."""


@dataclass(frozen=True, slots=True)
class EphemeralResource(OurObject):
    """The durable form of an ephemeral resource.

    `nodes`: units by node, where they are known one by one (what the management API writes). `choice` and
    `capacity`: the form for kubectl, resolved into `chosen`. Desired on a node is `chosen | nodes`.
    """

    name: EphemeralName
    nodes: Mapping[NodeName, int]
    capacity: int | None = None
    choice: NodeChoice | None = None
    chosen: Mapping[NodeName, int] | None = None
    chosen_for: MadeChoice | None = None
    """What `chosen` was chosen for, without nodes; None if that is not known."""
    made: MadeChoice | None = None
    """The last choice by rule of the management API, which it wrote into `nodes`; None if there is none."""
    owner: PodOwner | None = None
    exports: tuple[str, ...] = ()
    """Namespaces whose pods may ask for it besides its own."""
    policy: str = ""
    """Of the policy that has set it, where one has: `queue/slots`. It goes when that is not in force any more."""
    created: float = 0.0
    problem: str = ""
    """Why the object cannot be understood, in words for its author; empty if it can.

    Its desired state is then empty.
    """

    def desired(self) -> dict[NodeName, int]:
        """Units by node that should be there now; nodes with 0 are left out."""
        if self.deleting or self.problem:
            return {}
        return {node: units for node, units in {**(self.chosen or {}), **self.nodes}.items() if units}


@dataclass(frozen=True, slots=True)
class Former:
    """An object before a transaction; `resource` is None if it was not there. `deletes`: it may be deleted by it."""

    name: Identity
    resource: EphemeralResource | None
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """What a transaction is about to write, from before the first write until it is in force. See
    `app.resources.intent_log`.

    `given_up`: the transaction is being taken back, and cannot come into force.
    """

    formers: tuple[Former, ...]
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """Units of these nodes, None removing a node's, others stay as they are; owner and expiry as given, None removes.

    `made`: the choice that was made for it; it stays if none is given, and one without nodes removes it. `exports`: to
    which namespaces it is exported from now on; None: to the same as before.
    """

    nodes: Mapping[NodeName, int | None]
    owner: PodOwner | None = None
    expires_at: float | None = None
    made: MadeChoice | None = None
    exports: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResourceStatus(Status):
    """`chosen`: units by node as nodeSpec chose them, for what it asks now; None for an object that has no nodeSpec."""

    chosen: Mapping[NodeName, int] | None = None


ResourceStore = ObjectStore[EphemeralResource, ResourceChange, ResourceStatus]
"""EphemeralResource objects."""
IntentStore = ObjectStore[Declared[Intent], Replacement[Intent], Standing[Intent]]
"""TransactionIntent objects: those of the service's own namespace."""
