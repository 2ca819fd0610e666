"""Agreement: whether node status, objects, ledger and last requests agree when all is quiet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubesim.kinds import NODE, Json, Kind
from lab.simulation import Simulation
from loadtests.harm.embedded import Stage
from loadtests.life.seeing import free_cpu, name
from loadtests.month.applications import USED_CPU, Application, Wish

_DOMAIN = "escher.dev/"
Units = dict[str, int]


def disagreements(simulation: Simulation, applications: Sequence[Application]) -> list[str]:
    """Descriptions of all disagreements."""
    store = simulation.cluster.api.store
    objects = {key_of(each): each for each in store.list(ephemeral_resources(simulation))}
    nodes = {name(each): each for each in store.list(NODE)}
    return [
        *of_nodes(simulation.application.scheduler, nodes, {key: units_of(each) for key, each in objects.items()}),
        *_of_applications(applications, objects, nodes, free_cpu(store)),
    ]


def ephemeral_resources(stage: Stage) -> Kind:
    """The kind, as the simulation's API server serves it."""
    served: list[Kind] = stage.cluster.api.served.all()
    return next(each for each in served if each.plural == "ephemeralresources")


def of_nodes(scheduler: Any, nodes: dict[str, Json], desired: dict[str, Units]) -> Iterator[str]:
    for node, found in nodes.items():
        wanted = {key: units[node] for key, units in desired.items() if units.get(node)}
        for where in ("capacity", "allocatable"):
            said = _ours(found["status"].get(where) or {})
            if said != wanted:
                yield f"{node} says {_differing(said, wanted)} in its {where}, where the objects say otherwise"
        row = scheduler.cache.ledger.rows.get(node)
        known = {} if row is None else _ours(row.capacity)
        if known != wanted:
            yield f"the ledger has {_differing(known, wanted)} on {node}, where the objects say otherwise"


def _of_applications(
    applications: Sequence[Application], objects: dict[str, Json], nodes: dict[str, Json], free: Units
) -> Iterator[str]:
    for key in sorted(objects.keys() - {each.key for each in applications}):
        yield f"{key} is there, and nobody asked for it"
    for each in applications:
        found = objects.get(each.key)
        if found is None:
            if each.wish.capacity and not each.without_room:
                yield f"{each.key} is not there, and {each.wish} was asked for"
            continue
        units = units_of(found)
        if each.without_room:
            continue
        if not each.wish.capacity:
            yield f"{each.key} is there, and was deleted"
        elif each.wish.on_own_node:
            # A wish on a node's name is about that node alone; units of an earlier wish on other nodes may stay.
            if each.wish.capacity not in units.values():
                yield f"{each.key} is {units}, and {each.wish} was asked for"
        elif set(units.values()) != {each.wish.capacity}:
            yield f"{each.key} is {units}, and {each.wish} was asked for"
        elif each.told is not None and sorted(units) != each.told:
            yield f"{each.key} is on {sorted(units)}, and {each.told} was answered"
        elif (gone := units.keys() - nodes.keys()) and _others(each.wish, nodes, free, units):
            yield f"{each.key} is on {sorted(gone)}, which left long ago"
        elif each.wish.num_nodes is not None and len(units) > each.wish.num_nodes:
            yield f"{each.key} is on {len(units)} nodes, and {each.wish} was asked for"


def _others(wish: Wish, nodes: dict[str, Json], free: Units, having: Units) -> bool:
    """Whether another node could replace one that left; without a limit, none is needed."""
    others = nodes.keys() - having.keys()
    if wish.num_nodes is None or wish.on_own_node:
        return True
    match wish.node_spec:
        case {"labels": {**labels}}:
            return any(labels.items() <= nodes[each]["metadata"]["labels"].items() for each in others)
        case {"cpu": _}:
            return any(free[each] >= 1000 * USED_CPU for each in others)
    return bool(others)


def key_of(found: Json) -> str:
    return f"{_DOMAIN}{found['metadata']['namespace']}.{name(found)}"


def units_of(found: Json) -> Units:
    said = {**(found.get("status", {}).get("nodes") or {}), **(found["spec"].get("nodes") or {})}
    return {node: units for node, units in said.items() if units}


def _ours(said: Any) -> Units:
    return {key: int(units) for key, units in said.items() if key.startswith(_DOMAIN) and int(units)}


def _differing(said: Units, wanted: Units) -> str:
    return ", ".join(
        f"{key} {said.get(key, 0)} (and not {wanted.get(key, 0)})"
        for key in sorted(said.keys() | wanted.keys())
        if said.get(key, 0) != wanted.get(key, 0)
    )
