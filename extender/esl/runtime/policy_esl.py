"""The base of policies for applications: what a task asks for, and what nodes should have.

    ask(task) --> PodRequirement, for the application to launch its task with
    events   --> View --> capacities(): what nodes should have --> effects, where they do not

A policy is a class with two methods. `requires` gives the ephemeral resources that a task asks for; `capacities` gives
the resources that each node should have, as known now. The base compares that with what nodes have, and writes the
difference. So a policy cannot forget to clean up. A new node is furnished, as is one whose kubelet reset its resources.
After a restart, the state is restored once pods and nodes have been seen: a pod's labels describe its task.

Its keys are `<domain>/<namespace>.<policy>--<suffix>`; the policy treats all such keys on nodes as its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from extender.core.cluster import Pod
from extender.core.names import DOMAIN, ephemeral_name
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    Effect,
    EffectRefused,
    Event,
    Notice,
    PodGone,
    PodRequirement,
    PodSeen,
    RemoveCapacity,
    SetCapacity,
)
from extender.esl.gangs.gang_spec import APPLICATION_DOMAIN, Approach
from extender.esl.runtime.offers import Offers
from extender.esl.runtime.resource_sync import ResourceSync, Wanted, units_of
from extender.esl.runtime.view import Place, View
from extender.kube.names import InvalidName, NodeName, ResourceKey, require_label
from extender.kube.quantities import Vector

UNLIMITED = 1_000_000
"""Units of a resource that marks a node and limits no task."""

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Task:
    """A pod that the application asks for, not yet created; `name`, `group` are label values."""

    name: str
    group: str = ""
    """The group of tasks that belong together, if the policy is about groups."""
    needs: Vector = field(default_factory=dict)
    """What its pod asks for besides, in units: cpu in thousandths."""
    node_labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Its pod's node selector."""


def kinds(tasks: Iterable[Task]) -> list[list[Task]]:
    """The tasks by kind: tasks of equal group, needs and labels fit the same nodes."""
    found: dict[object, list[Task]] = {}
    for task in tasks:
        alike = task.group, frozenset(task.needs.items()), frozenset(task.node_labels.items())
        found.setdefault(alike, []).append(task)
    return list(found.values())


