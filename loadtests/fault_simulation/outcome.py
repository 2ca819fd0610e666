"""Outcome: the oracle. What must be true at rest, by the objects and by what was asked for.

It uses the API server's objects, what people asked for last, and the answers of the service's public API. It shares no
code with the service's decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import httpx
from prometheus_client import CollectorRegistry

from kubesim.apiserver.machinery.store import Change, Store
from kubesim.kinds import NODE, POD, Json, Kind
from lab.simulated_service import ServiceLife
from loadtests.chaos.rest import resources_amiss
from loadtests.fault_simulation.actors.transactions import NAMESPACE
from loadtests.fault_simulation.actors.working import GROUP
from loadtests.fault_simulation.plan import Work
from loadtests.life.seeing import label, name
from loadtests.month.agreement import units_of
from loadtests.picture import differing, known, said
from loadtests.shared.ledger import SAVING, Samples, differences, samples_of, saved, unfinished
from loadtests.shared.pods import OURS
from loadtests.shared.reading import gang_of, is_leaving, is_over, node_of, scheduler_of
from loadtests.shared.room import (
    NOTHING_SAVED,
    RoomWatch,
    Saved,
    partly_bound,
    saved_in_vain,
    shape_of,
    waiting_though_there_is_room,
)

IN_PART, FORGOTTEN, DIFFERS, LEFT, RESOURCES, LOST = "in part", "forgotten", "ledger", "left over", "resources", "lost"
PICTURE = "picture"
INTENT = Kind("escher.dev", "v1alpha1", "TransactionIntent", "transactionintents")
"""The stored intent of a transaction that is under way."""


class Answers:
    """What a life of the service answers, in the form in which `loadtests.shared.ledger` asks for it."""

    def __init__(self, state: dict[str, Json], metrics: CollectorRegistry) -> None:
        self._state = state
        self._metrics = metrics

    @classmethod
    async def of(cls, life: ServiceLife) -> Answers:
        served = httpx.ASGITransport(app=life.http)
        async with httpx.AsyncClient(transport=served, base_url="http://escher") as client:
            state = await client.get("/v1/cluster-state", params={"limit": 5000})
        return cls({each["node"]: each for each in state.json()["items"]}, life.application.registry)

    def cluster_state(self) -> dict[str, Json]:
        return self._state

    def metrics(self) -> Samples:
        return samples_of(self._metrics.collect())


class Objects:
    """The API server's objects, in the form in which `loadtests.shared.ledger` asks for them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list_all(self, path: str) -> list[Json]:
        return list(self._store.list(POD if path == POD.path() else NODE))


class Ran:
    """The UIDs of pods that were bound together with their gang's quorum, by the objects' history.

    The service removes a misleading attempt from such a pod, which then says nothing of what it was bound with.
    """

    def __init__(self) -> None:
        self.uids: set[str] = set()
        self._placed = defaultdict[str, set[str]](set)

    def note(self, change: Change) -> None:
        pod = change.object
        if change.kind is not POD or (gang := gang_of(pod)) is None or gang.quorum is None:
            return
        placed = self._placed[gang.id]
        (placed.add if change.type != "DELETED" and _is_placed(pod) else placed.discard)(pod["metadata"]["uid"])
        if len(placed) >= gang.quorum:
            self.uids |= placed


