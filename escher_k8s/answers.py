"""Answers: what the management API returns, with types.

Has the members of the service's JSON, and skips members that a newer service adds. cpu is in cores, memory in bytes,
everything else in whole units; times have their time zone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
Units = dict[str, int | float]
"""By resource, as nodes and pods spell it."""


class Owner(msgspec.Struct, frozen=True):
    """The pod whose end ends a resource."""

    name: str
    uid: str


class Resource(msgspec.Struct, frozen=True):
    """An ephemeral resource in its desired state."""

    namespace: str
    name: str
    shared: bool
    key: str
    """Its name on nodes and in pods: `escher.dev/team-a.data1`."""
    nodes: dict[str, int]
    """Units by node."""
    version: str
    """For `if_version`; empty once the resource is deleted."""
    owner: Owner | None = None
    expires_at: datetime | None = None
    problem: str = ""
    """Why its nodes do not have it as desired; empty if they do."""
    finalizers: list[str] = []
    """What holds it while it is being deleted."""
    export_to: list[str] = []
    """Other namespaces whose pods may request it."""


class Holder(msgspec.Struct, frozen=True):
    """A holder of units on a node."""

    holder: str
    kind: str
    """saving, reservation, assumption or bound."""
    units: Units
    pod: str | None = None
    """`namespace/name`."""
    gang: str | None = None
    """`namespace/name`."""
    until: datetime | None = None


class NodeState(msgspec.Struct, frozen=True):
    """One row of the cluster state."""

    node: str
    capacity: Units
    available: Units
    """Below 0 if capacity was lowered below what is held."""
    holders: list[Holder]
    sequence: int
    """Grows with every claim on the node; for a transaction's `read`."""


class Refusal(msgspec.Struct, frozen=True):
    """An operation of a transaction that was not committed, and why."""

    index: int
    detail: str
    field: str | None = None
    resource: str | None = None
    asked: int | float | None = None
    free: int | float | None = None
    node: str | None = None
    read: int | None = None
    now: int | None = None


class Transaction(msgspec.Struct, frozen=True):
    """The result of a transaction; numbers are indices of its operations."""

    committed: list[int]
    conflicts: list[Refusal]
    resources: dict[int, Resource]


class Member(msgspec.Struct, frozen=True):
    """A pod of a gang."""

    namespace: str
    name: str
    uid: str
    phase: str
    """pending, reserved, at-barrier, binding, bound or finished."""
    node: str | None = None


class Gang(msgspec.Struct, frozen=True):
    """A gang and its progress."""

    namespace: str
    name: str
    phase: str
    """gathering, waiting, planned, binding, bound ..."""
    quorum: int
    members: list[Member]
    deadline: datetime | None = None
    """Until when its room is held."""
    reason: str = ""
    """Why it waits; empty if it does not."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that the same rule excludes."""

    rule: str
    count: int
    detail: str
    examples: list[str]
    resource: str | None = None
    asked: int | float | None = None
    free: int | float | None = None
    policy: str = ""
    """The policy of the rule; empty if it belongs to none."""
    type: str = ""
    """The type of that policy."""


class Remedy(msgspec.Struct, frozen=True):
    """A change that was tried on a copy of the cluster, and helps."""

    said: str
    changes: list[dict[str, Any]]
    """The same, as `what_if` takes it."""


class Explanation(msgspec.Struct, frozen=True):
    """Why a gang or a pod waits."""

    subject: str
    waits: bool
    summary: str
    groups: list[NodeGroup]
    remedies: list[str]
    """In words: what was tried, or else what the rules suggest, most likely first."""
    tried: list[Remedy] = []
    """The changes that help."""
    since: datetime | None = None
    """Since when it waits."""
    reason_since: datetime | None = None
    """Since when it waits for this reason."""
    node: str | None = None
    """The node to which the pod is bound."""


class PolicyType(msgspec.Struct, frozen=True):
    """A type of policy."""

    name: str
    summary: str
    parameters: dict[str, Any]
    """The JSON schema of its parameters."""
    example: dict[str, Any]
    """A policy of this type: `type` and `parameters`."""


