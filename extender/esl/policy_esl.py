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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from extender.core.back_off import doubled
from extender.core.cluster import Pod
from extender.core.names import DOMAIN, ephemeral_name
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    Effect,
    EffectRefused,
    Event,
    NodeGone,
    NodeSeen,
    Notice,
    PodGone,
    PodRequirement,
    PodSeen,
    RemoveCapacity,
    SetCapacity,
)
from extender.esl.gang_spec import APPLICATION_DOMAIN, Approach
from extender.esl.view import Place, View
from extender.kube.names import InvalidName, NodeName, ResourceKey, require_label
from extender.kube.quantities import Vector

UNLIMITED = 1_000_000
"""Units of a resource that marks a node and limits nobody."""

Wanted = Mapping[NodeName, Mapping[ResourceKey, int]]
"""What each node should have of the policy's own resources; what is left out, it should not have."""

_NONE: Mapping[str, str] = MappingProxyType({})
_AGAIN_SECONDS, _LONGEST_SECONDS = 1.0, 60.0


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


class PolicyEsl(ABC):
    """Implements `base.Esl`, and `ask`."""

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
        self.view = View(domain)
        self.tasks: dict[str, Task] = {}
        """Those that were asked for and are not over: a task is over when its pod has finished, or was bound and is
        gone, or `release` says so."""
        self._prefix = f"{domain}/{namespace}.{name}--"
        self._under_way: dict[Place, int] = {}
        self._refused: dict[Place, int] = {}
        self._fights: dict[Place, tuple[int, float]] = {}
        """Where somebody else has changed what we had set: how often, and until when we leave it alone."""
        self._now = 0.0

    # -- what a policy says --------------------------------------------------------------------------------------

    @abstractmethod
    def requires(self, task: Task) -> Vector:
        """Which units of the policy's resources the task's pod is to ask for. The task is among `tasks` already."""

    @abstractmethod
    def capacities(self, now: float) -> Wanted:
        """What nodes should have, in view of `view` and `tasks`."""

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        """What is to be done beside that; the view has taken the event. None: a task was asked for or released."""
        return []

    def due(self) -> float | None:
        """When `decide` and `capacities` have something new to say, though nothing should happen before."""
        return None

    # -- for the application ---------------------------------------------------------------------------------------

    def key(self, suffix: str) -> ResourceKey:
        """One of the policy's resources. Raises InvalidName, with limit and length where it is too long."""
        return ephemeral_name(self.namespace, f"{self.name}--{suffix}").key(self.domain)

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        """The requirement for the task's pod, and what is to be done. Asking again for the same changes nothing.

        Raises InvalidName where its name or group is no label.
        """
        require_label("task", task.name)
        if task.group:
            require_label("group", task.group)
        self.tasks[task.name] = task
        requirement = self.requirement(task)
        return requirement, self._effects(None, now)

    def requirement(self, task: Task) -> PodRequirement:
        """What the task's pod has to say."""
        labels = {self.label: task.name, **({self.group_label: task.group} if task.group else {})}
        resources = {str(key): str(units) for key, units in self.requires(task).items() if units}
        return PodRequirement(resources, labels, scheduler_name=self.scheduler)

    def release(self, task: str, now: float) -> list[Effect]:
        """It is not wanted any more; nothing if it is not known."""
        self.tasks.pop(task, None)
        return self._effects(None, now)

    # -- Esl -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        before = self.view.pods.get((event.namespace, event.name)) if isinstance(event, PodGone) else None
        contested = isinstance(event, CapacitySeen) and self._is_contested(event)
        self.view.take(event)
        match event:
            case PodSeen(pod):
                self._adopt(pod)
            case PodGone() if before is not None and before.node is not None:
                self.tasks.pop(before.labels.get(self.label, ""), None)
            case CapacityConfirmed(node, resource, units):
                if self._under_way.get((node, resource)) == units:
                    del self._under_way[node, resource]
            case CapacitySeen(node, resource):
                if contested:
                    times, _ = self._fights.get((node, resource), (0, 0.0))
                    self._fights[node, resource] = times + 1, now + doubled(_AGAIN_SECONDS, times, _LONGEST_SECONDS)
            case NodeSeen(node):
                self._forget_refusals(node.name)
            case NodeGone(name):
                self._forget_refusals(name)
                for place in [place for place in self._under_way if place[0] == name]:
                    del self._under_way[place]
            case EffectRefused(SetCapacity() | RemoveCapacity() as change, why):
                return [*self._heed_refusal(change, why), *self._effects(event, now)]
        return self._effects(event, now)

    def next_deadline(self) -> float | None:
        known = [until for _, until in self._fights.values() if until > self._now]
        if (due := self.due()) is not None:
            known.append(due)
        return min(known, default=None)

    # -- what nodes should have --------------------------------------------------------------------------------------

    def _effects(self, event: Event | None, now: float) -> list[Effect]:
        self._now = now
        self._fights = {place: fight for place, fight in self._fights.items() if now < fight[1] + _LONGEST_SECONDS}
        effects = self.decide(event, now)
        wanted = {
            (node, resource): units
            for node, of_node in self.capacities(now).items()
            if node in self.view.nodes
            for resource, units in of_node.items()
            if units > 0
        }
        mine = [place for place in self.view.units if place[1].startswith(self._prefix)]
        for node, resource in sorted({*wanted, *mine, *self._under_way}):
            place = (node, resource)
            units = wanted.get(place, 0)
            if units == self._under_way.get(place, self.view.units.get(place, 0)):
                continue
            if now < self._fights.get(place, (0, now))[1] or self._refused.get(place) == units:
                continue
            self._under_way[place] = units
            effects.append(SetCapacity(node, resource, units) if units else RemoveCapacity(node, resource))
        return effects

    def _is_contested(self, event: CapacitySeen) -> bool:
        """Whether what it says is neither what was known, nor what we are about to have set."""
        place = (event.node, event.resource)
        return (
            event.resource.startswith(self._prefix)
            and event.node in self.view.nodes
            and place not in self._under_way
            and event.units != self.view.units.get(place, 0)
        )

    def _heed_refusal(self, change: SetCapacity | RemoveCapacity, why: str) -> list[Effect]:
        place = (change.node, change.resource)
        units = change.units if isinstance(change, SetCapacity) else 0
        if self._under_way.get(place) == units:
            del self._under_way[place]
        self._refused[place] = units
        return [Notice(self.name, "", f"node {change.node} cannot have {change.resource}={units}: {why}")]

    def _forget_refusals(self, node: NodeName) -> None:
        for place in [place for place in self._refused if place[0] == node]:
            del self._refused[place]

    def _adopt(self, pod: Pod) -> None:
        """What the pod says of its task is known, be it from a life before."""
        task = pod.labels.get(self.label)
        if task is None:
            return
        if pod.finished:
            self.tasks.pop(task, None)
        elif task not in self.tasks:
            mine = {
                resource: units for resource, units in pod.requests.items() if not resource.startswith(self._prefix)
            }
            self.tasks[task] = Task(task, pod.labels.get(self.group_label, ""), mine, pod.node_selector)