async def amiss(
    store: Store,
    life: ServiceLife,
    resources: Kind,
    works: Sequence[Work],
    wishes: Sequence[Work],
    told: Mapping[str, frozenset[str]],
    unclear: Collection[str] = (),
    beside: Collection[str] = (),
    forgotten: Collection[str] = (),
    ran: Collection[str] = (),
) -> dict[str, list[str]]:
    """By kind: what is not as it must be; some of it may only need time.

    `works`: all that was ever asked for. `wishes`: the resources asked for last; those with a time to live have ended.
    `told`: the nodes that the service answered for each resource; empty if a node was lost since. `unclear`: gangs that
    may be bound in part because etcd was restored, and may need more members than their pods show. `beside`: resources
    that are no wishes and are judged elsewhere. `forgotten`: UIDs of pods that kube-scheduler fails to try again, by a
    flaw of its own, while it keeps the room on their nominated nodes. `ran`: UIDs of pods that were bound together with
    their gang's quorum."""
    answers = await Answers.of(life)
    pods, nodes, keeps = store.list(POD), store.list(NODE), saved(answers)
    with_nominated = [_where_nominated(each) if each["metadata"]["uid"] in forgotten else each for each in pods]
    apart = [each for each in pods if label(each, GROUP)]
    waiting = waiting_though_there_is_room(
        nodes,
        with_nominated,
        keeps,
        asked=lambda pod: scheduler_of(pod) in OURS and not label(pod, GROUP) and not _has_port(pod),
        bare_ones_count=True,
    )
    return {
        IN_PART: _in_part([each for each in pods if not _is_of(each, unclear)], works, ran),
        FORGOTTEN: [
            *waiting,
            *_apart(nodes, with_nominated, apart, keeps),
            *_with_free_ports(nodes, with_nominated, keeps, works),
        ],
        DIFFERS: differences(Objects(store), answers),
        LEFT: [
            *unfinished(answers),
            *(saved_in_vain(pods, keeps) if keeps.gang not in unclear else ()),
            *(f"intent {name(each)}" for each in store.list(INTENT)),
        ],
        RESOURCES: _resources_amiss(nodes, store.list(resources), wishes, told, beside),
        PICTURE: differing(known(life.application), said(store, resources)),
    }


def _where_nominated(pod: Json) -> Json:
    """The pod as if bound to its nominated node, if it has one and belongs to no gang."""
    nominated = pod["status"].get("nominatedNodeName")
    if node_of(pod) or not nominated or gang_of(pod) is not None:
        return pod
    return {**pod, "spec": {**pod["spec"], "nodeName": nominated}}


def _is_of(pod: Json, gangs: Collection[str]) -> bool:
    gang = gang_of(pod)
    return gang is not None and gang.key in gangs


def _in_part(pods: list[Json], works: Sequence[Work], ran: Collection[str]) -> list[str]:
    return list(dict.fromkeys([*partly_bound(_of_gangs_that_run(pods), ran), *_never_whole(pods, works)]))


def _of_gangs_that_run(pods: list[Json]) -> list[Json]:
    """Members of gangs with a running member: a part that has ended is no longer a part."""
    running = {gang_of(each) for each in pods if node_of(each) and not is_over(each)}
    return [each for each in pods if gang_of(each) in running]


def _never_whole(pods: list[Json], works: Sequence[Work]) -> list[str]:
    """Gangs in part that were never whole, whatever pods say: no member has ended or gone."""
    found = []
    for work in [each for each in works if each.kind == "gang"]:
        gang = f"{NAMESPACE}/{work.name}"
        members = [each for each in pods if (known := gang_of(each)) is not None and known.key == gang]
        placed = sum(bool(node_of(each)) for each in members)
        are_all = len(members) == work.size + work.surplus and not any(map(is_over, members))
        if are_all and 0 < placed < work.size:
            found.append(f"gang {gang}: {placed} of {work.size} bound")
    return found


def _apart(nodes: list[Json], pods: list[Json], apart: list[Json], keeps: Saved) -> list[str]:
    """Waiting pods that keep off each other, with unreserved room where none of their group is."""
    found = []
    for pod in apart:
        if node_of(pod) or is_over(pod):
            continue
        taken = {node_of(each) for each in apart if label(each, GROUP) == label(pod, GROUP) and not is_over(each)}
        free = RoomWatch([each for each in nodes if name(each) not in taken], pods, keeps)
        if free.copies(shape_of(pod)):
            found.append(f"pod {name(pod)} has room where none of its group is")
    return found


