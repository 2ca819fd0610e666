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
from collections.abc import Collection, Iterable, Mapping
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
from extender.esl.offers import Offers
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
        gone, or `release` says so; one that nobody has asked for in this life, when its pod is gone."""
        self._adopted: set[str] = set()
        """Those of them that are known by their pods alone."""
        self.offers = Offers(self.grace, self.patience)
        self._prefix = f"{domain}/{namespace}.{name}--"
        self._under_way: dict[Place, int] = {}
        self._refused: dict[Place, int] = {}
        self._fights: dict[Place, tuple[int, float]] = {}
        """Where somebody else has changed what we had set: how often, and until when we leave it alone."""
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
        requirement = self.would_require(task)
        self.tasks[task.name] = task
        self._adopted.discard(task.name)
        return requirement, self._effects(None, now)

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

    def will_have(self, node: NodeName, resource: ResourceKey) -> int:
        """Units of one of the policy's resources, when what is under way has arrived."""
        return self._under_way.get((node, resource), self.view.units.get((node, resource), 0))

    # -- Esl -------------------------------------------------------------------------------------------------------

    def begin(self, there: Iterable[Event], now: float) -> list[Effect]:
        """All that there is when the application begins is known, and only then is anything decided: who decides by
        the first half of what there is takes the nodes of the second for lost."""
        for event in there:
            self._learn(event, now)
        self._fights.clear()
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
        self._refused.clear()
        self._fights.clear()
        return self._effects(None, now)

    @property
    def ended(self) -> bool:
        """`end` was called, and no node has any of its resources, but where they cannot be removed."""
        return self._over and not self._under_way and all(place in self._refused for place in self._mine())

    def _learn(self, event: Event, now: float) -> list[Effect]:
        before = self.view.pods.get((event.namespace, event.name)) if isinstance(event, PodGone) else None
        contested = isinstance(event, CapacitySeen) and self._is_contested(event)
        self.view.take(event)
        match event:
            case PodSeen(pod):
                self._adopt(pod)
            case PodGone() if before is not None and before.namespace == self.namespace:
                task = before.labels.get(self.label, "")
                if before.node is not None or task in self._adopted:
                    self.tasks.pop(task, None)
                    self._adopted.discard(task)
            case CapacityConfirmed(node, resource):
                self._under_way.pop((node, resource), None)
            case CapacitySeen(node, resource):
                if contested:
                    times, _ = self._fights.get((node, resource), (0, 0.0))
                    self._fights[node, resource] = times + 1, now + doubled(_AGAIN_SECONDS, times, _LONGEST_SECONDS)
            case NodeSeen(node):
                self._forget_refusals(node.name)
            case NodeGone(name):
                # What is under way stays so until it is answered: the node may be there again when it arrives.
                self._forget_refusals(name)
            case EffectRefused(SetCapacity() | RemoveCapacity() as change, why):
                if self.owns(change.resource):
                    return self._heed_refusal(change, why)
        return []

    def next_deadline(self) -> float | None:
        known = [until for _, until in self._fights.values() if until > self._now]
        if (due := self.due()) is not None:
            known.append(due)
        if (due := self.offers.due()) is not None:
            known.append(due)
        return min(known, default=None)

    # -- what nodes should have --------------------------------------------------------------------------------------

    def _effects(self, event: Event | None, now: float) -> list[Effect]:
        self._note_offers(now)
        return [*([] if self._over else self.decide(event, now)), *self._furnish(now)]

    def _furnish(self, now: float) -> list[Effect]:
        """What nodes should have and do not is under way."""
        self._now = now
        self._fights = {place: fight for place, fight in self._fights.items() if now < fight[1] + _LONGEST_SECONDS}
        effects: list[Effect] = []
        wanted = {
            (node, resource): units
            for node, of_node in ({} if self._over else self.capacities(now)).items()
            if node in self.view.nodes
            for resource, units in of_node.items()
            if units > 0
        }
        for node, resource in sorted({*wanted, *self._mine(), *self._under_way}):
            place = (node, resource)
            units = wanted.get(place, 0)
            # One at a time: what a node is told in a hurry may be answered once for all, and who then counts answers
            # does not know what it still may have.
            if place in self._under_way or units == self.view.units.get(place, 0):
                continue
            if now < self._fights.get(place, (0, now))[1] or self._refused.get(place) == units:
                continue
            self._under_way[place] = units
            effects.append(SetCapacity(node, resource, units) if units else RemoveCapacity(node, resource))
        return effects

    def _mine(self) -> list[Place]:
        """Where nodes have any of the policy's resources."""
        return [place for place in self.view.units if self.owns(place[1])]

    def _note_offers(self, now: float) -> None:
        places = {place for place in {*self.view.units, *self._under_way} if self.owns(place[1])}
        offered = {place: max(self.view.units.get(place, 0), self._under_way.get(place, 0)) for place in places}
        idle: list[Place] = []
        if self.patience < math.inf:
            asked = {key for pod in self.view.alive(self.label) if pod.node is None for key in pod.requests}
            idle = [place for place in places if place[1] in asked and self.view.left(*place) > 0]
        self.offers.note(offered, idle, now)

    def _is_contested(self, event: CapacitySeen) -> bool:
        """Whether what it says is neither what was known, nor what we are about to have set."""
        place = (event.node, event.resource)
        return (
            self.owns(event.resource)
            and event.node in self.view.nodes
            and place not in self._under_way
            and event.units != self.view.units.get(place, 0)
        )

    def _heed_refusal(self, change: SetCapacity | RemoveCapacity, why: str) -> list[Effect]:
        place = (change.node, change.resource)
        units = change.units if isinstance(change, SetCapacity) else 0
        self._under_way.pop(place, None)
        self._refused[place] = units
        return [Notice(self.name, "", f"node {change.node} cannot have {change.resource}={units}: {why}")]

    def _forget_refusals(self, node: NodeName) -> None:
        for place in [place for place in self._refused if place[0] == node]:
            del self._refused[place]

    def _adopt(self, pod: Pod) -> None:
        """What the pod says of its task is known, be it from a life before."""
        task = pod.labels.get(self.label)
        if task is None or pod.namespace != self.namespace:
            return
        if pod.finished:
            self.tasks.pop(task, None)
            self._adopted.discard(task)
        elif task not in self.tasks:
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
