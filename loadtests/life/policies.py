"""Policies: writes EscherPolicy objects, with names and a team label that works refer to.

The API server refuses some; some make pods wait for ever. At the end all are replaced by policies that keep no pod from
any node, so the service has to admit all pods that waited.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from kubesim.kinds import Json, Kind
from loadtests.life.scene import Scene
from loadtests.life.works import POLICY_NAMES, TEAM, TEAMS

POLICY = Kind("escher.dev", "v1alpha1", "EscherPolicy", "escherpolicies")
HARMLESS = {"type": "bin-packing", "parameters": {}}
_PLACES = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")

Parameters = Callable[[random.Random], Mapping[str, Any]]
TYPES: Mapping[str, Parameters] = {
    "anti-affinity": lambda rng: {
        "awayFrom": rng.sample(POLICY_NAMES, rng.choice((0, 0, 1, 2))),
        "topologyKey": rng.choice(_PLACES),
    },
    "balance": lambda rng: {"tasks": rng.choice((0, 0, 4, 30)), "maxSkew": rng.choice((1, 2, 3))},
    "bin-packing": lambda rng: {},
    "co-location": lambda rng: {"size": rng.choice((0, 2, 3, 50)), "topologyKey": rng.choice(_PLACES)},
    "data-locality": lambda rng: {"data": ["data1"], "required": rng.random() < 0.3},
    "fair-share": lambda rng: {"weight": rng.randint(1, 3), "parent": rng.choice(("", *POLICY_NAMES))},
    "objective": lambda rng: {"label": "life/score", "prefer": rng.choice(("highest", "lowest", "best"))},
    "priority": lambda rng: {"priority": rng.randint(-5, 5), "ageingSeconds": rng.choice((1, 600))},
    "soft": lambda rng: {
        "preferences": rng.sample(POLICY_NAMES, rng.randint(1, 3)),
        "waitSeconds": rng.choice((1, 5, 60)),
        "required": rng.random() < 0.5,
    },
}


class Policies:
    def __init__(self, scene: Scene, namespaces: tuple[str, ...]) -> None:
        self._scene = scene
        self._namespaces = namespaces

    async def change(self) -> str:
        """Creates, changes or deletes one policy."""
        rng = self._scene.rng
        namespace, name = rng.choice(self._namespaces), rng.choice(POLICY_NAMES)
        found = self._scene.store.get(POLICY, namespace, name)
        if found is not None and rng.random() < 0.3:
            await self._scene.user.delete(POLICY, found)
            return f"policy {namespace}/{name} goes"
        spec = self._drawn()
        if found is None:
            done = await self._scene.user.create(POLICY, _made(namespace, name, spec)) is not None
        else:
            # Parameters of another type may stay; the API server refuses that.
            done = await self._scene.user.merge(POLICY, found, {"spec": spec})
        return f"policy {namespace}/{name} is {'' if done else 'not allowed to be '}{spec}"

    def _drawn(self) -> Json:
        rng = self._scene.rng
        kind = rng.choice(list(TYPES))
        spec: Json = {"type": kind, "parameters": dict(TYPES[kind](rng))}
        if rng.random() < 0.4:
            spec["selector"] = {"matchLabels": {TEAM: rng.choice(TEAMS)}} if rng.random() < 0.8 else {}
        return spec

    async def make_harmless(self) -> None:
        for namespace in self._namespaces:
            for name in POLICY_NAMES:
                if (found := self._scene.store.get(POLICY, namespace, name)) is not None:
                    await self._scene.user.delete(POLICY, found)
                await self._scene.user.create(POLICY, _made(namespace, name, HARMLESS))


def _made(namespace: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