class InForce(msgspec.Struct, frozen=True):
    """The part of a policy that is in force."""

    type: str
    parameters: dict[str, Any]
    """All of them."""
    selector: list[dict[str, Any]] | None = None
    """Requirements that all must hold; [] matches every pod of the namespace, None matches none."""


class Policy(msgspec.Struct, frozen=True):
    """A policy as its author wrote it, and what of it is in force."""

    namespace: str
    name: str
    type: str | None
    """None if what was written is not understood at all."""
    parameters: dict[str, Any]
    selector: dict[str, Any] | None
    version: str
    """For `if_version`; empty if it is not stored."""
    ready: bool
    """Whether what its author wrote is in force."""
    reason: str
    message: str
    in_force: InForce | None = None
    """What is in force; for a refused policy, its former content."""
    pods: int | None = None
    """How many pods it matches, counted about once a minute; None if nothing of it is in force."""
    finalizers: list[str] = []
    """What holds it while it is being deleted."""


class PolicyAnswer(msgspec.Struct, frozen=True, rename={"scheduler_name": "schedulerName"}):
    """What a policy answers to a task."""

    namespace: str
    policy: str
    type: str
    task: str
    requirement: dict[str, str]
    labels: dict[str, str]
    annotations: dict[str, str]
    scheduler_name: str
    effects: list[str]
    notices: list[str]


class Place(msgspec.Struct, frozen=True):
    """The placement that a pod would have."""

    pod: str
    """`namespace/name`."""
    node: str | None
    """None: no node would fit."""


class Supposition(msgspec.Struct, frozen=True):
    """The result of a what-if question."""

    fits: bool
    """Whether all pods asked about, and all moved pods, would have a node."""
    places: list[Place]
    moved: list[Place]
    explanation: Explanation | None = None
    """Why some of the pods asked about have no node."""


class Switches(msgspec.Struct, frozen=True):
    """What the service may do to other pods; named as in its settings file."""

    observe_only: bool
    evict_partial_gangs: bool
    gang_preemption: bool
    backfill_reservation: bool

    # The names that the fields had before, until version 0.4.

    @property
    def evicts_parts(self) -> bool:
        return self.evict_partial_gangs

    @property
    def preempts_for_gangs(self) -> bool:
        return self.gang_preemption

    @property
    def saves_room(self) -> bool:
        return self.backfill_reservation


class SafetySwitches(msgspec.Struct, frozen=True):
    """What the service may do to other pods now."""

    everywhere: Switches
    namespaces: dict[str, Switches]
    """Namespaces whose labels switch something: what settings and labels both allow."""
    unclear_labels: dict[str, list[str]]
    labels_are_read: bool


Brake = SafetySwitches
"""The old name, until version 0.4."""


class Counted(msgspec.Struct, frozen=True):
    """The number of one kind of thing, and its limit."""

    used: int
    limit: int | None
    """None: no limit."""
    waiting: int
    """How many wait for room: objects not fully in force, gangs, or kinds of pods."""


class Domain(msgspec.Struct, frozen=True):
    """The nodes and names that may be touched; None: all."""

    nodes: dict[str, list[str]] | None
    names: list[str] | None
    node_count: int


class Quota(msgspec.Struct, frozen=True):
    """What a namespace has, may have and may touch."""

    namespace: str
    resources: Counted
    units: Counted
    policies: Counted
    gang_places: Counted
    claims: Counted
    waiting_kinds: Counted
    domain: Domain


class Decision(msgspec.Struct, frozen=True):
    """One decision of the service, in order; members that do not apply are empty."""

    number: int
    """Grows by one with each decision; restarts with the service."""
    time: datetime
    what: str
    """One word: PodPlaced, PodTurnedAway, PodBound, GangPlanned, GangBound, GangTurnedAway ..."""
    namespace: str = ""
    gang: str = ""
    pod: str = ""
    node: str = ""
    detail: str = ""


class Missed(msgspec.Struct, frozen=True):
    """`count` decisions were dropped before they were read; the next has the number `before`."""

    count: int
    before: int


class Page(msgspec.Struct, Generic[T], frozen=True, rename={"following": "continue"}):
    """A part of a list."""

    items: list[T]
    following: str | None = None
    """The key of the next part; None at the end."""
