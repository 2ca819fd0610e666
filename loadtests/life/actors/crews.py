"""Crews: plays the controllers that the embedded cluster lacks; each keeps its number of pods.

A ReplicaSet gives each pod a new name. A StatefulSet makes one pod after the other, under fixed names. A DaemonSet has
one pod on each node, cordoned or not. A TrainingJob re-creates failed members under their names until it gives up, and
deletes everything some time after the end. Only DaemonSets exist on the embedded cluster; a ConfigMap replaces each
other one as the owner, so that garbage collection works. If a namespace's quota is used up, it tries pods again later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import CONFIG_MAP, DAEMON_SET, NODE, POD, Json, Kind
from loadtests.life.seeing import CREW_LABEL, annotation, is_running, name, uid
from loadtests.shared.reading import is_leaving, is_over

REPLICAS, STATEFUL, DAEMONS, TRAINING = "ReplicaSet", "StatefulSet", "DaemonSet", "TrainingJob"
_SOON, _AGAIN, _LATER, _AFTER_FAILURE = 0.02, 1.0, 15.0, 10.0
"""`_AGAIN`: seconds until a successor; at 0 two schedulers could preempt each other for ever."""


@dataclass
class Crew:
    """`make`: the pod of an index. `failures`: how many pods may fail before the crew gives up."""

    kind: str
    namespace: str
    name: str
    size: int
    make: Callable[[int], Json]
    failures: int = 6
    linger: float = 600.0
    """Seconds that a training job's finished pods stay after its end."""
    uid: str = ""
    made: int = 0
    ended: bool = False
    busy: bool = False
    succeeded: set[str] = field(default_factory=set)
    """Names of a training job's succeeded pods, which are not made again."""

    @property
    def stored_as(self) -> Kind:
        """The kind of the owner object; a ConfigMap for kinds that the cluster does not serve."""
        return DAEMON_SET if self.kind == DAEMONS else CONFIG_MAP

    @property
    def object(self) -> str:
        """The name of the owner object."""
        return self.name if self.kind == DAEMONS else f"{self.kind.lower()}-{self.name}"

    def template(self, index: int) -> Json:
        """The body of one more pod."""
        fixed = self.kind in (STATEFUL, TRAINING)
        pod = self.make(index)
        metadata = pod["metadata"]
        metadata["namespace"] = self.namespace
        metadata["name"] = f"{self.name}-{index}" if fixed else f"{self.name}-{self.made}"
        metadata["labels"] = {**metadata["labels"], CREW_LABEL: self.name}
        reference = {"apiVersion": "apps/v1", "kind": self.kind, "name": self.name, "uid": self.uid}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
        self.made += 1
        return pod


