"""Applications: each wants one resource, requests it over HTTP repeatedly, and at times changes it.

Some run on the nodes that they ask for, own what they set, and use up the CPU that they asked to be available. An
application without an answer tries again soon. Its expectations come from the answers alone.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from kubesim.kinds import NODE, POD, Json
from lab.simulation import Simulation
from loadtests.life.actors.hands import Hands
from loadtests.life.seeing import name, uid
from loadtests.shared.reading import is_leaving, node_of

NAMESPACES = ("team-a", "team-b", "team-c")
LONGEST_PAUSE = 3600.0
"""Seconds within which each application repeats its request."""
_PAUSE, _TRIES_AGAIN = (900.0, 3000.0), (5.0, 10.0)
_TTL = (3.0 * LONGEST_PAUSE, 12.0 * LONGEST_PAUSE)
_CHANGES, _ENDS = 0.05, 0.02
"""The probabilities that the next request differs, and that it asks for nothing for a while."""
USED_CPU = 1
_NO_NODE = re.compile("no node has|none of the [0-9]+ nodes has")
LABEL = "month/half"


@dataclass(frozen=True)
class Wish:
    """The body of a PUT; `capacity` 0: nothing is wanted. `on_own_node`: the owner is its pod."""

    capacity: int
    node_spec: Any = None
    num_nodes: int | None = None
    ttl: float | None = None
    on_own_node: bool = False


@dataclass
class Application:
    namespace: str
    name: str
    rng: random.Random
    wish: Wish
    told: list[str] | None = None
    """The nodes in the last answer; None: any answer is right."""
    asked: int = 0
    writes: int = 0
    """Calls that had something to change, for example a time to live."""
    pod: str = ""
    """The UID of its current pod."""
    without_room: bool = False
    """No node has the available CPU, or the labels, that it wants."""

    @property
    def key(self) -> str:
        return f"escher.dev/{self.namespace}.{self.name}"


class Applications:
    """`found` is called with each wrong answer."""

    def __init__(
        self, simulation: Simulation, count: int, seed: int, hands: Hands, found: Callable[[str], None]
    ) -> None:
        self._simulation = simulation
        self._hands = hands
        self._found = found
        self.all = [self._new(number, random.Random(f"{seed} application {number}")) for number in range(count)]

    @staticmethod
    def _new(number: int, rng: random.Random) -> Application:
        wish = _any_wish(number, rng)
        return Application(NAMESPACES[number % len(NAMESPACES)], f"data{number}", rng, wish)

    async def run(self) -> None:
        """All applications make requests until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self.all:
                group.create_task(self._go(each))

    # -- what they lose ------------------------------------------------------------------------------------------

    def node_lost(self, node: str) -> None:
        for each in self.all:
            if each.told is not None and node in each.told:
                each.told = None

    def deleted(self, namespace: str, name: str) -> None:
        for each in self.all:
            if (each.namespace, each.name) == (namespace, name):
                each.told = None

    def time_went_back(self) -> None:
        """Any earlier answer may be out of date."""
        for each in self.all:
            each.told = None

    def expired(self) -> None:
        """Any resource with a time to live may be gone."""
        for each in self.all:
            if each.wish.ttl is not None:
                each.told = None

    # -- what they do --------------------------------------------------------------------------------------------

    async def _go(self, each: Application) -> None:
        await asyncio.sleep(each.rng.uniform(0.0, LONGEST_PAUSE))
        heard = True
        while True:
            if heard:
                self._reconsider(each)
            heard = await self._speak(each)
            await asyncio.sleep(each.rng.uniform(*(_PAUSE if heard else _TRIES_AGAIN)))

    def _reconsider(self, each: Application) -> None:
        chance = each.rng.random()
        if not each.wish.capacity:
            if chance < 0.3:
                each.wish, each.told = _any_wish(each.rng.randrange(5), each.rng), None
        elif chance < _ENDS:
            each.wish, each.told = Wish(0), None
        elif chance < _ENDS + _CHANGES:
            each.wish, each.told = replace(each.wish, capacity=each.rng.randint(1, 9)), None

    async def _speak(self, each: Application) -> bool:
        """Whether it got an answer."""
        service, wish, before = self._simulation.service, each.wish, each.told
        pod = await self._pod(each)
        if service is None or (wish.on_own_node and pod is None):
            return False
        where = f"/v1/namespaces/{each.namespace}/resources/{each.name}"
        served = httpx.ASGITransport(app=service.http)
        async with httpx.AsyncClient(transport=served, base_url="http://escher") as client:
            if wish.capacity:
                headers = {"Escher-Node": node_of(pod)} if pod is not None and wish.on_own_node else {}
                answer = await client.put(where, json=_body(wish, pod), headers=headers)
            else:
                answer = await client.delete(where)
        if self._simulation.service is not service or answer.status_code == 503:
            return False
        each.asked += 1
        each.without_room = answer.status_code == 422 and _NO_NODE.search(answer.text) is not None
        if answer.is_error:
            if not each.without_room:
                self._found(f"{each.key}: {answer.status_code} {answer.text}")
            return each.without_room
        each.writes += bool(wish.ttl) or before is None
        if not wish.capacity:
            return True
        nodes = sorted(answer.json()["nodes"])
        if before is not None and each.told is before and nodes != before:
            self._found(f"{each.key}: the same was asked, and it has moved from {before} to {nodes}")
        # A node that is away may or may not be back in time.
        there = {name(node) for node in self._simulation.cluster.api.store.list(NODE)}
        each.told = nodes if there.issuperset(nodes) else None
        return True

    async def _pod(self, each: Application) -> Json | None:
        """Its pod, on a node that exists, else a new one. None: it wants none, or has none yet.

        If it asks for available CPU, the pod runs there and uses the CPU up."""
        store = self._simulation.cluster.api.store
        wish = each.wish
        uses = isinstance(wish.node_spec, dict) and "cpu" in wish.node_spec
        if not (wish.capacity and (wish.on_own_node or uses)):
            return None
        found = store.get(POD, each.namespace, each.name)
        if found is not None and is_leaving(found):
            return None
        if found is not None and store.get(NODE, "", node_of(found)) is None:
            await self._hands.delete(POD, found)
            return None
        if found is None:
            nodes = [name(node) for node in store.list(NODE)]
            if not nodes or (uses and not each.told):
                return None
            node = (
                next((each_ for each_ in each.told or () if each_ in nodes), None) if uses else each.rng.choice(nodes)
            )
            if node is None:
                return None
            each.told = each.told if uses else None
            found = await self._hands.create(POD, _pod_body(each, node, USED_CPU if uses else 0))
        if found is not None and uid(found) != each.pod:
            each.pod = uid(found)
            each.told = each.told if uses else None
        return found


