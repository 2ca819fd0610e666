"""People: end and scale works, change quorums, PodGroups and budgets, delete and evict pods.

They also let pods fail or succeed.
"""

from __future__ import annotations

import asyncio

from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, DISRUPTION_BUDGET, JOB, POD, Json
from loadtests.life.actors.crews import REPLICAS, TRAINING
from loadtests.life.scene import Scene
from loadtests.life.seeing import CREW_LABEL, annotation, is_running, label, name
from loadtests.life.works import POD_GROUP, Work
from loadtests.shared.reading import GANG, MIN_MEMBER, is_leaving, is_over


class People:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def _pods(self, *, running: bool = False) -> list[Json]:
        found = [pod for pod in self._scene.store.list(POD) if not is_leaving(pod) and not is_over(pod)]
        return [pod for pod in found if is_running(pod)] if running else found

    async def end_work(self) -> str:
        """Deletes a work that has ended; else one without an end, if there is one."""
        works = [work for work in self._scene.works.there.values() if not work.stays]
        over = [work for work in works if self._is_over(work)]
        work = self._scene.any_of(over or [work for work in works if not work.finite] or works)
        if work is None:
            return "nothing to end"
        await self._take_away(work)
        return f"{work.name} is taken away"

    def _is_over(self, work: Work) -> bool:
        if work.crew is not None:
            return work.crew.ended
        return all(is_over(pod) for pod in self.pods_of(work)) if work.pods else False

    def pods_of(self, work: Work) -> list[Json]:
        if work.crew is not None:
            return self._scene.crews.pods(work.crew)
        pods = self._scene.store.list(POD, work.namespace)
        if work.job:
            return [pod for pod in pods if label(pod, "job-name") == work.name]
        return [pod for pod in pods if name(pod) in work.pods]

    async def _take_away(self, work: Work) -> None:
        self._scene.works.there.pop(work.name, None)
        if work.crew is not None:
            await self._scene.crews.end(work.crew)
        elif work.job:
            job = self._scene.store.get(JOB, work.namespace, work.name)
            if job is not None:
                await self._scene.user.delete(JOB, job)
        else:
            for pod in self.pods_of(work):
                await self._scene.user.delete(POD, pod)
        if work.group is not None:
            await self._drop_group(work)

    async def tidy(self) -> None:
        """Deletes everything that people have run."""
        for work in list(self._scene.works.there.values()):
            await self._take_away(work)

    async def tidy_finished(self) -> None:
        """Forgets works whose controllers have deleted everything."""
        scene = self._scene
        for work in list(scene.works.there.values()):
            if work.crew is not None:
                gone = work.crew.uid not in scene.crews.by_uid and not scene.crews.pods(work.crew)
            else:
                gone = work.job and scene.store.get(JOB, work.namespace, work.name) is None
            if gone:
                await self._take_away(work)

    async def member_fails(self) -> str:
        pod = self._scene.any_of(self._pods(running=True))
        if pod is None:
            return "nothing runs"
        await self._kubelet_ends(pod, "Failed", 1)
        return f"{name(pod)} fails"

    async def member_succeeds(self) -> str:
        """A member succeeds earlier than the others."""
        pods = [pod for pod in self._pods(running=True) if annotation(pod, "escher.dev/run-seconds")]
        pod = self._scene.any_of(pods)
        if pod is None:
            return "nothing runs that ends"
        await self._kubelet_ends(pod, "Succeeded", 0)
        return f"{name(pod)} succeeds"

    async def _kubelet_ends(self, pod: Json, phase: str, code: int) -> None:
        ready = {"type": "Ready", "status": "False", "reason": "PodFailed" if code else "PodCompleted"}
        kept = [each for each in pod["status"].get("conditions") or () if each["type"] != "Ready"]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        states = [
            {**each, "ready": False, "state": {"terminated": ended}}
            for each in pod["status"].get("containerStatuses") or ()
        ]
        status = {"phase": phase, "conditions": [*kept, ready], "containerStatuses": states}
        await self._scene.kubelet.merge(POD, pod, {"status": status}, "status")

    async def pod_deleted(self) -> str:
        pod = self._scene.any_of(self._pods())
        if pod is None:
            return "no pod to delete"
        await self._scene.user.delete(POD, pod)
        return f"{name(pod)} is deleted by a user"

    async def pod_evicted(self) -> str:
        pod = self._scene.any_of(self._pods(running=True))
        if pod is None:
            return "no pod to evict"
        return f"{name(pod)} is evicted by a user{'' if await self._scene.user.evict(pod) else ', in vain'}"

    async def scale(self) -> str:
        crews = [
            work.crew for work in self._scene.works.there.values() if work.crew is not None and not work.crew.ended
        ]
        crew = self._scene.any_of([crew for crew in crews if crew.kind in (TRAINING, REPLICAS)])
        if crew is None:
            return "nothing to scale"
        crew.size = max(1, crew.size + self._scene.rng.choice((-2, -1, -1, 1, 1, 2)))
        self._scene.crews.sync_soon(crew)
        return f"{crew.name} is scaled to {crew.size}"

    async def quorum(self) -> str:
        """Changes the quorum of a gang's members one after the other, and of later ones."""
        labelled = [work for work in self._scene.works.there.values() if work.is_gang and work.group is None]
        work = self._scene.any_of([work for work in labelled if self.pods_of(work)])
        if work is None:
            return "no gang's quorum to change"
        work.quorum = quorum = max(1, work.quorum + self._scene.rng.choice((-2, -1, -1, 1, 1, 2)))
        if work.crew is not None:
            before = work.crew.make

            def make(index: int) -> Json:
                made = before(index)
                made["metadata"]["annotations"][MIN_MEMBER] = str(quorum)
                return made

            work.crew.make = make
        pause = self._scene.rng.choice((0.0, 0.0, 1.0, 60.0))
        self._scene.start(self._tell_quorum(self.pods_of(work), quorum, pause))
        return f"{work.name} wants {quorum} members now"

    async def _tell_quorum(self, pods: list[Json], quorum: int, pause: float) -> None:
        for pod in pods:
            await self._scene.user.merge(POD, pod, {"metadata": {"annotations": {MIN_MEMBER: str(quorum)}}})
            await asyncio.sleep(pause)

    # -- PodGroups and budgets -----------------------------------------------------------------------------------

    async def install_groups(self) -> str:
        if self._scene.works.groups_installed:
            return "PodGroups are installed already"
        self._scene.works.groups_installed = True
        await self._scene.user.create(CUSTOM_RESOURCE_DEFINITION, GROUP_DEFINITION)
        return "PodGroups are installed"

    async def group(self) -> str:
        """Creates a late PodGroup, or deletes, replaces or changes one."""
        work = self._scene.any_of([work for work in self._scene.works.there.values() if work.group is not None])
        if work is None or work.group is None:
            return "no PodGroup to change"
        found = (
            self._scene.store.get(POD_GROUP, work.namespace, work.name) if self._scene.works.groups_installed else None
        )
        if found is None:
            await self._scene.user.create(POD_GROUP, work.group)
            return f"PodGroup {work.name} is made late"
        match self._scene.rng.choice(("deleted", "replaced", "changed")):
            case "deleted":
                await self._drop_group(work)
                return f"PodGroup {work.name} is deleted"
            case "replaced":
                await self._drop_group(work)
                await asyncio.sleep(self._scene.rng.choice((0.0, 0.5, 20.0)))
                await self._scene.user.create(POD_GROUP, work.group)
                return f"PodGroup {work.name} is replaced"
        quorum = max(1, work.group["spec"]["minMember"] + self._scene.rng.choice((-2, -1, 1, 2)))
        work.group = {**work.group, "spec": {**work.group["spec"], "minMember": quorum}}
        await self._scene.user.merge(POD_GROUP, found, {"spec": {"minMember": quorum}})
        return f"PodGroup {work.name} wants {quorum} members now"

    async def _drop_group(self, work: Work) -> None:
        found = self._scene.store.get(POD_GROUP, work.namespace, work.name)
        if found is not None:
            await self._scene.user.delete(POD_GROUP, found)

    async def budget(self) -> str:
        """Creates a budget for a work, or deletes one."""
        budgets = self._scene.store.list(DISRUPTION_BUDGET)
        if budgets and self._scene.rng.random() < 0.5:
            await self._scene.user.delete(DISRUPTION_BUDGET, budgets[0])
            return f"budget {name(budgets[0])} is deleted"
        work = self._scene.any_of([work for work in self._scene.works.there.values() if work.crew is not None])
        if (
            work is None
            or work.crew is None
            or self._scene.store.get(DISRUPTION_BUDGET, work.namespace, work.name) is not None
        ):
            return "nothing to have a budget for"
        limits = ({"maxUnavailable": 1}, {"minAvailable": "50%"}, {"minAvailable": work.crew.size})
        limit = self._scene.rng.choice(limits)
        key = GANG if work.is_gang and work.group is None and self._scene.rng.random() < 0.5 else CREW_LABEL
        spec = {"selector": {"matchLabels": {key: work.name}}, **limit}
        await self._scene.user.create(
            DISRUPTION_BUDGET, {"metadata": {"name": work.name, "namespace": work.namespace}, "spec": spec}
        )
        return f"budget for {work.name}: {limit}"


GROUP_DEFINITION: Json = {
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a simulation's"},
    },
    "spec": {
        "group": POD_GROUP.group,
        "scope": "Namespaced",
        "names": {"kind": POD_GROUP.name, "plural": POD_GROUP.plural, "singular": "podgroup"},
        "versions": [
            {
                "name": POD_GROUP.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
