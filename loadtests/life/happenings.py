"""Happenings: everything that may happen to the cluster, by name, and how frequent each is.

Each takes its own time beside the others; `end` undoes what would stay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubesim.kinds import DISRUPTION_BUDGET
from loadtests.life.actors.machines import Machines
from loadtests.life.actors.people import People
from loadtests.life.actors.surroundings import Surroundings
from loadtests.life.policies import Policies
from loadtests.life.scene import Scene
from loadtests.life.works import NAMESPACES, POD_GROUP

GANG, POD, FOREIGN_GANG, END_WORK = "gang", "pod", "foreign-gang", "end-work"
INSTALL_GROUPS, POLICY = "install-groups", "policy"
NEW_WORKS = (GANG, POD, FOREIGN_GANG)
WEIGHTS = {
    GANG: 26,
    POD: 10,
    FOREIGN_GANG: 4,
    END_WORK: 8,
    "member-fails": 6,
    "member-succeeds": 3,
    "pod-deleted": 5,
    "pod-evicted": 5,
    "drain": 4,
    "upgrade": 1,
    "node-lost": 2,
    "node-shrinks": 1,
    "scale": 6,
    "quorum": 5,
    "group": 4,
    INSTALL_GROUPS: 2,
    "budget": 2,
    POLICY: 8,
    "restart": 4,
    "scheduler-restart": 2,
    "clock": 3,
    "watches": 2,
}


class Happenings:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._people, self._machines, self._environment = People(scene), Machines(scene), Surroundings(scene)
        self._policies = Policies(scene, NAMESPACES)
        self._by_name: dict[str, Callable[[], Awaitable[str]]] = {
            GANG: scene.works.begin_gang,
            POD: scene.works.begin_pod,
            FOREIGN_GANG: scene.works.begin_foreign_gang,
            END_WORK: self._people.end_work,
            "member-fails": self._people.member_fails,
            "member-succeeds": self._people.member_succeeds,
            "pod-deleted": self._people.pod_deleted,
            "pod-evicted": self._people.pod_evicted,
            "drain": self._machines.drain,
            "upgrade": self._machines.upgrade,
            "node-lost": self._machines.loss,
            "node-shrinks": self._machines.shrinking,
            "scale": self._people.scale,
            "quorum": self._people.quorum,
            "group": self._people.group,
            INSTALL_GROUPS: self._people.install_groups,
            "budget": self._people.budget,
            POLICY: self._policies.change,
            "restart": self._environment.restart,
            "scheduler-restart": self._environment.scheduler_restart,
            "clock": self._environment.clock,
            "watches": self._environment.watches,
        }

    async def begin(self, what: str) -> str:
        """Begins it; returns a description."""
        said = await self._by_name[what]()
        await self._people.tidy_finished()
        return said

    async def end(self) -> None:
        """Ends all: nodes take pods, the service runs, no budget or policy is in the way."""
        scene = self._scene
        await scene.stop()
        await self._machines.mend()
        await self._environment.mend()
        for budget in scene.store.list(DISRUPTION_BUDGET):
            await scene.user.delete(DISRUPTION_BUDGET, budget)
        await self._policies.make_harmless()
        for work in scene.works.there.values():
            if work.group is not None and scene.works.groups_installed:
                await scene.user.create(POD_GROUP, work.group)

    async def tidy(self) -> None:
        """Deletes everything that people have run."""
        await self._people.tidy()