class Crews(Controller):
    kinds = (POD, NODE)

    def __init__(self, *given: Any, quotas: Mapping[str, int]) -> None:
        """`quotas`: how many unfinished pods a namespace may have."""
        super().__init__(*given)
        self._quotas = quotas
        self.by_uid: dict[str, Crew] = {}
        self._pods: dict[str, dict[str, Json]] = {}

    async def add(self, crew: Crew) -> None:
        body: Json = {"metadata": {"name": crew.object, "namespace": crew.namespace}}
        if crew.kind == DAEMONS:
            labels = {CREW_LABEL: crew.name}
            everywhere = {"containers": [{"name": "main", "image": "none"}], "tolerations": [{"operator": "Exists"}]}
            template = {"metadata": {"labels": labels}, "spec": everywhere}
            body["spec"] = {"selector": {"matchLabels": labels}, "template": template}
        await self.create(crew.stored_as, body)
        found = self._store.get(crew.stored_as, crew.namespace, crew.object)
        if found is None:
            return
        crew.uid = uid(found)
        self.by_uid[crew.uid] = crew
        self.sync_soon(crew)

    async def end(self, crew: Crew) -> None:
        """Deletes the crew's object; its pods are deleted after it."""
        self.by_uid.pop(crew.uid, None)
        crew.ended = True
        self.never(crew.uid)
        found = self._store.get(crew.stored_as, crew.namespace, crew.object)
        if found is not None:
            await self.delete(crew.stored_as, found, propagation="Background")

    def pods(self, crew: Crew) -> list[Json]:
        return list(self._pods.get(crew.uid, {}).values())

    def hear(self, change: Change) -> None:
        if change.kind is NODE:
            if change.type != "MODIFIED":
                for crew in self.by_uid.values():
                    if crew.kind == DAEMONS:
                        self.sync_soon(crew)
            return
        pod = change.object
        for reference in pod["metadata"].get("ownerReferences") or ():
            crew_pods = self._pods.setdefault(reference["uid"], {})
            if change.type == "DELETED":
                crew_pods.pop(uid(pod), None)
            else:
                crew_pods[uid(pod)] = pod
            if not crew_pods:
                del self._pods[reference["uid"]]
            if reference["uid"] in self.by_uid:
                goes = change.type == "DELETED" or is_leaving(pod) or is_over(pod)
                self.sync_soon(self.by_uid[reference["uid"]], _AGAIN if goes else _SOON)

    def sync_soon(self, crew: Crew, seconds: float = _SOON) -> None:
        if not crew.ended:
            self.later(crew.uid, seconds, lambda: self._sync(crew))

    async def _sync(self, crew: Crew) -> None:
        if crew.ended:
            return
        if crew.busy:
            self.sync_soon(crew)
            return
        crew.busy = True
        try:
            match crew.kind:
                case "DaemonSet":
                    await self._sync_daemons(crew)
                case "ReplicaSet":
                    await self._sync_replicas(crew)
                case "StatefulSet":
                    await self._sync_named(crew, in_order=True)
                case _:
                    await self._sync_training(crew)
        finally:
            crew.busy = False

    async def _sync_daemons(self, crew: Crew) -> None:
        nodes = [name(node) for node in self._store.list(NODE)]
        there: dict[str, Json] = {}
        for pod in self.pods(crew):
            on = annotation(pod, "life/node")
            if is_over(pod) or on not in nodes:
                if not is_leaving(pod):
                    await self.delete(POD, pod)
            else:
                there[on] = pod
        for number, node in enumerate(nodes):
            if node not in there:
                pod = crew.template(number)
                pod["metadata"]["annotations"]["life/node"] = node
                term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
                pod["spec"]["affinity"] = {"nodeAffinity": required}
                pod["spec"]["tolerations"] = [{"operator": "Exists"}]
                await self._make(crew, pod)

    async def _sync_replicas(self, crew: Crew) -> None:
        living = [pod for pod in self.pods(crew) if not is_over(pod) and not is_leaving(pod)]
        for pod in [pod for pod in self.pods(crew) if is_over(pod) and not is_leaving(pod)]:
            await self.delete(POD, pod)
        # Pods that are not running go first.
        for pod in sorted(living, key=is_running)[: max(0, len(living) - crew.size)]:
            await self.delete(POD, pod)
        for _ in range(crew.size - len(living)):
            if not await self._make(crew, crew.template(crew.made)):
                return

    async def _sync_named(self, crew: Crew, *, in_order: bool) -> None:
        there = {name(pod): pod for pod in self.pods(crew)}
        wanted = [f"{crew.name}-{index}" for index in range(crew.size)]
        for surplus in [pod for pod in there.values() if name(pod) not in wanted and not is_leaving(pod)]:
            await self.delete(POD, surplus)
        for index, pod_name in enumerate(wanted):
            found = there.get(pod_name)
            if found is None and pod_name not in crew.succeeded:
                if not await self._make(crew, crew.template(index)):
                    return
                if in_order:
                    return
            elif found is not None and is_over(found) and not is_leaving(found) and pod_name not in crew.succeeded:
                await self.delete(POD, found)
            elif in_order and (found is None or not is_running(found) or is_leaving(found)):
                return

    async def _sync_training(self, crew: Crew) -> None:
        pods = self.pods(crew)
        for pod in pods:
            if pod["status"].get("phase") == "Succeeded" and not is_leaving(pod):
                crew.succeeded.add(name(pod))
            elif pod["status"].get("phase") == "Failed" and not is_leaving(pod):
                crew.failures -= 1
                if crew.failures < 0:
                    await self.end(crew)
                    return
                await self.delete(POD, pod)
                self.sync_soon(crew, _AFTER_FAILURE)
        if len(crew.succeeded) >= crew.size:
            crew.ended = True
            self.later(crew.uid, crew.linger, lambda: self.end(crew))
            return
        await self._sync_named(crew, in_order=False)

    async def _make(self, crew: Crew, pod: Json) -> bool:
        most = self._quotas.get(crew.namespace)
        if most is not None and sum(not is_over(each) for each in self._store.list(POD, crew.namespace)) >= most:
            self.sync_soon(crew, _LATER)
            return False
        if self._store.get(POD, crew.namespace, pod["metadata"]["name"]) is None:
            await self.create(POD, pod)
        return True
