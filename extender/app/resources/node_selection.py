"""Node selection: finds the nodes that a `NodeChoice` means now. It changes nothing.

A choice by rule is kept: nodes are chosen again only if the request changes, or a chosen node has left for good. A node
that has the resource comes first, and needs only enough capacity. Less may be available there, because the pods that it
was chosen for use it.

What is available is the ledger's capacity less every holding, reservations included. The same state gives the same
nodes, in whatever order the nodes became known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from extender.app.contracts.messages import amount, number
from extender.app.contracts.ports import MadeChoice, NodeChoice
from extender.core.cluster import Node
from extender.core.ledger.ledger import Ledger
from extender.kube.names import CPU, NodeName, ResourceKey
from extender.kube.quantities import Vector

Nodes = Mapping[NodeName, Node]
Domain = Callable[[Mapping[str, str]], bool]
"""Whether a node with these labels is in the scheduling domain; no other node is chosen."""


def everywhere(labels: Mapping[str, str]) -> bool:
    """The domain that has every node."""
    return True


def choose(
    choice: NodeChoice,
    nodes: Nodes,
    ledger: Ledger,
    having: Collection[NodeName] = (),
    *,
    first: Collection[NodeName] = (),
    away: Sequence[NodeName] = (),
    domain: Domain = everywhere,
) -> list[NodeName]:
    """Returns the nodes that get the resource: all that match, or the best `limit` of them.

    Best are the nodes of `first`, then other nodes that have it already (`having`). Then come the nodes that can meet
    the request most often (if nothing was asked: with most CPU available), then by name. `away`: nodes that are not in
    the table but count as matching.
    """
    inside = (name for name in _named(choice, nodes) if domain(nodes[name].labels))
    found = [name for name in inside if _matches(choice, nodes[name], ledger, name in having)]
    return _best(choice, [*found, *away], ledger, having, first)


def choose_again(
    wanted: MadeChoice,
    before: MadeChoice | None,
    having: Collection[NodeName],
    nodes: Nodes,
    ledger: Ledger,
    has_left: Callable[[NodeName], bool],
    domain: Domain = everywhere,
) -> tuple[list[NodeName], list[NodeName]]:
    """Returns the nodes for a choice by rule, and the nodes that lose the resource.

    Both are empty if no node matches. `before`: the choice that was made last, None if that is not known. If the
    request is the same, the nodes are the same, also outside of the domain, unless they have left for good. With a
    limit, such a node stays as long as no other can replace it.
    """
    mine = [name for name in before.nodes if name in having] if before is not None else list(having)
    left = [name for name in mine if has_left(name)]
    is_same = before is not None and before.capacity == wanted.capacity and is_same_choice(before.choice, wanted.choice)
    if before is not None and is_same and not left and len(mine) == len(before.nodes):
        return list(mine), []
    is_known = before is not None and _rule(before.choice) == _rule(wanted.choice)
    can_be_away = is_known or _rule(wanted.choice) == (None, None)
    away = [name for name in mine if name not in nodes and name not in left and can_be_away]
    found = choose(wanted.choice, nodes, ledger, having, first=set(mine), away=away, domain=domain)
    if not found:
        return [], []
    if is_same and wanted.choice.limit is not None:
        found = sorted([*found, *left[: max(0, len(mine) - len(found))]])
    # Nodes that were set beside the choice stay as long as the choice is the same.
    staying = set(found)
    return found, [name for name in (left if is_same else having) if name not in staying]


def is_same_choice(one: NodeChoice, other: NodeChoice) -> bool:
    """Returns whether the two ask for the same, in whatever form."""
    return (one.node, one.limit, _rule(one)) == (other.node, other.limit, _rule(other))


def _rule(choice: NodeChoice) -> tuple[Mapping[ResourceKey, int] | None, Mapping[str, str] | None]:
    return (choice.available or None, choice.labels or None)


def choose_to_remove(
    choice: NodeChoice, nodes: Nodes, ledger: Ledger, having: Collection[NodeName], made: MadeChoice | None = None
) -> list[NodeName]:
    """Returns the nodes that lose the resource: the nodes that the same choice took (`made`).

    Otherwise as `choose`, among nodes that have it. A node that is away matches its name, and a choice of every node.
    """
    if choice.node is not None:
        return [choice.node] if choice.node in having else []
    if made is not None and is_same_choice(made.choice, choice):
        return sorted(name for name in made.nodes if name in having)
    every = not choice.labels and not choice.available
    found = [name for name in having if every or (name in nodes and _matches(choice, nodes[name], ledger, True))]
    return _best(choice, found, ledger, (), ())


def why_none(choice: NodeChoice, nodes: Nodes, ledger: Ledger, domain: Domain = everywhere) -> str:
    """Says why `choose` found no node, with the numbers that come closest."""
    if choice.node is not None:
        return f"there is no node {choice.node}"
    if not nodes:
        return "the cluster has no nodes"
    inside = {name: node for name, node in nodes.items() if domain(node.labels)}
    if len(inside) < len(nodes):
        if not inside:
            return f"none of the {len(nodes)} nodes is in the namespace's scheduling domain"
        return f"{why_none(choice, inside, ledger)}, among the {len(inside)} nodes of the namespace's scheduling domain"
    if choice.labels:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(choice.labels.items()))
        return f"none of the {len(nodes)} nodes has the labels {wanted}"
    for resource, asked in (choice.available or {}).items():
        best = max(nodes, key=lambda name: (ledger.rows.free(name, resource), name))
        if (most := ledger.rows.free(best, resource)) < asked:
            least = amount(resource, asked)
            return f"no node has {least} available; the most is {number(resource, most)}, on {best}"
    return "no node has all that node_spec asks for available, though some nodes have each part"


def _named(choice: NodeChoice, nodes: Nodes) -> Collection[NodeName]:
    if choice.node is None:
        return nodes.keys()
    return [choice.node] if choice.node in nodes else []


def _matches(choice: NodeChoice, node: Node, ledger: Ledger, has_it: bool) -> bool:
    if choice.labels is not None:
        return all(node.labels.get(key) == value for key, value in choice.labels.items())
    if choice.available is None:
        return True
    if not has_it:
        return ledger.rows.short(node.name, choice.available) is None
    row = ledger.rows.get(node.name)
    return row is not None and all(row.capacity.get(key, 0) >= units for key, units in choice.available.items())


def _best(
    choice: NodeChoice, found: list[NodeName], ledger: Ledger, having: Collection[NodeName], first: Collection[NodeName]
) -> list[NodeName]:
    found.sort()
    if choice.limit is None or choice.limit >= len(found):
        return found
    asked = {resource: units for resource, units in (choice.available or {}).items() if units > 0}
    found.sort(key=lambda name: (name not in first, name not in having, -_times(name, asked or {CPU: 1}, ledger)))
    return sorted(found[: choice.limit])


def _times(node: NodeName, asked: Vector, ledger: Ledger) -> float:
    """Returns how many times the node could meet the request."""
    return min(ledger.rows.free(node, resource) / units for resource, units in asked.items())
