"""Answers: the answer models of the management API, made from the application's states.

cpu is shown in cores, times as RFC 3339. Lists come in pages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from extender.adapters.http.models.quantities import shown, shown_units
from extender.adapters.http.problems import Problem, ProblemKind, quoted
from extender.app.contracts.api import (
    GangState,
    HolderState,
    NodeState,
    Outcome,
    Refusal,
    ResourceState,
    SafetySwitchesState,
)
from extender.app.contracts.decisions import DecisionEvent
from extender.app.contracts.ports import FIRST_MOMENT, LAST_MOMENT
from extender.core.ledger.ledger import Stale
from extender.core.ledger.units import Short
from extender.core.safety_switches import Switches
from extender.settings.settings_renamed import RENAMED

_MOST_IN_PAGE = 5000
"""Holders or members in a page; kube-scheduler's verbs wait while a page is created."""

T = TypeVar("T")
S = TypeVar("S")
Number = int | float


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class OwnerView(Answer):
    name: str
    uid: str


class ResourceView(Answer):
    """An ephemeral resource as it is desired now."""

    namespace: str
    name: str
    shared: bool
    key: Annotated[str, Field(description="Its name on nodes and in pods", examples=["escher.dev/team-a.data1"])]
    nodes: Annotated[dict[str, int], Field(description="Units by node", examples=[{"node-3": 4}])]
    version: Annotated[str, Field(description="For If-Match; empty after its removal")]
    owner: OwnerView | None
    expires_at: datetime | None
    problem: Annotated[str, Field(description="Why it is not in force on its nodes; empty if it is in force")]
    finalizers: Annotated[
        list[str], Field(description="What holds it while it is being deleted; otherwise empty", examples=[[]])
    ]
    export_to: Annotated[
        list[str], Field(description="Other namespaces whose pods may request it", examples=[["team-b"]])
    ]


class SwitchesView(Answer):
    """Named as in the settings file."""

    observe_only: Annotated[bool, Field(description="Escher evicts, preempts, reserves and refuses nothing")]
    evict_partial_gangs: bool
    gang_preemption: bool
    backfill_reservation: bool


class SafetySwitchesView(Answer):
    """What Escher may do now."""

    everywhere: Annotated[SwitchesView, Field(description="As the settings say")]
    namespaces: Annotated[
        dict[str, SwitchesView], Field(description="Namespaces with labels for switches, and what both allow there")
    ]
    unclear_labels: Annotated[
        dict[str, list[str]], Field(description="Unreadable labels, which forbid the actions that they name")
    ]
    labels_are_read: Annotated[bool, Field(description="Whether Escher may list namespaces")]


class BrakeView(Answer):
    """A `SafetySwitchesView` in which each switch has its old name."""

    everywhere: dict[str, bool]
    namespaces: dict[str, dict[str, bool]]
    unclear_labels: dict[str, list[str]]
    labels_are_read: bool


class HolderView(Answer):
    """A holder of units on a node."""

    holder: str
    kind: Annotated[str, Field(examples=["saving", "reservation", "assumption", "bound"])]
    units: dict[str, Number]
    pod: Annotated[str | None, Field(examples=["team-a/trainer-0"])]
    gang: Annotated[str | None, Field(examples=["team-a/train"])]
    until: datetime | None


class NodeView(Answer):
    """One row of the cluster state. cpu in cores, the rest in whole units."""

    node: str
    capacity: dict[str, Number]
    available: Annotated[dict[str, Number], Field(description="Below 0 if capacity was lowered below the held units")]
    holders: list[HolderView]
    sequence: Annotated[int, Field(description="Grows with every claim on the node")]


class RefusalView(Answer):
    """An operation that was not committed."""

    index: int
    detail: str
    field: str | None = None
    resource: str | None = None
    asked: Number | None = None
    free: Number | None = None
    node: str | None = None
    read: int | None = None
    now: int | None = None


class TransactionView(Answer):
    """The result of a transaction: indices of its operations."""

    committed: list[int]
    conflicts: list[RefusalView]
    resources: dict[int, ResourceView]


class MemberView(Answer):
    namespace: str
    name: str
    uid: str
    phase: Annotated[str, Field(examples=["pending", "reserved", "at-barrier", "binding", "bound", "finished"])]
    node: str | None


class GangView(Answer):
    """A gang and its progress."""

    namespace: str
    name: str
    phase: Annotated[str, Field(examples=["gathering", "waiting", "planned", "binding", "bound"])]
    quorum: int
    members: list[MemberView]
    deadline: datetime | None
    reason: Annotated[str, Field(description="Why it waits; empty if it does not")]


class EventView(Answer):
    """One decision. `number` grows by one with each. What it is not about is empty."""

    number: int
    time: datetime
    what: str
    namespace: str
    gang: str
    pod: str
    node: str
    detail: str


class Page(Answer, Generic[T]):
    """Part of a list. `continue`: send it to get the next part; null at the end."""

    items: list[T]
    continue_: Annotated[str | None, Field(serialization_alias="continue")]


def page(
    states: Iterable[S], name: Callable[[S], str], view: Callable[[S], T], limit: int, token: str | None
) -> Page[T]:
    """Returns at most `limit` states, sorted by name, after the name in `token`."""
    after = name_in(token)
    ordered = sorted(((name(state), state) for state in states), key=lambda named: named[0])
    return page_in_order((state for known, state in ordered if after is None or known > after), name, view, limit)


