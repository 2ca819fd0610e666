"""Noise: a tenant creates many objects in its own namespace, edits them fast, and removes them.

Its pods ask for no CPU, and for more units than there are. Nearly all of them wait, and those that run take no room
from others. Its nodes have no room.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    DAEMON_SET,
    DISRUPTION_BUDGET,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    Json,
    Kind,
)
from lab.controlplane.nodes import NodeShape, plain
from loadtests.fault_simulation.plan import NOISES, Fault
from loadtests.fault_simulation.stage import Stage
from loadtests.life.actors.hands import Hands
from loadtests.life.actors.people import GROUP_DEFINITION
from loadtests.life.policies import POLICY, TYPES
from loadtests.life.seeing import label
from loadtests.life.works import POD_GROUP, POLICY_NAMES
from loadtests.shared.pods import OURS, daemon_set, disruption_budget, pod
from loadtests.shared.reading import POD_GROUP as OF_GROUP

TENANT = "noisy"
"""Its namespace, and its user name at the API server."""
NOISY_NODE = "fault-simulation/noisy"
"""The label of its nodes."""
_TEAM, _TEAMS = "noisy/team", ("red", "green", "blue")
_RESOURCES = ("a", "b", "c", "d")
_GANG_SIZE, _MOST_NODES, _MOST_POLICIES, _MOST_RESOURCES = 4, 30, 100, 40
_FIRST_NODE = 1000
_WRITERS = 8
"""The most requests that it has under way at one time."""
_MEMBERS = "escher.dev/gang-min-member"


class Noise:
    """`resources`: the kind of EphemeralResource."""

    def __init__(self, stage: Stage, seed: int, resources: Kind) -> None:
        self.begun = False
        self._going = 0
        self._stage = stage
        self._seed = seed
        self._resources = resources
        drawn = random.Random(f"{seed} {TENANT}")
        self._hands = Hands(InProcess(stage.cluster.api, latency=0.001, rng=drawn, user=TENANT))

    async def disturb(self, fault: Fault) -> None:
        """Creates all the objects, edits them for the fault's time, and removes them."""
        self.begun = True
        self._going += 1
        try:
            rng = random.Random(f"{self._seed} {TENANT} {fault.at}")
            bodies = Bodies(rng, self._resources)
            await self._create(NAMESPACE, {"metadata": {"name": TENANT}})
            if "podgroups" in fault.of:
                await self._create(CUSTOM_RESOURCE_DEFINITION, GROUP_DEFINITION)
            made = await self._make(fault, bodies)
            await self._edit(fault, bodies, made, rng)
        finally:
            self._going -= 1
        await self.sweep()

    async def _make(self, fault: Fault, bodies: Bodies) -> dict[str, list[tuple[Kind, Json]]]:
        noises = fault.of.split("+")
        made: dict[str, list[tuple[Kind, Json]]] = {}
        for noise in noises:
            most = MOST.get(noise, fault.times)
            wanted = [bodies.made(noise, number) for number in range(min(most, -(-fault.times // len(noises))))]
            made[noise] = []
            for first in range(0, len(wanted), _WRITERS):
                some = wanted[first : first + _WRITERS]
                stored = await asyncio.gather(*(self._create(kind, body) for kind, body in some))
                made[noise] += [(kind, found) for (kind, _), found in zip(some, stored, strict=True) if found]
        return {noise: found for noise, found in made.items() if found}

    async def _edit(
        self, fault: Fault, bodies: Bodies, made: Mapping[str, list[tuple[Kind, Json]]], rng: random.Random
    ) -> None:
        """Edits objects: half of the edits go to one object of each kind, the others to any."""
        busy = {noise: rng.choice(found) for noise, found in made.items()}
        edits = [asyncio.ensure_future(asyncio.sleep(0.0))] * _WRITERS
        loop = asyncio.get_running_loop()
        until, number = loop.time() + fault.seconds, 0
        while made and loop.time() < until:
            noise = rng.choice(list(made))
            kind, found = busy[noise] if rng.random() < 0.5 else rng.choice(made[noise])
            edit = self._hands.merge(kind, found, bodies.edited(noise, kind))
            edits[number % _WRITERS] = asyncio.ensure_future(edit)
            number += 1
            await asyncio.sleep(1.0 / max(1, fault.rate))
            await edits[number % _WRITERS]
        await asyncio.gather(*edits)

    async def _create(self, kind: Kind, body: Json) -> Json | None:
        if kind.namespaced:
            body["metadata"]["namespace"] = TENANT
        return await self._hands.create(kind, {**body, "apiVersion": kind.api_version, "kind": kind.name})

    async def sweep(self) -> None:
        """Removes all objects of the tenant, unless a `disturb` is still under way."""
        while self.begun and not self._going and (left := self._left()):
            await asyncio.gather(*(self._hands.delete(kind, found) for kind, found in left))
            await asyncio.sleep(0.1)

    def _left(self) -> list[tuple[Kind, Json]]:
        store = self._stage.cluster.api.store
        kinds = (JOB, DAEMON_SET, POD, POLICY, self._resources, POD_GROUP, DISRUPTION_BUDGET)
        of_tenant = [(kind, each) for kind in kinds for each in store.list(kind, TENANT)]
        return [*of_tenant, *((NODE, each) for each in store.list(NODE) if label(each, NOISY_NODE))]


MOST = {"policies": _MOST_POLICIES, "resources": _MOST_RESOURCES, "nodes": _MOST_NODES}


class Bodies:
    """The bodies of objects of each noise, at creation and in edits."""

    def __init__(self, rng: random.Random, resources: Kind) -> None:
        self._rng = rng
        self._resources = resources
        self._ways: Mapping[str, tuple[Callable[[int], tuple[Kind, Json]], Callable[[], Json]]] = {
            "pods": (lambda number: (POD, self._pod(f"p{number}")), self._of_pod),
            "gated": (lambda number: (POD, self._pod(f"w{number}", gated=True)), self._of_pod),
            "gangs": (self._member, self._of_member),
            "policies": (self._policy, self._of_policy),
            "resources": (self._resource, lambda: {"spec": {"nodes": self._units()}}),
            "podgroups": (self._group, lambda: {"spec": {"minMember": rng.randint(2, 9)}}),
            "jobs": (self._job, lambda: {"spec": {"parallelism": rng.randint(1, 9)}}),
            "daemonsets": (self._daemons, lambda: {"spec": {"template": {"spec": {"nodeSelector": self._place()}}}}),
            "budgets": (self._budget, lambda: {"spec": {"maxUnavailable": rng.randint(0, 3)}}),
            "nodes": (self._node, lambda: {"metadata": {"labels": self._labels()}}),
        }
        assert self._ways.keys() == set(NOISES)

    def made(self, noise: str, number: int) -> tuple[Kind, Json]:
        return self._ways[noise][0](number)

    def edited(self, noise: str, kind: Kind) -> Json:
        """A merge patch."""
        if noise == "podgroups" and kind is POD:
            return self._of_pod()
        return self._ways[noise][1]()

    def _labels(self) -> dict[str, str]:
        return {_TEAM: self._rng.choice(_TEAMS), "noisy/kind": f"k{self._rng.randrange(300)}"}

    def _place(self) -> dict[str, str]:
        return {"noisy/nowhere": f"k{self._rng.randrange(300)}"}

    def _units(self) -> dict[str, int]:
        return {f"node-{self._rng.randrange(2)}": self._rng.choice((0, 1, 2, 3))}

    def _says(self) -> dict[str, str]:
        """Annotations."""
        names = self._rng.sample(POLICY_NAMES, self._rng.choice((0, 1, 1, 2)))
        return {"escher.dev/policy": self._rng.choice((",", "|")).join(names)} if names else {}

    def _pod(self, name: str, gang: str | None = None, quorum: int | None = None, *, gated: bool = False) -> Json:
        unit = f"escher.dev/{TENANT}.{self._rng.choice(_RESOURCES)}"
        made = pod(
            name,
            self._rng.choice(OURS),
            gang=gang,
            quorum=quorum,
            gated=gated,
            selector=self._place() if self._rng.random() < 0.1 else None,
            labels=self._labels(),
            annotations=self._says(),
            cpu=0,
            **{unit: self._rng.randint(1, 4)},
        )
        made["spec"]["tolerations"] = [{"key": f"noisy/k{self._rng.randrange(300)}", "operator": "Exists"}]
        return made

    def _of_pod(self) -> Json:
        says = {"escher.dev/policy": None, **self._says()}
        return {"metadata": {"labels": self._labels()} if self._rng.random() < 0.5 else {"annotations": says}}

    def _member(self, number: int) -> tuple[Kind, Json]:
        """A member of a gang that always lacks one member."""
        gang = f"g{number // _GANG_SIZE}"
        return POD, self._pod(f"{gang}-{number}", gang, _GANG_SIZE + 1, gated=self._rng.random() < 0.3)

    def _of_member(self) -> Json:
        if self._rng.random() < 0.5:
            return self._of_pod()
        said = {_MEMBERS: str(_GANG_SIZE + self._rng.randint(1, 5))}
        said["escher.dev/gang-timeout-seconds"] = str(self._rng.randint(1, 50))
        return {"metadata": {"annotations": said}}

    def _spec(self) -> Json:
        kind = self._rng.choice(list(TYPES))
        spec: Json = {"type": kind, "parameters": dict(TYPES[kind](self._rng))}
        if self._rng.random() < 0.8:
            spec["selector"] = {"matchLabels": {_TEAM: self._rng.choice(_TEAMS)} if self._rng.random() < 0.5 else {}}
        return spec

    def _of_policy(self) -> Json:
        """A patch to another policy type; it removes the parameters of other types."""
        spec, others = self._spec(), {key: None for drawn in TYPES.values() for key in drawn(self._rng)}
        return {"spec": {"selector": None, **spec, "parameters": {**others, **spec["parameters"]}}}

    def _policy(self, number: int) -> tuple[Kind, Json]:
        name = POLICY_NAMES[number] if number < len(POLICY_NAMES) else f"policy-{number}"
        return POLICY, {"metadata": {"name": name}, "spec": self._spec()}

    def _resource(self, number: int) -> tuple[Kind, Json]:
        name = _RESOURCES[number] if number < len(_RESOURCES) else f"r{number}"
        return self._resources, {"metadata": {"name": name}, "spec": {"nodes": self._units()}}

    def _group(self, number: int) -> tuple[Kind, Json]:
        """A group, and then the pods that are its members."""
        group = f"group-{number // 8}"
        if number % 8 == 0:
            return POD_GROUP, {"metadata": {"name": group}, "spec": {"minMember": 9}}
        made = self._pod(f"m{number}")
        made["metadata"]["labels"][OF_GROUP] = group
        return POD, made

    def _job(self, number: int) -> tuple[Kind, Json]:
        template = {"spec": self._pod("any")["spec"]}
        spec = {"parallelism": 2, "completions": 9, "suspend": True, "template": template}
        return JOB, {"metadata": {"name": f"job-{number}"}, "spec": spec}

    def _daemons(self, number: int) -> tuple[Kind, Json]:
        return DAEMON_SET, daemon_set(f"daemon-{number}", nodeSelector=self._place())

    def _budget(self, number: int) -> tuple[Kind, Json]:
        return DISRUPTION_BUDGET, disruption_budget(f"budget-{number}", self._labels(), maxUnavailable=1)

    def _node(self, number: int) -> tuple[Kind, Json]:
        [made] = plain(1, NodeShape(cpu="0", pods=0), start=_FIRST_NODE + number)
        made["metadata"]["labels"] |= {NOISY_NODE: "yes", **self._labels()}
        return NODE, made