class PolicyEsl(ABC):
    """Implements `base.Esl`, and `ask`."""

    grace: float = 0.0
    """Seconds for which units that a node has lost still count as `exposed`."""
    patience: float = math.inf
    """Seconds after which units that no waiting pod took count as offered without effect."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "default",
        domain: str = APPLICATION_DOMAIN,
        scheduler: str = Approach.EXTENDED_RESOURCES.value,
    ) -> None:
        """`name`: a DNS label without `--`, unique in the namespace. Raises InvalidName."""
        require_label("namespace", namespace)
        require_label("name", name)
        if "--" in name:
            raise InvalidName("name", name, "has '--', which ends the policy's name in resource keys; use one '-'")
        self.name, self.namespace, self.domain, self.scheduler = name, namespace, domain, scheduler
        self.label = f"esl.{DOMAIN}/{name}"
        """Its value on a pod: the name of the pod's task."""
        self.group_label = f"group.{DOMAIN}/{name}"
        self.view = View(domain, namespace)
        self.tasks: dict[str, Task] = {}
        """A task is over when its pod has finished, or was bound and is gone, or at `release`.

        A task not asked for in this process is over when its pod is gone. No task is over while it has another pod,
        recreated by its controller."""
        self._adopted: set[str] = set()
        """The tasks that are known only by their pods."""
        self._pods: dict[str, set[str]] = {}
        """By task, the names of its pods that have not finished."""
        self.offers = Offers(self.grace, self.patience)
        self._prefix = f"{domain}/{namespace}.{name}--"
        self._furnishing = ResourceSync(self.view, self.owns)
        self._now = 0.0
        self._over = False

    # -- methods of a policy -------------------------------------------------------------------------------------

    @abstractmethod
    def requires(self, task: Task) -> Vector:
        """The policy's units that the task's pod asks for; the task is in `tasks`. Pure."""

    @abstractmethod
    def capacities(self, now: float) -> Wanted:
        """What nodes should have, given `view` and `tasks`."""

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        """Other effects, after the view has the event; None: `begin`, `ask` or `release`."""
        return []

    def possible_nodes(self, task: Task) -> Collection[NodeName] | None:
        """The only existing nodes that could ever satisfy this policy; None: unknown.

        Other tasks, which come and go, do not count."""
        return None

    def due(self) -> float | None:
        """When `decide` or `capacities` will change though nothing happens before."""
        return None

    def policies(self) -> list[PolicyEsl]:
        """Itself and its parts: all policies whose resources it may have set."""
        return [self]

    # -- for the application ---------------------------------------------------------------------------------------

    def key(self, suffix: str) -> ResourceKey:
        """One of the policy's resources. Raises InvalidName, with limit and length if too long."""
        return ephemeral_name(self.namespace, f"{self.name}--{suffix}").key(self.domain)

    def owns(self, resource: ResourceKey) -> bool:
        """Whether it is one of the policy's resources, by its name."""
        return resource.startswith(self._prefix)

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """The requirement for the task's pod, and the effects. Idempotent.

        Raises InvalidName as `would_require`.
        """
        return self.would_require(task), self.take([task], now)

    def take(self, tasks: Iterable[Task], now: float) -> list[Effect]:
        """As `ask` of each in turn, but node resources are compared only once.

        `would_require` has given the requirement of each."""
        for task in tasks:
            self.tasks[task.name] = task
            self._adopted.discard(task.name)
        return self._effects(None, now)

    def would_require(self, task: Task) -> PodRequirement:
        """What `ask` would answer, without a change.

        Raises InvalidName if its name or group is no label, or makes a resource's name too long.
        """
        require_label("task", task.name)
        if task.group:
            require_label("group", task.group)
        known = self.tasks.get(task.name)
        self.tasks[task.name] = task
        try:
            return self.requirement(task)
        finally:
            if known is None:
                del self.tasks[task.name]
            else:
                self.tasks[task.name] = known

    def requirement(self, task: Task) -> PodRequirement:
        """What the task's pod has to carry."""
        labels = {self.label: task.name, **({self.group_label: task.group} if task.group else {})}
        resources = {str(key): str(units) for key, units in self.requires(task).items() if units}
        return PodRequirement(resources, labels, scheduler_name=self.scheduler)

    def release(self, task: str, now: float) -> list[Effect]:
        """The task is not wanted any more; no effect if it is not known."""
        return self.release_all([task], now)

    def release_all(self, tasks: Iterable[str], now: float) -> list[Effect]:
        """These tasks are not wanted any more; as in `take`, node resources are compared once."""
        for task in tasks:
            self.tasks.pop(task, None)
        return self._effects(None, now)

    # -- for policies ------------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[Task]:
        """The group's tasks that are not over, by name."""
        return sorted((task for task in self.tasks.values() if task.group == group), key=lambda task: task.name)

    def placed(self) -> dict[str, NodeName]:
        """By task, the existing node of its pod that is bound and has not finished."""
        return {pod.labels[self.label]: pod.node for pod in self.view.running(self.label) if pod.node is not None}

    def suits(self, node: NodeName, task: Task) -> bool:
        """Whether the task's pod could go there now, as far as is known."""
        labels = self.view.nodes[node].labels if node in self.view.nodes else {}
        return self.view.fits(node, task.needs) and all(
            labels.get(key) == value for key, value in task.node_labels.items()
        )

    def nowhere_else(self, node: NodeName, resource: ResourceKey, units: int = UNLIMITED) -> Wanted:
        """Gives the node the units once no other can still have any, or if it already has some.

        So while a pod is bound here, no other pod is bound elsewhere."""
        others = self.offers.exposing(resource) - {node}
        return {node: {resource: units}} if not others or self.offers.exposed(node, resource) else {}

    def at_most(self, node: NodeName, resource: ResourceKey) -> int:
        """The most that the node may have of it: what it has confirmed, or what is under way."""
        return self._furnishing.at_most((node, resource))

    def furnished(self) -> Iterator[tuple[NodeName, str]]:
        """Nodes that have, or may have, the policy's resources, and each key's suffix."""
        for node, resource in sorted(self._furnishing.places()):
            if self.at_most(node, resource):
                yield node, resource.removeprefix(self._prefix)

    def refuses(self, node: NodeName) -> bool:
        """Whether a write of one of the policy's resources to the node was refused."""
        return self._furnishing.refuses(node)

    def waiting(self) -> list[Pod]:
        """The existing pods of its tasks that wait for a node, by name."""
        pods = (pod for pod in self.view.alive(self.label) if pod.node is None and not pod.deleting)
        return sorted(pods, key=lambda pod: (pod.namespace, pod.name))

    def will_have(self, node: NodeName, resource: ResourceKey) -> int:
        """Units of one of the policy's resources, when what is under way has arrived."""
        return self._furnishing.will_have((node, resource))

    # -- Esl -------------------------------------------------------------------------------------------------------

    def begin(self, there: Iterable[Event], now: float) -> list[Effect]:
        """Takes in all that exists at the start, then decides: no listed node is taken for lost."""
        for event in there:
            self._learn(event, now)
        self._furnishing.forget_fights()
        return self._effects(None, now)

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [*self._learn(event, now), *self._effects(event, now)]

    def handle_all(self, events: Iterable[Event], now: float) -> list[Effect]:
        """As `handle` of each in turn, but nodes' many answers lead to a single comparison."""
        if type(self).handle is not PolicyEsl.handle:
            # A policy that passes events on must get them one by one.
            return [effect for event in events for effect in self.handle(event, now)]
        effects: list[Effect] = []
        told: set[Place] = set()
        for event in events:
            if isinstance(event, CapacityConfirmed | CapacitySeen):
                if (event.node, event.resource) in told:
                    # What the node had in between might have been taken.
                    self._note_offers(now)
                    told.clear()
                told.add((event.node, event.resource))
            effects += self._learn(event, now)
            effects += [] if self._over else self.decide(event, now)
        self._note_offers(now)
        return [*effects, *self._furnish(now)]

    def end(self, now: float) -> list[Effect]:
        """Decides nothing more and removes its resources from nodes; running pods stay."""
        self._over = True
        self._furnishing.forget_all_trouble()
        return self._effects(None, now)

    @property
    def ended(self) -> bool:
        """`end` was called, and no node has its resources, except where removal was refused."""
        return self._over and self._furnishing.all_gone

    def _learn(self, event: Event, now: float) -> list[Effect]:
        before: Pod | None = None
        match event:
            case PodSeen(Pod(namespace=namespace, name=name)) | PodGone(namespace, name):
                before = self.view.pods.get((namespace, name))
        self._furnishing.on_event(event, now)
        self.view.take(event)
        if before is not None and before.namespace == self.namespace:
            self._forget_pod(before)
        match event:
            case PodSeen(pod):
                self._adopt(pod)
            case PodGone() if before is not None and before.namespace == self.namespace:
                task = before.labels.get(self.label, "")
                if before.node is not None or task in self._adopted:
                    self._is_over(task)
            case EffectRefused(SetCapacity() | RemoveCapacity() as change, why) if self.owns(change.resource):
                cannot = f"node {change.node} cannot have {change.resource}={units_of(change)}: {why}"
                return [Notice(self.name, "", cannot)]
        return []

    def next_deadline(self) -> float | None:
        known = (self._furnishing.due(), self.due(), self.offers.due())
        return min((due for due in known if due is not None), default=None)

    # -- what nodes should have --------------------------------------------------------------------------------------

    def _effects(self, event: Event | None, now: float) -> list[Effect]:
        self._note_offers(now)
        return [*([] if self._over else self.decide(event, now)), *self._furnish(now)]

    def _furnish(self, now: float) -> list[SetCapacity | RemoveCapacity]:
        """The changes from what nodes have to what they should have, which are then under way."""
        self._now = now
        return self._furnishing.difference({} if self._over else self.capacities(now), now)

    def _note_offers(self, now: float) -> None:
        places = list(self._furnishing.places())
        idle: list[Place] = []
        if self.patience < math.inf:
            asked = {key for pod in self.view.alive(self.label) if pod.node is None for key in pod.requests}
            idle = [place for place in places if place[1] in asked and self.view.left(*place) > 0]
        self.offers.note({place: self._furnishing.at_most(place) for place in places}, idle, now)

    def _adopt(self, pod: Pod) -> None:
        """Takes in what the pod says of its task, also a pod of a former process."""
        task = pod.labels.get(self.label)
        if task is None or pod.namespace != self.namespace:
            return
        if pod.finished:
            self._is_over(task)
            return
        self._pods.setdefault(task, set()).add(pod.name)
        if task not in self.tasks:
            mine = {
                resource: units for resource, units in pod.requests.items() if not resource.startswith(self._prefix)
            }
            self.tasks[task] = Task(task, pod.labels.get(self.group_label, ""), mine, pod.node_selector)
            try:
                self.requires(self.tasks[task])
            except InvalidName:
                # Another writer has put the label on it: no answer of this policy did.
                del self.tasks[task]
            else:
                self._adopted.add(task)

    def _forget_pod(self, pod: Pod) -> None:
        """The pod is gone, or has changed."""
        task = pod.labels.get(self.label, "")
        if (names := self._pods.get(task)) is not None:
            names.discard(pod.name)
            if not names:
                del self._pods[task]

    def _is_over(self, task: str) -> None:
        """A pod of the task has ended; without another pod, the task is over."""
        if task not in self._pods:
            self.tasks.pop(task, None)
            self._adopted.discard(task)