def page_in_order(
    states: Iterable[S],
    name: Callable[[S], str],
    view: Callable[[S], T],
    limit: int,
    *,
    weight: Callable[[S], int] = lambda state: 0,
) -> Page[T]:
    """Returns at most `limit` of the states, which must come sorted by name.

    `weight`: number of holders or members of a state. A page also ends with the state that reaches `_MOST_IN_PAGE`.
    """
    items: list[T] = []
    last, weighs = "", 0
    for state in states:
        if len(items) == limit or weighs >= _MOST_IN_PAGE:
            # A name and not a number: objects added or removed meanwhile shift nothing.
            return Page(items=items, continue_=base64.urlsafe_b64encode(last.encode()).decode())
        items.append(view(state))
        last, weighs = name(state), weighs + weight(state)
    return Page(items=items, continue_=None)


def name_in(token: str | None) -> str | None:
    """Returns the name after which the page begins; None for the first page. Raises Problem."""
    try:
        return None if token is None else base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Problem(
            ProblemKind.INVALID, f"{quoted(token)} is not a valid token; omit it to start again", field="continue"
        ) from None


def resource_view(state: ResourceState) -> ResourceView:
    owner = state.owner
    return ResourceView(
        namespace=state.name.namespace,
        name=state.name.name,
        shared=state.name.shared,
        key=state.key,
        nodes={str(node): units for node, units in state.nodes.items()},
        version=state.version,
        owner=OwnerView(name=owner.name, uid=owner.uid) if owner else None,
        expires_at=timestamp(state.expires_at),
        problem=state.problem,
        finalizers=list(state.finalizers),
        export_to=list(state.exports),
    )


def node_view(state: NodeState) -> NodeView:
    return NodeView(
        node=state.node,
        capacity=shown(state.capacity),
        available=shown(state.available),
        holders=[_holder_view(holder) for holder in state.holders],
        sequence=state.sequence,
    )


def _holder_view(state: HolderState) -> HolderView:
    return HolderView(
        holder=state.holder,
        kind=state.kind.value,
        units=shown(state.units),
        pod=str(state.pod) if state.pod else None,
        gang=str(state.gang) if state.gang else None,
        until=timestamp(state.until),
    )


def transaction_view(outcome: Outcome) -> TransactionView:
    return TransactionView(
        committed=list(outcome.committed),
        conflicts=[refusal_view(refusal) for refusal in outcome.refused],
        resources={index: resource_view(state) for index, state in outcome.resources.items()},
    )


def refusal_view(refusal: Refusal) -> RefusalView:
    cause = refusal.cause
    if isinstance(cause, Stale):
        said = f"{cause.node} has new claims since it was read: sequence {cause.read} then, {cause.now} now"
        return RefusalView(
            index=refusal.index, detail=refusal.detail or said, node=cause.node, read=cause.read, now=cause.now
        )
    if isinstance(cause, Short):
        told = short_view(cause)
        said = f"{told['asked']} of {cause.resource} requested, {told['free']} free"
        return RefusalView(index=refusal.index, detail=refusal.detail or said, **told)
    return RefusalView(index=refusal.index, detail=refusal.detail, field=refusal.field or None)


def short_view(short: Short) -> dict[str, Any]:
    return {
        "resource": short.resource,
        "asked": shown_units(short.resource, short.asked),
        "free": shown_units(short.resource, short.free),
    }


def gang_view(state: GangState) -> GangView:
    return GangView(
        namespace=state.key.namespace,
        name=state.key.name,
        phase=state.phase.value,
        quorum=state.quorum,
        members=[
            MemberView(
                namespace=member.pod.namespace,
                name=member.pod.name,
                uid=member.pod.uid,
                phase=member.phase.value,
                node=member.node,
            )
            for member in state.members
        ],
        deadline=timestamp(state.deadline),
        reason=state.reason,
    )


def event_view(told: DecisionEvent) -> EventView:
    return EventView(**{**asdict(told), "time": timestamp(told.time)})


def timestamp(seconds: float | None) -> datetime | None:
    """Returns the time of `seconds` since the epoch, limited to the range that JSON can show."""
    return None if seconds is None else datetime.fromtimestamp(max(FIRST_MOMENT, min(seconds, LAST_MOMENT)), UTC)


def safety_switches_view(state: SafetySwitchesState) -> SafetySwitchesView:
    return SafetySwitchesView(
        everywhere=_switches(state.everywhere),
        namespaces={name: _switches(state.everywhere.both(there)) for name, there in state.namespaces.items()},
        unclear_labels=dict(state.unclear),
        labels_are_read=state.labels_are_read,
    )


def brake_view(state: SafetySwitchesState) -> BrakeView:
    view = safety_switches_view(state)
    return BrakeView(
        everywhere=_by_old_names(view.everywhere),
        namespaces={name: _by_old_names(there) for name, there in view.namespaces.items()},
        unclear_labels=view.unclear_labels,
        labels_are_read=view.labels_are_read,
    )


def _by_old_names(view: SwitchesView) -> dict[str, bool]:
    old_names = {each.to: old for old, each in RENAMED.items()}
    return {old_names.get(name, name): value for name, value in view.model_dump().items()}


def _switches(switches: Switches) -> SwitchesView:
    return SwitchesView(
        observe_only=switches.observe_only,
        evict_partial_gangs=switches.evict_partial_gangs,
        gang_preemption=switches.gang_preemption,
        backfill_reservation=switches.backfill_reservation,
    )
