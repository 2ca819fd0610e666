"""A cluster in memory with a plain scheduler, on which one policy for applications works, in virtual time.

All that may happen next is an action, and who plays chooses which: effects arrive late and in any order but that of
their lane, and so does news. What must never be in any such world is checked after every action; what a policy
promises beside that, its own tests check.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from extender.core.cluster import Node, Pod
from extender.core.names import in_domain
from extender.esl.base import (
    CancelTask,
    CapacityConfirmed,
    CapacitySeen,
    Effect,
    EffectRefused,
    Event,
    LaunchTask,
    NodeGone,
    NodeSeen,
    Notice,
    PodGone,
    PodRequirement,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    StopTask,
    TimePassed,
    lane_of,
)
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector, count

MILLI = 1000


def nodes(cpus: Mapping[str, int], **labels: Mapping[str, str]) -> list[Node]:
    """Nodes of so many CPUs; `labels` by node, `_` standing for `-`."""
    of_node = {name.replace("_", "-"): said for name, said in labels.items()}
    return [Node(NodeName(name), {CPU: cpu * MILLI}, labels=of_node.get(name, {})) for name, cpu in cpus.items()]


class PolicyWorld:
    """`seed`: of the scheduler's choice among the nodes that have room, and of `settle`'s among actions. `apart`: news
    of pods and news of nodes come by two ways, and either may be later."""

    def __init__(self, esl: PolicyEsl, there: list[Node], *, seed: int = 0, apart: bool = False) -> None:
        self.esl = esl
        self.now = 100.0
        self.nodes: dict[NodeName, Node] = {}
        self.units: dict[tuple[NodeName, ResourceKey], int] = {}
        self.pods: dict[str, Pod] = {}
        self.notices: list[Notice] = []
        self.bound: list[tuple[str, NodeName]] = []
        """Every binding that there ever was, in order."""
        self.refuse: Callable[[Effect], str] = lambda effect: ""
        """Why the API server does not do it; empty: it does."""
        self.dice = random.Random(seed)
        self.templates: dict[str, tuple[Vector, Mapping[str, str]]] = {}
        """By task: what the application makes its pod from, where it is the policy that launches it."""
        self._lanes: dict[str, deque[Effect]] = {}
        self._apart = apart
        self.at_one_sitting = False
        """Whether all news that is there may be told at once."""
        self._news: dict[str, deque[Event]] = {}
        self._unseen: dict[NodeName, Vector] = {}
        self._serial = 0
        for node in there:
            self.add_node(node)

    # -- the application -------------------------------------------------------------------------------------------

    def ask(self, name: str, group: str = "", **more: Vector | Mapping[str, str]) -> PodRequirement:
        """The task is asked for; nothing is launched, unless by the policy."""
        self.templates[name] = more.get("needs", {}), more.get("node_labels", {})  # type: ignore[assignment]
        requirement, effects = self.esl.ask(Task(name, group, **more), self.now)  # type: ignore[arg-type]
        self.perform(effects)
        return requirement

    def launch(self, name: str, group: str = "", cpu: int = 1, **more: Mapping[str, str]) -> Pod:
        """The task is asked for, and its pod is created with what the answer says."""
        needs = {CPU: cpu * MILLI}
        return self.create(name, self.ask(name, group, needs=needs, **more), needs, more.get("node_labels"))

    def create(
        self,
        name: str,
        requirement: PodRequirement | None = None,
        needs: Vector | None = None,
        node_labels: Mapping[str, str] | None = None,
        *,
        namespace: str = "",
    ) -> Pod:
        """The pod is there, and waits. Of those of another `namespace` the policy is never told."""
        self._serial += 1
        said = requirement or PodRequirement({})
        asked = {ResourceKey(key): count(key, quantity) for key, quantity in said.resources.items()}
        pod = Pod(
            PodUid(f"u{self._serial}"),
            namespace or self.esl.namespace,
            name,
            {**(needs or {}), **asked},
            labels=said.labels,
            node_selector=node_labels or {},
        )
        self._store(pod)
        return pod

    def release(self, task: str) -> None:
        self.perform(self.esl.release(task, self.now))

    def bind(self, name: str, node: str) -> None:
        """Somebody has bound it there, whatever there is."""
        self._bind(self.pods[name], NodeName(node))

    def finish(self, name: str, *, succeeded: bool = True) -> None:
        self._store(replace(self.pods[name], finished=True, succeeded=succeeded))

    def delete(self, name: str) -> None:
        pod = self.pods.pop(name)
        if pod.namespace == self.esl.namespace:
            self._tell(PodGone(pod.namespace, name))

    def restart(self, esl: PolicyEsl) -> None:
        """The application has died with all that it had not done yet; another begins, and is told what there is."""
        self.esl = esl
        self._lanes.clear()
        self._news.clear()
        nodes_seen = [NodeSeen(node) for node in self.nodes.values()]
        capacities_seen = [CapacitySeen(name, key, units) for (name, key), units in self.units.items()]
        pods_seen = [PodSeen(pod) for pod in self.pods.values() if pod.namespace == esl.namespace]
        self.perform(esl.begin([*pods_seen, *capacities_seen, *nodes_seen], self.now))

    # -- the cluster -------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._tell(NodeSeen(node))

    def cordon(self, name: str, on: bool = True) -> None:
        self.add_node(replace(self.nodes[NodeName(name)], unschedulable=on))

    def lose_node(self, name: str) -> None:
        """The node is gone for good, and its pods with it."""
        lost = self.nodes.pop(NodeName(name))
        for place in [place for place in self.units if place[0] == lost.name]:
            del self.units[place]
        self._tell(NodeGone(lost.name))
        for pod in [pod for pod in self.pods.values() if pod.node == lost.name]:
            self.delete(pod.name)

    def occupy_unseen(self, node: NodeName, units: Vector) -> None:
        """So much of it is used by pods that the application is not told of."""
        self._unseen[node] = units

    def reset_node(self, name: str) -> None:
        """Its kubelet has forgotten its ephemeral resources."""
        for node, key in [place for place in self.units if place[0] == name]:
            del self.units[node, key]
            self._tell(CapacitySeen(node, key, 0))

    def left(self, node: NodeName, resource: ResourceKey) -> int:
        ephemeral = in_domain(resource, self.esl.domain)
        has = self.units.get((node, resource), 0) if ephemeral else self.nodes[node].allocatable.get(resource, 0)
        has -= self._unseen.get(node, {}).get(resource, 0)
        return has - sum(pod.requests.get(resource, 0) for pod in self.running(node))

    def running(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node == node and not pod.finished]

    def where(self, *names: str) -> list[str | None]:
        """The nodes of these pods; None for one that waits."""
        return [self.pods[name].node for name in names]

    def capacity(self, suffix: str) -> dict[str, int]:
        """What nodes have of one of the policy's resources."""
        key = self.esl.key(suffix)
        return {node: units for (node, resource), units in self.units.items() if resource == key}

    # -- what happens ------------------------------------------------------------------------------------------------

    def actions(self) -> list[Callable[[], None]]:
        """All that may happen next, in an order that is the same for the same world."""
        return list(self._actions())

    def settle(self, most: int = 10_000) -> None:
        """Actions are taken in an order of the seed's until none is left, without time passing."""
        for _ in range(most):
            actions = self.actions()
            if not actions:
                return
            self.dice.choice(actions)()
        raise AssertionError(f"it never comes to rest: {self._lanes}, {self.units}")

    def schedule(self) -> None:
        """Each pod that waits and has room is bound, before anything else happens."""
        for pod in list(self.pods.values()):
            if pod.node is None and (room := self._room(pod)):
                self._bind(pod, self.dice.choice(room))

    def pass_time(self, seconds: float) -> None:
        """All is settled at each deadline of the policy's on the way, and then."""
        end = self.now + seconds
        self.settle()
        while (due := self.esl.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.perform(self.esl.handle(TimePassed(), self.now))
            self.settle()
        self.now = end

    def _actions(self) -> Iterator[Callable[[], None]]:
        for lane in sorted(self._lanes):
            yield lambda lane=lane: self._carry_out(lane)  # type: ignore[misc]
        for way in sorted(self._news):
            yield lambda way=way: self._read(way)  # type: ignore[misc]
        if self.at_one_sitting and sum(map(len, self._news.values())) > 1:
            yield self.hear
        for pod in self.pods.values():
            if pod.node is None and (room := self._room(pod)):
                yield lambda pod=pod, room=room: self._bind(pod, self.dice.choice(room))  # type: ignore[misc]

    def _room(self, pod: Pod) -> list[NodeName]:
        return [
            name
            for name, node in sorted(self.nodes.items())
            if not node.unschedulable
            and all(node.labels.get(key) == value for key, value in pod.node_selector.items())
            and all(units <= self.left(name, resource) for resource, units in pod.requests.items())
        ]

    def _bind(self, pod: Pod, node: NodeName) -> None:
        self.bound.append((pod.name, node))
        self._store(replace(pod, node=node))

    def _store(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        if pod.namespace == self.esl.namespace:
            self._tell(PodSeen(pod))

    def _tell(self, event: Event) -> None:
        way = "pods" if self._apart and isinstance(event, PodSeen | PodGone) else "nodes"
        self._news.setdefault(way, deque()).append(event)

    def _read(self, way: str) -> None:
        event = self._news[way].popleft()
        if not self._news[way]:
            del self._news[way]
        self.perform(self.esl.handle(event, self.now))

    def hear(self) -> None:
        """All news that is there is read at one sitting."""
        news = [event for way in sorted(self._news) for event in self._news[way]]
        self._news.clear()
        self.perform(self.esl.handle_all(news, self.now))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Notice):
                self.notices.append(effect)
            elif not isinstance(effect, Report):
                self._lanes.setdefault(lane_of(effect), deque()).append(effect)

    def _carry_out(self, lane: str) -> None:
        effect = self._lanes[lane].popleft()
        if not self._lanes[lane]:
            del self._lanes[lane]
        if why := self.refuse(effect):
            self._tell(EffectRefused(effect, why))
            return
        match effect:
            case SetCapacity(node, resource, units):
                assert units > 0, "a key is removed, and never set to 0"
                if node in self.nodes:
                    self.units[node, resource] = units
                self._tell(CapacityConfirmed(node, resource, units if node in self.nodes else 0))
            case RemoveCapacity(node, resource):
                self.units.pop((node, resource), None)
                self._tell(CapacityConfirmed(node, resource, 0))
            case LaunchTask(_, name, task, requirement):
                if name not in self.pods:
                    self.create(name, requirement, *self.templates.get(task, ({}, {})))
                elif not requirement.labels.items() <= self.pods[name].labels.items():
                    self._tell(EffectRefused(effect, "another pod has that name"))
            case CancelTask(namespace, name, uid):
                pod = self.pods.get(name)
                if pod is None or pod.uid != uid:
                    self._tell(PodGone(namespace, name)) if pod is None else None
                elif pod.node is not None:
                    self._tell(EffectRefused(effect, "the pod is bound"))
                else:
                    self.delete(name)
            case StopTask(_, name, uid):
                if name in self.pods and self.pods[name].uid == uid:
                    self.delete(name)
            case _:
                raise AssertionError(f"no policy does that: {effect}")
