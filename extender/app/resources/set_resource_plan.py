"""Set resource plan: decides what a set_resource call does to the object. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from extender.app.cache.cache import Cache
from extender.app.contracts.api import SetResource
from extender.app.contracts.errors import BeingDeleted, Invalid, OutsideDomain, QuotaExceeded, VersionConflict
from extender.app.contracts.ports import (
    LAST_MOMENT,
    NO_CHOICE,
    EphemeralResource,
    MadeChoice,
    NodeChoice,
    ResourceChange,
)
from extender.app.objects.known import Entry
from extender.app.objects.steps import Change, Create, Delete, Nothing, Written
from extender.app.objects.writing import version_conflict
from extender.app.resources.capacity import Capacities
from extender.app.resources.node_selection import choose_again, choose_to_remove, why_none
from extender.app.resources.quota import Amount, amount_of
from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import Counted
from extender.kube.names import NodeName

Known = Entry[EphemeralResource]


Step = Nothing[EphemeralResource] | Create[EphemeralResource] | Change[ResourceChange] | Delete[EphemeralResource]
Done = Written[EphemeralResource, ResourceChange]


def nodes_of(step: Step) -> Collection[NodeName]:
    match step:
        case Create(resource):
            return resource.nodes.keys()
        case Change(change):
            return change.nodes.keys()
        case Delete(resource):
            return resource.desired().keys()
    return ()


def outcome(step: Step, before: EphemeralResource | None) -> EphemeralResource | None:
    """Returns the object after the step, as far as its spec goes; None: it does not exist."""
    match step:
        case Nothing(stays):
            return stays
        case Create(resource):
            return resource
        case Change(change) if before is not None:
            nodes = {node: units for node, units in {**before.nodes, **change.nodes}.items() if units is not None}
            exports = before.exports if change.exports is None else change.exports
            return replace(before, nodes=nodes, owner=change.owner, expires_at=change.expires_at, exports=exports)
    return None


def restoring(now: EphemeralResource, was: EphemeralResource, nodes: Iterable[NodeName]) -> ResourceChange:
    """Returns the change that makes `now` into `was`, as far as these nodes go."""
    made = None if was.made == now.made else was.made or NO_CHOICE
    exports = None if was.exports == now.exports else was.exports
    return ResourceChange({node: was.nodes.get(node) for node in nodes}, was.owner, was.expires_at, made, exports)


def plan(request: SetResource, entry: Known | None, capacities: Capacities, cache: Cache) -> Step:
    """Raises Invalid, BeingDeleted, VersionConflict, OutsideDomain, QuotaExceeded."""
    if entry is not None:
        _require_same_kind(request.name, entry)
        if request.if_absent:
            said = f"{request.name} already exists, at version {entry.version}"
            raise VersionConflict("If-None-Match", "*", said)
    choice = request.choice or NodeChoice(node=_own_node(request, cache))
    version = request.if_version if entry is None else entry.meant_by(request.if_version)
    if request.capacity == 0:
        return _removal(request, entry, choice, cache)
    _require_key(request.name, capacities)
    nodes, losing, made = _chosen(request, entry, choice, cache)
    if not nodes:
        domain = cache.isolation.of(request.name.namespace).has_node
        raise Invalid("node_spec", choice.node, why_none(choice, cache.nodes, cache.ledger, domain))
    there = dict.fromkeys(nodes, request.capacity)
    require_domain(request.name, there, capacities)
    full = capacities.first_full(capacities.key_of(request.name), nodes)
    if full is not None:
        raise Invalid("node_spec", full, capacities.too_many(full))
    expires_at = _expiry(request, cache)
    if entry is None and version is None:
        require_quota(request.name, there, capacities)
        return Create(
            EphemeralResource(
                request.name,
                there,
                owner=request.owner,
                expires_at=expires_at,
                made=made,
                exports=request.exports or (),
            )
        )
    units: dict[NodeName, int | None] = {**there, **({} if entry is None else without(losing, entry.item))}
    step = Change(ResourceChange(units, request.owner, expires_at, made, request.exports), version)
    after = None if entry is None else outcome(step, entry.item)
    require_quota(request.name, there if after is None else after.desired(), capacities)
    return step


def require_domain(name: EphemeralName, units: Mapping[NodeName, int], capacities: Capacities) -> None:
    """Raises OutsideDomain if the name, or a node that would get more, is outside of the domain."""
    now = capacities.in_force(name)
    outside = capacities.outside(name, [node for node, number in units.items() if number > now.get(node, 0)])
    if outside and any(number > now.get(node, 0) for node, number in units.items()):
        field = "node_spec" if capacities.cache.isolation.of(name.namespace).has_name(name.name) else "name"
        raise OutsideDomain(field, str(name), outside)


def require_quota(name: EphemeralName, units: Mapping[NodeName, int], capacities: Capacities) -> None:
    """Raises QuotaExceeded if the quota does not allow these units."""
    over = capacities.over(name, units)
    if over is not None:
        raise QuotaExceeded("capacity" if over.of is Counted.UNITS else "name", over)


def _chosen(
    request: SetResource, entry: Known | None, choice: NodeChoice, cache: Cache
) -> tuple[Sequence[NodeName], Sequence[NodeName], MadeChoice | None]:
    """Returns the nodes that get it, the nodes that lose it, and the choice (None for a name)."""
    present = {} if entry is None else entry.item.desired()
    if choice.node is not None:
        # A node that is away is allowed: what it should have when it returns may be changed.
        is_known = choice.node in present or choice.node in cache.nodes
        return ([choice.node] if is_known else []), (), None
    wanted = MadeChoice(request.capacity, choice)
    before = None if entry is None else entry.item.made
    domain = cache.isolation.of(request.name.namespace).has_node
    nodes, losing = choose_again(wanted, before, present, cache.nodes, cache.ledger, cache.has_left, domain)
    return nodes, losing, replace(wanted, nodes=tuple(nodes))


def departed(entry: Known, cache: Cache) -> Step:
    """Replaces nodes that have left for good, if a rule of the management API chose them."""
    resource = entry.item
    made = resource.made
    if made is None or resource.deleting or cache.nodes.keys() >= set(made.nodes):
        return Nothing(resource)
    present = resource.desired()
    domain = cache.isolation.of(resource.name.namespace).has_node
    nodes, losing = choose_again(made, made, present, cache.nodes, cache.ledger, cache.has_left, domain)
    if not losing:
        return Nothing(resource)
    units: dict[NodeName, int | None] = {node: made.capacity for node in nodes if node not in made.nodes}
    units |= without(losing, resource)
    change = ResourceChange(units, resource.owner, resource.expires_at, replace(made, nodes=tuple(nodes)))
    return Change(change, resource.resource_version)


def without(nodes: Iterable[NodeName], resource: EphemeralResource) -> dict[NodeName, int | None]:
    """Removes these nodes: a 0 overrules what the object's nodeSpec chose, others are unlisted."""
    chosen = resource.chosen or {}
    return {node: 0 if node in chosen else None for node in nodes}


