"""A cluster in memory with a plain scheduler, on which several gang ESLs work at once, in virtual time.

Everything that may happen next is an action; who plays chooses which. Each ESL's effects wait in lanes, as the driver
keeps them, and what it has not been told yet waits in its inbox: so effects are late, and so is news. What must never
be is checked against the cluster itself, after every action.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from extender.core.cluster import Pod
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    News,
    Notice,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    TimePassed,
    lane_of,
)
from extender.esl.gangs.departed import left_behind
from extender.esl.gangs.gang_spec import GangSpec
from extender.esl.gangs.gang_turns import GangEsl
from extender.esl.gangs.ghost_manifest import ghost_manifest
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from extender.kube.quantities import count

MILLI = 1000


@dataclass
class Application:
    """One ESL, what it wants done and has not been done yet, and what it has not been told yet."""

    esl: GangEsl
    lanes: dict[str, deque[Effect]] = field(default_factory=dict)
    inbox: deque[Event] = field(default_factory=deque)
    reports: list[Report] = field(default_factory=list)
    before: dict[str, GangSpec] = field(default_factory=dict)
    """Gangs whose members are created as soon as they are reserved."""
    instance: str = ""
    dead: frozenset[str] = frozenset()
    """Instances that were before, of which it will find out."""
    knows: bool = True

    def news(self, gang: str) -> list[News]:
        return [report.news for report in self.reports if report.subject.name == gang]


class SimulatedCluster:
    def __init__(self, cpus: dict[str, int], *applications: GangEsl) -> None:
        self.now = 100.0
        self.cpus = {NodeName(name): cpu * MILLI for name, cpu in cpus.items()}
        self.pods: dict[str, Pod] = {}
        self.keys: dict[NodeName, dict[ResourceKey, int]] = {node: {} for node in self.cpus}
        self.applications = [Application(esl) for esl in applications]
        self.specs: list[GangSpec] = []
        self.ever: Counter[str] = Counter()
        """How often a member of each gang has been bound."""
        self.order: list[tuple[str, str]] = []
        """(gang, exported or withdrawn), as the nodes show it."""
        self.refuse: Callable[[Effect], bool] = lambda effect: False
        self.strangers_strike = self.struck = False
        self.strangers_delete = True
        self.finishing = True
        self.keys_vanish = False
        self._serial = 0
        self._known_keys: dict[int, tuple[GangSpec, frozenset[ResourceKey]]] = {}

    # -- what applications and people do -------------------------------------------------------------------------

    def ask(self, number: int, spec: GangSpec, *, members_beforehand: bool) -> None:
        application = self.applications[number]
        self.specs.append(spec)
        if members_beforehand:
            self.launch(spec)
        else:
            application.before[spec.gang.name] = spec
        self._perform(application, application.esl.start(spec, self.now))
        for pod in self.pods.values():
            application.inbox.append(PodSeen(pod))

    def launch(self, spec: GangSpec) -> None:
        tail = f"-{spec.run}" if spec.run else ""
        for bundle in range(spec.size):
            self.create(f"{spec.gang.name}-{bundle}{tail}", {spec.key(bundle): 1})

    def kill(self, number: int, esl: GangEsl, instance: str, dice: random.Random) -> None:
        """The application dies, and another one is started. What it had just sent may have arrived or not."""
        killed = self.applications[number]
        for lane in list(killed.lanes):
            if dice.random() < 0.5:
                self._carry_out(killed, lane)
        born = Application(esl, instance=instance, dead=killed.dead | {killed.instance}, knows=False)
        born.inbox.extend(PodSeen(pod) for pod in self.pods.values())
        self.applications[number] = born

    def _find_the_dead(self, application: Application) -> None:
        """Their leases have run out. It knows the cluster as it is, as whoever has followed it for 15 s."""
        application.knows = True
        while application.inbox:
            self._perform(application, application.esl.handle(application.inbox.popleft(), self.now))
        for left in left_behind("default", list(self.pods.values()), self.keys, application.dead):
            self._perform(application, application.esl.inherit(left, self.now))

    def cancel(self, number: int, spec: GangSpec) -> None:
        application = self.applications[number]
        self._perform(application, application.esl.cancel(spec.gang, self.now))

    def create(self, name: str, requests: dict[ResourceKey, int], labels: dict[str, str] | None = None) -> None:
        self._serial += 1
        self._store(Pod(PodUid(f"u{self._serial}"), "default", name, requests, labels=labels or {}))

    def finish(self, name: str) -> None:
        self._store(replace(self.pods[name], finished=True, succeeded=True))

    def delete(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None:
            self._tell_all(PodGone(pod.namespace, name))

    # -- the world -----------------------------------------------------------------------------------------------

    def play(self, dice: random.Random, *, until: Callable[[], bool], most: int = 20_000) -> None:
        """Actions are taken in any order until it holds; time passes only when nothing else can happen."""
        for _ in range(most):
            self.check()
            if until():
                return
            actions = list(self._actions())
            if actions:
                dice.choice(actions)()
            else:
                self._pass_time()
        raise AssertionError(f"it did not happen in {most} steps: {self.reports()}")

    def let_time_pass(self, seconds: float) -> None:
        """Later; whoever has a deadline by then is told."""
        self.now += seconds
        for application in self.applications:
            due = application.esl.next_deadline()
            if due is not None and due <= self.now:
                application.inbox.append(TimePassed())

    def reports(self) -> list[list[Report]]:
        return [application.reports for application in self.applications]

    def quiet(self) -> bool:
        """Nothing is under way; with time, something may be again."""
        return not any(True for _ in self._actions())

    def _pass_time(self) -> None:
        deadlines = [due for each in self.applications if (due := each.esl.next_deadline()) is not None]
        assert deadlines, f"nothing will ever happen again: {self.reports()}"
        self.let_time_pass(max(0.0, min(deadlines) - self.now))

    def _actions(self) -> Iterator[Callable[[], object]]:
        for application in self.applications:
            for lane in application.lanes:
                yield lambda a=application, n=lane: self._carry_out(a, n)  # type: ignore[misc]
            if not application.knows:
                yield lambda a=application: self._find_the_dead(a)  # type: ignore[misc]
            if application.inbox:
                yield lambda a=application: self._perform(a, a.esl.handle(a.inbox.popleft(), self.now))  # type: ignore[misc]
        if self.keys_vanish:
            for node in [node for node, keys in self.keys.items() if keys]:
                yield lambda n=node: self._wipe(n)  # type: ignore[misc]
        for pod in list(self.pods.values()):
            if pod.node is None:
                for node in self.cpus:
                    if self._fits(pod, node):
                        yield lambda p=pod, n=node: self._bind(p, n)  # type: ignore[misc]
            elif self.finishing and not pod.finished and self._gang_of(pod) is not None:
                yield lambda p=pod: self.finish(p.name)  # type: ignore[misc]
            if self.strangers_strike and "-ghost-" in pod.name:
                yield lambda p=pod: self.strike(p.name)  # type: ignore[misc]

    def _wipe(self, node: NodeName) -> None:
        """A kubelet that has forgotten them; once is enough."""
        self.keys_vanish = False
        for key in list(self.keys[node]):
            del self.keys[node][key]
            self._tell_all(CapacitySeen(node, key, 0))

    def strike(self, ghost: str) -> None:
        """Somebody else deletes a ghost, or it fails; once is enough."""
        self.strangers_strike = False
        self.struck = True
        if self.strangers_delete:
            self.delete(ghost)
        else:
            self._store(replace(self.pods[ghost], finished=True))

    def _fits(self, pod: Pod, node: NodeName) -> bool:
        return all(units <= self.free(node, resource) for resource, units in pod.requests.items())

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        has = self.cpus[node] if resource == CPU else self.keys[node].get(resource, 0)
        return has - sum(pod.requests.get(resource, 0) for pod in self._running(node))

    def _running(self, node: NodeName) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.node == node and not pod.finished)

    def _bind(self, pod: Pod, node: NodeName) -> None:
        self._store(replace(pod, node=node))
        gang = self._gang_of(pod)
        if gang is not None:
            self.ever[gang.gang.name] += 1

    def _store(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self._tell_all(PodSeen(pod))

    def _tell_all(self, event: Event) -> None:
        for application in self.applications:
            application.inbox.append(event)

    def _perform(self, application: Application, effects: list[Effect]) -> None:
        for effect in effects:
            assert not isinstance(effect, Notice)
            if not isinstance(effect, Report):
                application.lanes.setdefault(lane_of(effect), deque()).append(effect)
                continue
            application.reports.append(effect)
            if effect.news is News.RESERVED and effect.subject.name in application.before:
                self.launch(application.before.pop(effect.subject.name))

    def _carry_out(self, application: Application, lane: str) -> None:
        effect = application.lanes[lane].popleft()
        if not application.lanes[lane]:
            del application.lanes[lane]
        if self.refuse(effect):
            application.inbox.append(EffectRefused(effect, "no"))
            return
        match effect:
            case CreateGhost(ghost):
                spec = next(each for each in self.specs if each.gang.name == ghost.group)
                assert ghost.requests == spec.bundles[0]
                labels = ghost_manifest(ghost, instance=application.instance)["metadata"]["labels"]
                self.create(ghost.name, {ResourceKey(r): count(r, q) for r, q in ghost.requests.items()}, labels)
            case EvictMember(_, name, _):
                self.delete(name)
            case DeleteGhost(namespace, name, _):
                if name in self.pods:
                    self.delete(name)
                else:
                    application.inbox.append(PodGone(namespace, name))
            case SetCapacity(node, resource, units):
                self._note(resource, "exported", before=self._anywhere(resource))
                self.keys[node][resource] = units
                application.inbox.append(CapacityConfirmed(node, resource, units))
            case RemoveCapacity(node, resource):
                self.keys[node].pop(resource, None)
                self._note(resource, "withdrawn", before=self._anywhere(resource))
                application.inbox.append(CapacityConfirmed(node, resource, 0))

    def _anywhere(self, resource: ResourceKey) -> bool:
        gang = self._owner(resource)
        return any(self._owner(key) is gang for keys in self.keys.values() for key in keys)

    def _note(self, resource: ResourceKey, what: str, *, before: bool) -> None:
        if not before:
            self.order.append((self._owner(resource).gang.name, what))

    def _owner(self, resource: ResourceKey) -> GangSpec:
        return next(spec for spec in self.specs if resource in self._keys_of(spec))

    def _keys_of(self, spec: GangSpec) -> frozenset[ResourceKey]:
        """All of them. Specs do not change; what is kept with its keys is the very same that was asked about."""
        known = self._known_keys.get(id(spec))
        if known is None:
            known = spec, frozenset(spec.key(bundle) for bundle in range(spec.size))
            self._known_keys[id(spec)] = known
        return known[1]

    def _gang_of(self, pod: Pod) -> GangSpec | None:
        return next((self._owner(r) for r in pod.requests if r != CPU), None)

    # -- what must never be --------------------------------------------------------------------------------------

    def ghosts(self, spec: GangSpec) -> list[Pod]:
        return [pod for name, pod in self.pods.items() if name.startswith(f"{spec.gang.name}-ghost-{spec.run}")]

    def exported(self, spec: GangSpec) -> dict[NodeName, dict[ResourceKey, int]]:
        mine = self._keys_of(spec)
        found = {node: {k: u for k, u in keys.items() if k in mine} for node, keys in self.keys.items()}
        return {node: keys for node, keys in found.items() if keys}

    def nothing_left(self, spec: GangSpec) -> bool:
        return not self.ghosts(spec) and not self.exported(spec)

    def check(self) -> None:
        for node, keys in self.keys.items():
            assert 0 not in keys.values(), f"{node} has a key with 0 units"
            assert self.free(node, CPU) >= 0
        for spec in self.specs:
            bound = [pod for pod in self.ghosts(spec) if pod.node is not None]
            placed: Counter[NodeName] = Counter(pod.node for pod in bound if pod.node is not None)
            for node, held in self.exported(spec).items():
                assert sum(held.values()) <= placed[node], f"{node} offers more of {spec.gang} than ghosts hold"
            if not self.ever[spec.gang.name] and self.exported(spec) and not self._ending(spec):
                assert len(bound) == spec.size, "resources appear before all ghosts are bound"
            running = Counter(
                pod.node for pod in self.pods.values()
                if pod.node is not None and not pod.finished and self._gang_of(pod) is spec
            )  # fmt: skip
            for running_on, members in running.items():
                assert members <= placed[running_on], f"members on {running_on} run on room that is not held"

    def _ending(self, spec: GangSpec) -> bool:
        return any(each.esl.phase(spec.gang).value == "ending" for each in self.applications)