def _has_port(pod: Json) -> bool:
    return "ports" in pod["spec"]["containers"][0]


def _with_free_ports(nodes: list[Json], pods: list[Json], keeps: Saved, works: Sequence[Work]) -> list[str]:
    """Pods that wait for the host port, and have unreserved room where no pod has it."""
    wanting = [each for each in pods if _has_port(each)]
    taken = {node_of(each) for each in wanting if not is_over(each)}
    ports = {f"{NAMESPACE}/{work.name}" for work in works if work.port and work.kind == "gang"}
    kept = {node for node, _ in keeps.places} if keeps.gang in ports else set[str]()
    found = []
    gangs: dict[str, list[Json]] = {}
    for pod in wanting:
        if node_of(pod) or is_over(pod) or is_leaving(pod):
            continue
        if (gang := gang_of(pod)) is not None:
            gangs.setdefault(gang.key, []).append(pod)
        elif _places(nodes, pods, taken | kept, pod, keeps):
            found.append(f"pod {name(pod)} has room where nobody has its host port")
    for key, waiting in gangs.items():
        quorum = next(work.size for work in works if f"{NAMESPACE}/{work.name}" == key)
        members = [each for each in pods if (of := gang_of(each)) is not None and of.key == key]
        lacking = max(1, quorum - sum(_is_placed(each) for each in members))
        mine = key == keeps.gang
        places = _places(nodes, pods, taken if mine else taken | kept, waiting[0], NOTHING_SAVED if mine else keeps)
        if len(waiting) >= lacking and places >= lacking:
            found.append(f"gang {key} needs {lacking} more places and has {places} where nobody has its host port")
    return found


def _is_placed(pod: Json) -> bool:
    return bool(node_of(pod)) and (not is_over(pod) or pod["status"].get("phase") == "Succeeded")


def _places(nodes: list[Json], pods: list[Json], without: set[str], pod: Json, keeps: Saved) -> int:
    """How many such pods have room on all nodes but these, at most one on each node."""
    others = [each for each in nodes if name(each) not in without]
    return sum(RoomWatch([each], pods, keeps).copies(shape_of(pod)) > 0 for each in others)


def _resources_amiss(
    nodes: list[Json],
    objects: list[Json],
    wishes: Sequence[Work],
    told: Mapping[str, frozenset[str]],
    beside: Collection[str],
) -> list[str]:
    there = {name(each): units_of(each) for each in objects}
    present = {name(each) for each in nodes}
    lasting = [each for each in wishes if each.capacity and not each.seconds]
    found = []
    for wish in lasting:
        units, count = there.get(wish.name, {}), wish.nodes or len(nodes)
        # An object keeps naming a node that is gone: the node may come back, and then has its units again.
        if set(units.values()) != {wish.capacity} or len(units.keys() & present) > count:
            found.append(f"{wish.name} is {units}, and {wish.capacity} on {count} nodes were asked for")
        elif units.keys() != told.get(wish.name, units.keys()):
            found.append(f"{wish.name} is {units}, and {sorted(told[wish.name])} was answered")
    expected = {each.name: there[each.name] for each in lasting if each.name in there}
    expected |= {each: there[each] for each in beside if each in there}
    ownerless, lost = resources_amiss(nodes, objects, expected)
    return [*found, *ownerless, *lost]


async def states(life: ServiceLife) -> dict[str, Json]:
    """What the service says of each node, without what a restart may change.

    That is the count of changes since the start, and the backfill reservation, which each life decides for itself."""
    said = (await Answers.of(life)).cluster_state()
    return {node: _lasting(each) for node, each in said.items()}


def _lasting(said: Json) -> Json:
    bound = sorted((each for each in said["holders"] if each["kind"] != SAVING), key=lambda each: str(each["holder"]))
    available = None if len(bound) < len(said["holders"]) else said["available"]
    return {"capacity": said["capacity"], "available": available, "holders": bound}
