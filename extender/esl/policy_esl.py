"""What every policy for applications is made of: it says what a task asks for, and what nodes should have.

    ask(task) --> PodRequirement, for the application to launch its task with
    events   --> View --> capacities(): what nodes should have --> effects, where they do not

A policy is a class with two methods: `requires`, the ephemeral resources that a task asks for, and `capacities`, those
that each node should have in view of what is known now. The base compares that with what nodes say, and has the
difference set. So a policy cannot forget to clean up; a node that comes is furnished, and so is one whose kubelet has
reset its resources; and after a restart everything is as before as soon as pods and nodes have been seen, for what a
task is stands in its pod's labels.

Its keys are `<domain>/<namespace>.<policy>--<suffix>`, and whatever nodes have of these it takes for its own.
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
from extender.esl.gang_spec import APPLICATION_DOMAIN, Approach
from extender.esl.offers import Offers
from extender.esl.resource_sync import ResourceSync, Wanted, units_of
from extender.esl.view import Place, View
from extender.kube.names import InvalidName, NodeName, ResourceKey, require_label
from extender.kube.quantities import Vector

UNLIMITED = 1_000_000
"""Units of a resource that marks a node and limits nobody."""

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Task:
    """What the application asks for: a pod that is not there yet. `name` and `group` are label values."""

    name: str
    group: str = ""
    """Whom it belongs together with, if the policy is about groups."""
    needs: Vector = field(default_factory=dict)
    """What its pod asks for beside, in units: cpu in thousandths."""
    node_labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Its pod's node selector."""


def kinds(tasks: Iterable[Task]) -> list[list[Task]]:
    """The tasks, those together of which one goes where any of them does: of the same group, needs and labels."""
    found: dict[object, list[Task]] = {}
    for task in tasks:
        alike = task.group, frozenset(task.needs.items()), frozenset(task.node_labels.items())
        found.setdefault(alike, []).append(task)
    return list(found.values())


