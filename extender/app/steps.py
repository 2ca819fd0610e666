"""Steps: what a set_resource means for the object that is there, or not. Decides, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.app.catalog import Catalog, Entry, identity
from extender.app.keeper import Keeper
from extender.app.management import BeingDeleted, Invalid, SetResource, VersionConflict
from extender.app.node_choice import choose_again, choose_to_remove, why_none
from extender.app.ports import LAST_MOMENT, EphemeralResource, MadeChoice, NodeChoice, PodOwner
from extender.core.names import EphemeralName, NodeName


@dataclass(frozen=True, slots=True)
class Nothing:
    """It is as asked for already."""

    stays: EphemeralResource | None


@dataclass(frozen=True, slots=True)
class Create:
    resource: EphemeralResource


@dataclass(frozen=True, slots=True)
class Change:
    """Units of these nodes, None removing a node's; owner and expiry as given; if it is at `version`.

    `made`: the choice that was made for it, None if it says nothing about that.

    There is always one where the object is known: a write that seemed to fail may yet arrive, later than those that
    followed it, and must then be refused.
    """

    nodes: Mapping[NodeName, int | None]
    owner: PodOwner | None
    expires_at: float | None
    version: str | None
    made: MadeChoice | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    resource: EphemeralResource
    version: str | None


Step = Nothing | Create | Change | Delete


def outcome(step: Step, before: EphemeralResource | None) -> EphemeralResource | None:
    """What the step makes of the object, as far as its spec goes; None: it is not there."""
    match step:
        case Nothing(stays):
            return stays
        case Create(resource):
            return resource
        case Change() if before is not None:
            nodes = {node: units for node, units in {**before.nodes, **step.nodes}.items() if units is not None}
            return replace(before, nodes=nodes, owner=step.owner, expires_at=step.expires_at)
    return None


def plan(
    request: SetResource, entry: Entry | None, catalog: Catalog, keeper: Keeper
) -> tuple[Step, Sequence[NodeName]]:
    """What is to be written, and the nodes it is about. Raises Invalid, BeingDeleted, VersionConflict."""
    if entry is not None:
        _require_same_kind(request.name, entry)
    choice = request.choice or NodeChoice(node=_own_node(request, keeper))
    version = request.if_version
    if entry is not None and version == entry.version:
        # Our own writes of its status have moved the object on; what the caller has seen of it still holds.
        version = entry.resource.resource_version
    if request.capacity == 0:
        return _removal(request, entry, choice, version, keeper)
    _require_key(request.name, catalog, keeper)
    nodes, losing, made = _chosen(request, entry, choice, keeper)
    if not nodes:
        raise Invalid("node_spec", choice.node, why_none(choice, keeper.nodes, keeper.ledger))
    full = catalog.first_full(request.name.key(keeper.ledger.domain), nodes)
    if full is not None:
        raise Invalid("node_spec", full, catalog.too_many(full))
    expires_at = _expiry(request, keeper)
    there = dict.fromkeys(nodes, request.capacity)
    if entry is None and version is None:
        resource = EphemeralResource(request.name, there, owner=request.owner, expires_at=expires_at, made=made)
        return Create(resource), nodes
    units: dict[NodeName, int | None] = {**there, **({} if entry is None else without(losing, entry.resource))}
    return Change(units, request.owner, expires_at, version or _version(entry), made), [*nodes, *losing]


def _chosen(
    request: SetResource, entry: Entry | None, choice: NodeChoice, keeper: Keeper
) -> tuple[Sequence[NodeName], Sequence[NodeName], MadeChoice | None]:
    """The nodes to have it, those to lose it, and the choice that this is. A name speaks for its node alone."""
    present = {} if entry is None else entry.resource.desired()
    if choice.node is not None:
        # One that is away is no hindrance: what it should have when it returns may be changed.
        is_known = choice.node in present or choice.node in keeper.nodes
        return ([choice.node] if is_known else []), (), None
    wanted = MadeChoice(request.capacity, choice)
    before = None if entry is None else entry.resource.made
    nodes, losing = choose_again(wanted, before, present, keeper.nodes, keeper.ledger, keeper.has_left)
    return nodes, losing, replace(wanted, nodes=tuple(nodes))


def departed(entry: Entry, keeper: Keeper) -> Step:
    """Others take the place of nodes that have left for good, where a rule of the management API chose them."""
    resource = entry.resource
    made = resource.made
    if made is None or resource.deleting or keeper.nodes.keys() >= set(made.nodes):
        return Nothing(resource)
    present = resource.desired()
    nodes, losing = choose_again(made, made, present, keeper.nodes, keeper.ledger, keeper.has_left)
    if not losing:
        return Nothing(resource)
    units: dict[NodeName, int | None] = {node: made.capacity for node in nodes if node not in made.nodes}
    units |= without(losing, resource)
    return Change(
        units, resource.owner, resource.expires_at, resource.resource_version, replace(made, nodes=tuple(nodes))
    )


def without(nodes: Iterable[NodeName], resource: EphemeralResource) -> dict[NodeName, int | None]:
    """These nodes have none: what the object's own nodeSpec chose is overruled by a 0, others are not listed."""
    chosen = resource.chosen or {}
    return {node: 0 if node in chosen else None for node in nodes}