def _removal(request: SetResource, entry: Known | None, choice: NodeChoice, cache: Cache) -> Step:
    if entry is None:
        if request.if_version is not None:
            raise version_conflict(request.name, request.if_version, None)
        return Nothing(None)
    resource, version = entry.item, entry.meant_by(request.if_version)
    present = resource.desired()
    nodes = choose_to_remove(choice, cache.nodes, cache.ledger, present, resource.made)
    an_empty_list = not present and resource.choice is None and not resource.problem
    if not nodes and not an_empty_list:
        return Nothing(resource)
    if present.keys() <= set(nodes):
        # Only at the known version: another writer may be adding a node to it.
        return Delete(resource, version)
    units = without(nodes, resource)
    expires_at = resource.expires_at if request.ttl_seconds is None else _expiry(request, cache)
    return Change(ResourceChange(units, request.owner or resource.owner, expires_at, None, request.exports), version)


def _expiry(request: SetResource, cache: Cache) -> float | None:
    """Returns the time of its end. Raises Invalid if an object cannot store it."""
    if request.ttl_seconds is None:
        return None
    expires_at = cache.clock.now() + request.ttl_seconds
    if not 0 <= expires_at <= LAST_MOMENT:
        raise Invalid("ttl_seconds", request.ttl_seconds, "ends after the year 9999")
    return expires_at


def _own_node(request: SetResource, cache: Cache) -> NodeName:
    """Returns the caller's own node. Raises Invalid."""
    if request.caller_node is not None:
        return request.caller_node
    if request.owner is None:
        raise Invalid("node_spec", None, "names no node, and the request has neither a caller's node nor an owner")
    pod = cache.pods.get(request.owner.uid)
    if pod is None or (pod.namespace, pod.name) != (request.name.namespace, request.owner.name):
        raise Invalid("node_spec", None, f"the owner's node is unknown: there is no running pod {request.owner.name}")
    if pod.node is None:
        raise Invalid("node_spec", None, f"the owner, pod {pod}, is not bound to a node yet")
    return pod.node