class PolicyEsl(ABC):
    """Implements `base.Esl`, and `ask`."""

    grace: float = 0.0
    """Seconds for which what a node had of a resource counts as `exposed` when it is gone."""
    patience: float = math.inf
    """Seconds after which what nobody has taken, though somebody waits for it, counts as offered in vain."""

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "default",
        domain: str = APPLICATION_DOMAIN,
        scheduler: str = Approach.EXTENDED_RESOURCES.value,
    ) -> None:
        """`name` is a DNS label without `--`, and no other policy's of the namespace. Raises InvalidName."""
        require_label("namespace", namespace)
        require_label("name", name)
        if "--" in name:
            raise InvalidName("name", name, "has '--', which ends the policy's name in its resources; use one '-'")
        self.name, self.namespace, self.domain, self.scheduler = name, namespace, domain, scheduler
        self.label = f"esl.{DOMAIN}/{name}"
        """Its value on a pod: of which task of this policy it is."""
        self.group_label = f"group.{DOMAIN}/{name}"
        self.view = View(domain, namespace)
        self.tasks: dict[str, Task] = {}
        """Those that were asked for and are not over: a task is over when its pod has finished, or was bound and is
        gone, or `release` says so; one that nobody has asked for in this life, when its pod is gone. None is while
        another pod of it is there, made again by its controller."""
        self._adopted: set[str] = set()
        """Those of them that are known by their pods alone."""
        self._pods: dict[str, set[str]] = {}
        """By task, the names of its pods that have not finished."""
        self.offers = Offers(self.grace, self.patience)
        self._prefix = f"{domain}/{namespace}.{name}--"
        self._furnishing = ResourceSync(self.view, self.owns)
        self._now = 0.0
        self._over = False

    # -- what a policy says --------------------------------------------------------------------------------------

    @abstractmethod
    def requires(self, task: Task) -> Vector:
        """Which units of the policy's resources the task's pod is to ask for. The task is among `tasks` already.
        Asking changes nothing."""

    @abstractmethod
    def capacities(self, now: float) -> Wanted:
        """What nodes should have, in view of `view` and `tasks`."""

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        """What is to be done beside that; the view has taken the event. None: a task was asked for or released, or
        all begins."""
        return []

    def possible_nodes(self, task: Task) -> Collection[NodeName] | None:
        """Where alone the task's pod could ever have what it asks of this policy, with the nodes there are, whatever
        tasks may come and go; None: there is no saying."""
        return None

    def due(self) -> float | None:
        """When `decide` and `capacities` have something new to say, though nothing should happen before."""
        return None

    def policies(self) -> list[PolicyEsl]:
        """Itself, and those that it is made of: all whose resources it may have set."""
        return [self]

    # -- for the application ---------------------------------------------------------------------------------------

    def key(self, suffix: str) -> ResourceKey:
        """One of the policy's resources. Raises InvalidName, with limit and length where it is too long."""
        return ephemeral_name(self.namespace, f"{self.name}--{suffix}").key(self.domain)

    def owns(self, resource: ResourceKey) -> bool:
        """Whether it is one of the policy's resources, by its name."""
        return resource.startswith(self._prefix)

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """The requirement for the task's pod, and what is to be done. Asking again for the same changes nothing.

        Raises InvalidName as `would_require`.
        """
        return self.would_require(task), self.take([task], now)

    def take(self, tasks: Iterable[Task], now: float) -> list[Effect]:
        """These are asked for: as `ask` of each in turn, but what nodes should have is looked at once. Of each
        `would_require` has said what its pod has to say."""
        for task in tasks:
            self.tasks[task.name] = task
            self._adopted.discard(task.name)
        return self._effects(None, now)

    def would_require(self, task: Task) -> PodRequirement:
        """What `ask` would answer. Nothing has changed.

        Raises InvalidName where its name or group is no label, or makes a resource's name too long.
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
        """What the task's pod has to say."""
        labels = {self.label: task.name, **({self.group_label: task.group} if task.group else {})}
        resources = {str(key): str(units) for key, units in self.requires(task).items() if units}
        return PodRequirement(resources, labels, scheduler_name=self.scheduler)

    def release(self, task: str, now: float) -> list[Effect]:
        """It is not wanted any more; nothing if it is not known."""
        return self.release_all([task], now)

    def release_all(self, tasks: Iterable[str], now: float) -> list[Effect]:
        """These are not wanted any more: as `take`, what nodes should have is looked at once."""
        for task in tasks:
            self.tasks.pop(task, None)
        return self._effects(None, now)

    # -- for policies ------------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[Task]:
        """The group's tasks that are not over, by name."""
        return sorted((task for task in self.tasks.values() if task.group == group), key=lambda task: task.name)

    def placed(self) -> dict[str, NodeName]:
        """The nodes of the tasks whose pods are bound to a node that is there, and have not finished."""
        return {pod.labels[self.label]: pod.node for pod in self.view.running(self.label) if pod.node is not None}

    def suits(self, node: NodeName, task: Task) -> bool:
        """Whether the task's pod could go there now, for all that is known."""
        labels = self.view.nodes[node].labels if node in self.view.nodes else {}
        return self.view.fits(node, task.needs) and all(
            labels.get(key) == value for key, value in task.node_labels.items()
        )

    def nowhere_else(self, node: NodeName, resource: ResourceKey, units: int = UNLIMITED) -> Wanted:
        """The node has it, but not before all others can be known to have it no more: whoever asks for it and is bound
        here, nobody else is bound elsewhere meanwhile."""
        others = self.offers.exposing(resource) - {node}
        return {node: {resource: units}} if not others or self.offers.exposed(node, resource) else {}

    def at_most(self, node: NodeName, resource: ResourceKey) -> int:
        """What the node may have of it by now: what it has said, or what is under way, whichever is more."""
        return self._furnishing.at_most((node, resource))

    def furnished(self) -> Iterator[tuple[NodeName, str]]:
        """Nodes that have one of the policy's resources, or may have it by now, and the suffix of its key."""
        for node, resource in sorted(self._furnishing.places()):
            if self.at_most(node, resource):
                yield node, resource.removeprefix(self._prefix)

    def refuses(self, node: NodeName) -> bool:
        """Whether the node cannot have one of the policy's resources, as far as was tried."""
        return self._furnishing.refuses(node)

    def waiting(self) -> list[Pod]:
        """The pods of its tasks that are there and wait for a node, by name."""
        pods = (pod for pod in self.view.alive(self.label) if pod.node is None and not pod.deleting)
        return sorted(pods, key=lambda pod: (pod.namespace, pod.name))

    def will_have(self, node: NodeName, resource: ResourceKey) -> int:
        """Units of one of the policy's resources, when what is under way has arrived."""
        return self._furnishing.will_have((node, resource))

    # -- Esl -------------------------------------------------------------------------------------------------------

    def begin(self, there: Iterable[Event], now: float) -> list[Effect]:
        """All that there is when the application begins is known, and only then is anything decided: who decides by
        the first half of what there is takes the nodes of the second for lost."""
        for event in there:
            self._learn(event, now)
        self._furnishing.forget_fights()
        return self._effects(None, now)

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [*self._learn(event, now), *self._effects(event, now)]

    def handle_all(self, events: Iterable[Event], now: float) -> list[Effect]:
        """As `handle` of each in turn; but what nodes should have is compared with what they have only once, for the
        answers of a thousand nodes may come together."""
        if type(self).handle is not PolicyEsl.handle:
            # Who passes on what it is told is told it one by one.
            return [effect for event in events for effect in self.handle(event, now)]
        effects: list[Effect] = []
        told: set[Place] = set()
        for event in events:
            if isinstance(event, CapacityConfirmed | CapacitySeen):
                if (event.node, event.resource) in told:
                    # What it had in between might have been taken.
                    self._note_offers(now)
                    told.clear()
                told.add((event.node, event.resource))
            effects += self._learn(event, now)
            effects += [] if self._over else self.decide(event, now)
        self._note_offers(now)
        return [*effects, *self._furnish(now)]

    def end(self, now: float) -> list[Effect]:
        """It decides nothing more, and what nodes have of its resources goes; pods that run are left alone."""
        self._over = True
        self._furnishing.forget_all_trouble()
        return self._effects(None, now)

    @property
    def ended(self) -> bool:
        """`end` was called, and no node has any of its resources, but where they cannot be removed."""
        return self._over and self._furnishing.all_gone

    def _learn(self, event: Event, now: float) -> list[Effect]:
        before: Pod | None = None
        match event:
            case PodSeen(Pod(namespace=namespace, name=name)) | PodGone(namespace, name):
                before = self.view.pods.get((namespace, name))
        self._furnishing.heed(event, now)
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
        """What nodes should have and do not is under way."""
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
        """What the pod says of its task is known, be it from a life before."""
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
                # Somebody else has put our label on it: no answer of ours said so.
                del self.tasks[task]
            else:
                self._adopted.add(task)

    def _forget_pod(self, pod: Pod) -> None:
        """It is gone, or looks otherwise."""
        task = pod.labels.get(self.label, "")
        if (names := self._pods.get(task)) is not None:
            names.discard(pod.name)
            if not names:
                del self._pods[task]

    def _is_over(self, task: str) -> None:
        """A pod of it has ended."""
        if task not in self._pods:
            self.tasks.pop(task, None)
            self._adopted.discard(task)
