"""Steps: what a set_resource means for the object that is there, or not. Decides, writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.app.catalog import Catalog, Entry, identity
from extender.app.keeper import Keeper
from extender.app.management import Invalid, SetResource, VersionConflict
from extender.app.node_choice import choose, choose_to_remove, why_none
from extender.app.ports import LAST_MOMENT, EphemeralResource, NodeChoice, PodOwner
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

    There is always one where the object is known: a write that seemed to fail may yet arrive, later than those that
    followed it, and must then be refused.
    """

    nodes: Mapping[NodeName, int | None]
    owner: PodOwner | None
    expires_at: float | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Delete:
    resource: EphemeralResource
    version: str | None


Step = Nothing | Create | Change | Delete


def plan(
    request: SetResource, entry: Entry | None, catalog: Catalog, keeper: Keeper
) -> tuple[Step, Sequence[NodeName]]:
    """What is to be written, and the nodes it is about. Raises Invalid, VersionConflict."""
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
    present = {} if entry is None else entry.resource.desired()
    nodes = choose(choice, keeper.nodes, keeper.ledger, present)
    if not nodes and choice.node in present:
        # The node is away. What it should have when it returns may be changed.
        nodes = [choice.node]
    if not nodes:
        raise Invalid("node_spec", choice.node, why_none(choice, keeper.nodes, keeper.ledger))
    full = catalog.first_full(request.name.key(keeper.ledger.domain), nodes)
    if full is not None:
        raise Invalid("node_spec", full, catalog.too_many(full))
    expires_at = _expiry(request, keeper)
    units = dict.fromkeys(nodes, request.capacity)
    if entry is None and version is None:
        resource = EphemeralResource(request.name, units, owner=request.owner, expires_at=expires_at)
        return Create(resource), nodes
    return Change(units, request.owner, expires_at, version or _version(entry)), nodes


def _removal(
    request: SetResource, entry: Entry | None, choice: NodeChoice, version: str | None, keeper: Keeper
) -> tuple[Step, Sequence[NodeName]]:
    if entry is None:
        if version is not None:
            raise VersionConflict("If-Match", version, f"{request.name} is not there, not at {version}")
        return Nothing(None), ()
    resource = entry.resource
    present = resource.desired()
    nodes = choose_to_remove(choice, keeper.nodes, keeper.ledger, present)
    an_empty_list = not present and resource.choice is None and not resource.problem
    if not nodes and not an_empty_list:
        return Nothing(resource), ()
    if present.keys() <= set(nodes):
        # Only as it is known: somebody may be adding a node to it.
        return Delete(resource, version or resource.resource_version), nodes
    # A node that the object's own nodeSpec chose is overruled by a 0; others are simply not listed any more.
    chosen = resource.chosen or {}
    units = {node: 0 if node in chosen else None for node in nodes}
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
        raise Invalid("name", str(name), f"{name} is being deleted, and something holds that up (its finalizers)")


def _require_key(name: EphemeralName, catalog: Catalog, keeper: Keeper) -> None:
    key = name.key(keeper.ledger.domain)
    holder = catalog.holder_of(key)
    if holder is not None and identity(holder) != identity(name):
        raise Invalid("name", str(name), f"{key} belongs to namespace {holder.namespace}; use another name")
