"""Policy scenes: what users' policies do, why a pod waits for one, and that explain's remedy helps.

Each policy is watched from outside by its own rule, from the first sighting of its pods to the last.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from extender.core.names import DOMAIN
from extender.core.policies.policy_matching import POLICY
from lab.compare.trials.approaches import member
from lab.compare.trials.outside import NAMESPACE
from lab.compare.trials.pods import Manifest, create
from lab.compare.vocabulary import EXTENDER, THROUGH
from lab.demo.approaches import Shown, ask, members, remove
from lab.demo.jobs import Job
from lab.demo.scenes import LOOK, NotAsPromised, Show
from lab.demo.service import ServiceTrouble

_MOST_NODES = 24
"""The most nodes with a pod of the service each; on larger clusters it uses `_FEW_NODES`."""
_FEW_NODES = 3
_DATA = "data2"
_APP = "app"


def verdict(show: Show) -> list[dict[str, Any]]:
    """Results per policy, for the table and for JSON."""
    told = [scene for scene in show.results if "policy" in scene]
    of = {job.name: job for job in show.outside.jobs}
    return [
        {each: scene[each] for each in ("policy", "type", "what", "placed_after_ms")}
        | {"pods": of[scene["job"]].size, "breaches": of[scene["job"]].breaches}
        for scene in told
        if scene["passed"]
    ]


async def apart(show: Show) -> dict[str, Any]:
    """Creates one pod more than it has nodes; the last is placed as soon as another pod ends."""
    stage, outside, service = show.stage, show.outside, show.service
    nodes = _nodes_for_the_service(show)
    job = outside.expect("web", "", len(nodes) + 1, "W", rule=one_a_node)
    stage.command(f"escher policy apply -f apart.yaml   # type: anti-affinity, selector: {_APP}={job.name}")
    await service.put_policy("apart", {"type": "anti-affinity", "selector": {"match_labels": {_APP: job.name}}})
    try:
        await create(show.connection, [_web(show, job, number, nodes) for number in range(job.size)])
        with stage.waiting("each of them has a node of its own, and one waits"):
            until = f"{len(nodes)} of {job.size} pods bound, and the last one waiting"
            await outside.until(lambda: job.bound == len(nodes) and any(_waits(show, job)), until)
        show.map()
        (waits,) = _waits(show, job)
        stage.good(f"{job.bound} nodes have one each; {waits} waits. What would help?")
        told = await _explained(show, "pods", waits, "end-pod")
        began = time.monotonic()
        ended = [change["pod"] for change in told]
        stage.command(f"kubectl delete pod {' '.join(ended)}")
        with stage.waiting(f"{waits} is placed"):
            await remove(show.connection, outside, ended)
            await outside.until(lambda: outside.node_of(waits) is not None, f"{waits} being placed")
        took = job.bound_at[waits] - began
        stage.good(f"{waits} is on {outside.node_of(waits)}, {took * 1000:.0f} ms later.")
        await stage.look(LOOK)
    finally:
        await service.delete_policy("apart")
    await remove(show.connection, outside, members(job))
    outside.close(job)
    _require_kept(job)
    return _result("apart", "anti-affinity", "pods", job, took)


async def near_data(show: Show, way: Shown) -> dict[str, Any]:
    """A gang for two nodes, which goes to those nodes on which the data is put."""
    stage, outside, service = show.stage, show.outside, show.service
    size = sum(sorted((show.room.places[node] for node in show.room.free), reverse=True)[:2])
    key = f"{DOMAIN}/{NAMESPACE}.{_DATA}"

    def where_the_data_is(nodes: Mapping[str, str]) -> bool:
        return set(nodes.values()) <= outside.ephemeral().get(key, {}).keys()

    job = outside.expect("reading", way.name, size, "D", rule=where_the_data_is)
    stage.command(f"escher policy apply -f near-data.yaml   # type: data-locality, data: [{_DATA}]")
    await service.put_policy("near-data", {"type": "data-locality", "parameters": {"data": [_DATA]}})
    try:
        pods = [member(EXTENDER, ask(job, way.cpu), number) for number in range(size)]
        for pod in pods:
            pod["metadata"]["annotations"][POLICY] = "near-data"
        await create(show.connection, pods)
        with stage.waiting("it is turned away"):
            await outside.until(lambda: all(map(outside.turned_away, members(job))), "all members being turned away")
        stage.say(f"Its {size} members wait. What would help?")
        told = await _explained(show, "gangs", job.name, "set-resource")
        began = time.monotonic()
        for change in told:
            stage.command(f"escher resource set {change['name']} {change['capacity']} --node {change['node']}")
            await service.set_resource(change["name"], change["capacity"], change["node"])
        with stage.waiting("it is placed where its data is"):
            await outside.until(lambda: job.complete, f"gang {job.name} being placed")
        took = max(job.bound_at.values()) - began
        show.map()
        there = " and ".join(sorted(set(job.nodes.values())))
        stage.good(f"All {size} are on {there}, {took * 1000:.0f} ms later.")
        await stage.look(LOOK)
    finally:
        await service.delete_policy("near-data")
    await way.end(job)
    await service.delete_resource(_DATA)
    _require_kept(job)
    return _result("near-data", "data-locality", "members", job, took)


def _result(policy: str, kind: str, what: str, job: Job, took: float) -> dict[str, Any]:
    ms = round(took * 1000, 1)
    return {"policy": policy, "type": kind, "what": what, "job": job.name, "placed_after_ms": ms}


async def _explained(show: Show, kind: str, name: str, op: str) -> Sequence[Mapping[str, Any]]:
    """Shows the explanation; returns the changes of its first remedy that has only this `op`."""
    show.stage.command(f"escher explain {kind.removesuffix('s')} {name}")
    view = await show.service.explain(kind, name)
    show.stage.explanation(view)
    await show.stage.look(LOOK)
    for remedy in view["tried"]:
        if all(change["op"] == op for change in remedy["changes"]):
            changes: Sequence[Mapping[str, Any]] = remedy["changes"]
            return changes
    raise ServiceTrouble(f"explain tells of no {op} that would help {name}: {view['remedies']}")


def _require_kept(job: Job) -> None:
    if job.breaches:
        raise NotAsPromised(f"the pods of {job.name} were seen where its policy does not let them be")


def _waits(show: Show, job: Job) -> list[str]:
    """The job's pods that kube-scheduler could not place."""
    there = show.outside
    return [name for name in members(job) if there.node_of(name) is None and there.turned_away(name)]


def one_a_node(nodes: Mapping[str, str]) -> bool:
    return len(set(nodes.values())) == len(nodes)


def _nodes_for_the_service(show: Show) -> list[str]:
    free = show.room.free
    return free if len(free) == show.room.nodes <= _MOST_NODES else free[:_FEW_NODES]


def _web(show: Show, job: Job, number: int, nodes: Sequence[str]) -> Manifest:
    """One of the service's pods, without any field of the policy."""
    pod = member(THROUGH, ask(job, show.room.cpu), number)
    pod["metadata"]["labels"][_APP] = job.name
    if len(nodes) < show.room.nodes:
        # A term of fields has one value.
        names = ([{"key": "metadata.name", "operator": "In", "values": [node]}] for node in nodes)
        terms = [{"matchFields": each} for each in names]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod["spec"]["affinity"] = {"nodeAffinity": required}
    return pod