def _require_same_kind(name: EphemeralName, entry: Known) -> None:
    there = entry.item
    if there.name.shared != name.shared:
        is_what = "shared" if there.name.shared else "not shared"
        raise Invalid("shared", name.shared, f"{name} exists and is {is_what}; delete it first, or use another name")
    if there.deleting:
        raise BeingDeleted("name", str(name), f"{held(there)}; set it once it is gone")


def held(resource: EphemeralResource) -> str:
    """States that the object is being deleted, and what holds it."""
    count = len(resource.finalizers)
    named = f"its finalizer{'s' if count > 1 else ''} {', '.join(resource.finalizers)}" if count else "the API server"
    return f"{resource.name} is being deleted, and {named} {'hold it' if count > 1 else 'holds it'}"


def for_good(resource: EphemeralResource) -> Invalid:
    """Returns the error that it cannot be deleted together with anything else."""
    name, by = resource.name, ", ".join(resource.finalizers)
    said = f"{name} has finalizers ({by}), so its deletion could not be rolled back: delete it in a separate call"
    return Invalid("name", str(name), said)


def _require_key(name: EphemeralName, capacities: Capacities) -> None:
    holder = capacities.rival_of(name)
    if holder is not None:
        said = f"{capacities.key_of(name)} belongs to namespace {holder.namespace}; use another name"
        raise Invalid("name", str(name), said)


def taken(resource: EphemeralResource) -> str:
    """States that another owner has set what a policy would set."""
    whose = f"policy {resource.policy}" if resource.policy else "no policy"
    return f"{resource.name} already exists and belongs to {whose}: delete it, or give the policy another name"


def spread(
    name: EphemeralName, units: Mapping[NodeName, int], entry: Known | None, capacities: Capacities, policy: str = ""
) -> tuple[Step, Mapping[NodeName, str]]:
    """Returns the step that gives each node its units (0: none), and the nodes that cannot have it.

    Other nodes stay as they are. `policy`: the required owner of the object, if any. Raises Invalid, BeingDeleted."""
    units, why_not = _allowed(name, units, {} if entry is None else entry.item.desired(), capacities)
    present: Mapping[NodeName, int] = {}
    if entry is not None:
        if policy and entry.item.policy != policy:
            raise Invalid("name", str(name), taken(entry.item))
        _require_same_kind(name, entry)
        present = entry.item.desired()
    _require_key(name, capacities)
    key = capacities.key_of(name)
    full = {node for node, n in units.items() if n and node not in present and capacities.first_full(key, [node])}
    differ = {node: n for node, n in units.items() if node not in full and n != present.get(node, 0)}
    why = {**why_not, **{node: capacities.too_many(node) for node in full}}
    after = {node: n for node, n in {**present, **differ}.items() if n}
    if entry is None:
        return (Create(EphemeralResource(name, after, policy=policy)) if after else Nothing(None)), why
    resource, version = entry.item, entry.meant_by(None)
    if not after and resource.choice is None:
        return Delete(resource, version), why
    if not differ:
        return Nothing(resource), why
    change: dict[NodeName, int | None] = {**{node: n for node, n in differ.items() if n}}
    change |= without([node for node, n in differ.items() if not n], resource)
    return Change(ResourceChange(change, resource.owner, resource.expires_at), version), why


def _allowed(
    name: EphemeralName, units: Mapping[NodeName, int], present: Mapping[NodeName, int], capacities: Capacities
) -> tuple[dict[NodeName, int], dict[NodeName, str]]:
    """Returns the units that domain and quota allow, node by node, and why not the rest."""
    allowed: dict[NodeName, int] = {}
    why: dict[NodeName, str] = {}
    now = capacities.in_force(name)
    has, total = amount_of(now), sum(present.values())
    # First the nodes that give units back: they make room for others.
    for node, number in sorted(units.items(), key=lambda each: each[1] > now.get(each[0], 0)):
        after = total + number - present.get(node, 0)
        if number > now.get(node, 0):
            if said := capacities.outside(name, [node]):
                why[node] = said
                continue
            over = capacities.quota.over(name, Amount(int(after > 0), after).beyond(has))
            if over is not None:
                why[node] = str(over)
                continue
        allowed[node], total = number, after
    return allowed, why
