"""Which nodes a `NodeChoice` means now. Decides only: reads the ledger and the table of nodes, changes nothing.

What is available is the ledger's: capacity less every holding, reservations included. The same state gives the same
nodes, in whatever order the nodes became known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from extender.app.ports import NodeChoice
from extender.app.wording import amount, number
from extender.core.cluster import Node
from extender.core.ledger import Ledger
from extender.core.names import CPU, NodeName
from extender.core.units import Vector

Nodes = Mapping[NodeName, Node]


def choose(choice: NodeChoice, nodes: Nodes, ledger: Ledger, having: Collection[NodeName] = ()) -> list[NodeName]:
    """The nodes to have the resource: all that match, or the best `limit` of them.

    Best are those that have it already (`having`), so that a repeated call chooses the same; then those that could
    meet what was asked for most often (where nothing was asked: with most CPU available); then by name.
    """
    found = [name for name in _named(choice, nodes) if _matches(choice, nodes[name], ledger)]
    return _best(choice, found, ledger, having)


def choose_to_remove(choice: NodeChoice, nodes: Nodes, ledger: Ledger, having: Collection[NodeName]) -> list[NodeName]:
    """The nodes that should have the resource no longer: as `choose`, among those that have it.

    A node that is away is meant by its name, and by a choice of every node.
    """
    if choice.node is not None:
        return [choice.node] if choice.node in having else []
    every = not choice.labels and not choice.available
    found = [name for name in having if every or (name in nodes and _matches(choice, nodes[name], ledger))]
    return _best(choice, found, ledger, ())


def why_none(choice: NodeChoice, nodes: Nodes, ledger: Ledger) -> str:
    """Why `choose` found no node, with the numbers that come closest."""
    if choice.node is not None:
        return f"there is no node {choice.node}"
    if not nodes:
        return "the cluster has no nodes"
    if choice.labels:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(choice.labels.items()))
        return f"none of the {len(nodes)} nodes has the labels {wanted}"
    for resource, asked in (choice.available or {}).items():
        best = max(nodes, key=lambda name: (ledger.free(name, resource), name))
        if (most := ledger.free(best, resource)) < asked:
            least = amount(resource, asked)
            return f"no node has {least} available; the most is {number(resource, most)}, on {best}"
    return "no node has all of what node_spec asks for available at once, though some have each"


def _named(choice: NodeChoice, nodes: Nodes) -> Collection[NodeName]:
    if choice.node is None:
        return nodes.keys()
    return [choice.node] if choice.node in nodes else []


def _matches(choice: NodeChoice, node: Node, ledger: Ledger) -> bool:
    if choice.labels is not None:
        return all(node.labels.get(key) == value for key, value in choice.labels.items())
    return choice.available is None or ledger.short(node.name, choice.available) is None


def _best(choice: NodeChoice, found: list[NodeName], ledger: Ledger, having: Collection[NodeName]) -> list[NodeName]:
    found.sort()
    if choice.limit is None or choice.limit >= len(found):
        return found
    asked = {resource: units for resource, units in (choice.available or {}).items() if units > 0}
    found.sort(key=lambda name: (name not in having, -_times(name, asked or {CPU: 1}, ledger)))
    return sorted(found[: choice.limit])


def _times(node: NodeName, asked: Vector, ledger: Ledger) -> float:
    """How many times the node could meet what was asked for."""
    return min(ledger.free(node, resource) / units for resource, units in asked.items())
