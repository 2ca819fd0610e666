"""Machines: drains nodes as kubectl does; upgrades, loses, restores and shrinks nodes."""

from __future__ import annotations

import asyncio

from kubesim.kinds import NODE, POD, Json
from loadtests.life.scene import Scene
from loadtests.life.seeing import name
from loadtests.shared.reading import is_leaving, is_of_daemon_set, is_over, node_of

_DRAIN_TRIES, _DRAIN_PAUSE = 40, 15.0
_SMALL = "6"


class Machines:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._lost: dict[str, Json] = {}
        """Nodes that are to come back."""

    async def mend(self) -> None:
        """All nodes exist, have their full size, and take pods."""
        for node in list(self._lost):
            await self._come_back(node)
        for found in self._scene.store.list(NODE):
            if found["spec"].get("unschedulable"):
                await self._cordon(name(found), False)
            if found["status"]["allocatable"] != found["status"]["capacity"]:
                await self._set_allocatable(found, found["status"]["capacity"]["cpu"])

    def _free_nodes(self) -> list[str]:
        """The nodes that are not cordoned."""
        return [name(node) for node in self._scene.store.list(NODE) if not node["spec"].get("unschedulable")]

    async def _cordon(self, node: str, cordoned: bool) -> None:
        found = self._scene.store.get(NODE, "", node)
        if found is not None:
            await self._scene.user.merge(NODE, found, {"spec": {"unschedulable": cordoned or None}})

    async def _empty(self, node: str) -> None:
        """Drains a node as kubectl drain does, which gives up after some time."""
        await self._cordon(node, True)
        for _ in range(_DRAIN_TRIES):
            on_it = [pod for pod in self._scene.store.list(POD) if node_of(pod) == node and not is_over(pod)]
            left = [pod for pod in on_it if not is_of_daemon_set(pod)]
            if not left:
                return
            for pod in left:
                if not is_leaving(pod):
                    await self._scene.user.evict(pod)
            await asyncio.sleep(_DRAIN_PAUSE)

    async def drain(self) -> str:
        node = self._scene.any_of(self._free_nodes())
        if node is None:
            return "no node to drain"

        async def go() -> None:
            await self._empty(node)
            await asyncio.sleep(self._scene.a_while())
            await self._cordon(node, False)

        self._scene.start(go())
        return f"{node} is drained"

    async def upgrade(self) -> str:
        """Upgrades all nodes, one or two at a time; either replaces or restarts them."""
        anew, at_a_time = self._scene.rng.random() < 0.5, self._scene.rng.choice((1, 1, 2))
        nodes = self._free_nodes()

        async def upgrade(node: str) -> None:
            await self._empty(node)
            if anew:
                await self._lose(node)
                await asyncio.sleep(self._scene.rng.uniform(5, 120))
                await self._come_back(node)
            else:
                await asyncio.sleep(self._scene.rng.uniform(30, 180))
                await self._cordon(node, False)

        async def roll() -> None:
            for first in range(0, len(nodes), at_a_time):
                await asyncio.gather(*map(upgrade, nodes[first : first + at_a_time]))

        self._scene.start(roll())
        return f"all nodes are upgraded, {at_a_time} at a time{', and made anew' if anew else ''}"

    async def loss(self) -> str:
        node = self._scene.any_of(self._free_nodes())
        if node is None or len(self._lost) > 1:
            return "no node to lose"
        away = self._scene.rng.choice((5.0, 30.0, 60.0, self._scene.a_while()))

        async def lose() -> None:
            await self._lose(node)
            await asyncio.sleep(away)
            await self._come_back(node)

        self._scene.start(lose())
        return f"{node} is lost for {away:.0f} s"

    async def _lose(self, node: str) -> None:
        found = self._scene.store.get(NODE, "", node)
        if found is not None:
            self._lost[node] = found
            await self._scene.user.delete(NODE, found)

    async def _come_back(self, node: str) -> None:
        found = self._lost.pop(node, None)
        if found is None:
            return
        metadata = {key: found["metadata"][key] for key in ("name", "labels") if key in found["metadata"]}
        status = {**found["status"], "allocatable": found["status"]["capacity"]}
        await self._scene.user.create(NODE, {"metadata": metadata, "spec": {}, "status": status})

    async def shrinking(self) -> str:
        """Lowers a node's allocatable below its use, and later raises it again."""
        node = self._scene.any_of(self._scene.store.list(NODE))
        if node is None:
            return "no node to shrink"

        async def shrink() -> None:
            await self._set_allocatable(node, _SMALL)
            await asyncio.sleep(self._scene.a_while())
            now = self._scene.store.get(NODE, "", name(node))
            if now is not None:
                await self._set_allocatable(now, now["status"]["capacity"]["cpu"])

        self._scene.start(shrink())
        return f"{name(node)} has 6 CPU for a while"

    async def _set_allocatable(self, node: Json, cpu: str) -> None:
        now = self._scene.store.get(NODE, "", name(node))
        if now is not None:
            await self._scene.kubelet.merge(NODE, now, {"status": {"allocatable": {"cpu": cpu}}}, "status")