def _removal(
    request: SetResource, entry: Entry | None, choice: NodeChoice, version: str | None, keeper: Keeper
) -> tuple[Step, Sequence[NodeName]]:
    if entry is None:
        if version is not None:
            raise VersionConflict("If-Match", version, f"{request.name} is not there, not at {version}")
        return Nothing(None), ()
    resource = entry.resource
    present = resource.desired()
    nodes = choose_to_remove(choice, keeper.nodes, keeper.ledger, present, resource.made)
    an_empty_list = not present and resource.choice is None and not resource.problem
    if not nodes and not an_empty_list:
        return Nothing(resource), ()
    if present.keys() <= set(nodes):
        # Only as it is known: somebody may be adding a node to it.
        return Delete(resource, version or resource.resource_version), nodes
    units = without(nodes, resource)
    expires_at = resource.expires_at if request.ttl_seconds is None else _expiry(request, keeper)
    return Change(units, request.owner or resource.owner, expires_at, version or _version(entry)), nodes


def _expiry(request: SetResource, keeper: Keeper) -> float | None:
    """When it ends. Raises Invalid where no object could say so."""
    if request.ttl_seconds is None:
        return None
    expires_at = keeper.clock.now() + request.ttl_seconds
    if not 0 <= expires_at <= LAST_MOMENT:
        raise Invalid("ttl_seconds", request.ttl_seconds, "leads beyond the year 9999")
    return expires_at


def _version(entry: Entry | None) -> str | None:
    return None if entry is None else entry.resource.resource_version


def _own_node(request: SetResource, keeper: Keeper) -> NodeName:
    """The caller's own node. Raises Invalid."""
    if request.caller_node is not None:
        return request.caller_node
    if request.owner is None:
        raise Invalid("node_spec", None, "names no node, and neither a caller's node nor an owner tells which is meant")
    pod = keeper.pods.get(request.owner.uid)
    if pod is None:
        raise Invalid("node_spec", None, f"the owner's node is unknown: there is no running pod {request.owner.name}")
    if pod.node is None:
        raise Invalid("node_spec", None, f"the owner, pod {pod}, is not bound to a node yet")
    return pod.node


def _require_same_kind(name: EphemeralName, entry: Entry) -> None:
    there = entry.resource
    if there.name.shared != name.shared:
        is_what = "shared" if there.name.shared else "not shared"
        raise Invalid("shared", name.shared, f"{name} exists and is {is_what}; delete it first, or use another name")
    if there.deleting:
        raise BeingDeleted("name", str(name), f"{held(there)}; set it once it is gone")


def held(resource: EphemeralResource) -> str:
    """That the object is being deleted, and whose word that waits for."""
    count = len(resource.finalizers)
    named = f"its finalizer{'s' if count > 1 else ''} {', '.join(resource.finalizers)}" if count else "the API server"
    return f"{resource.name} is being deleted, and {named} {'hold it' if count > 1 else 'holds it'}"


def for_good(resource: EphemeralResource) -> Invalid:
    """That it cannot be deleted together with anything else."""
    name, by = resource.name, ", ".join(resource.finalizers)
    said = f"{name} has finalizers ({by}), so that its deletion could not be taken back: delete it by itself"
    return Invalid("name", str(name), said)


def _require_key(name: EphemeralName, catalog: Catalog, keeper: Keeper) -> None:
    key = name.key(keeper.ledger.domain)
    holder = catalog.holder_of(key)
    if holder is not None and identity(holder) != identity(name):
        raise Invalid("name", str(name), f"{key} belongs to namespace {holder.namespace}; use another name")