def _any_wish(number: int, rng: random.Random) -> Wish:
    capacity = rng.randint(1, 9)
    ttl = rng.uniform(*_TTL) if rng.random() < 0.6 else None
    match number % 5:
        case 0:
            return Wish(capacity, ttl=ttl, on_own_node=True)
        case 1:
            return Wish(capacity, {}, None if rng.random() < 0.5 else rng.randint(1, 4), ttl)
        case 2:
            return Wish(capacity, {"labels": {LABEL: rng.choice(("left", "right"))}}, rng.randint(1, 3), ttl)
        case _:
            return Wish(capacity, {"cpu": str(USED_CPU)}, rng.randint(1, 3), ttl)


def _body(wish: Wish, pod: Json | None) -> Json:
    body: Json = {"capacity": wish.capacity, "node_spec": wish.node_spec}
    if wish.num_nodes is not None:
        body["num_nodes"] = wish.num_nodes
    if wish.ttl is not None:
        body["ttl_seconds"] = wish.ttl
    if pod is not None and wish.on_own_node:
        body["owner"] = {"name": name(pod), "uid": uid(pod)}
    return body


def _pod_body(each: Application, node: str, cpu: int) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "metadata": {"name": each.name, "namespace": each.namespace},
        "spec": {"nodeName": node, "containers": [container], "schedulerName": "elsewhere"},
    }
