"""ESL host: runs ESL policies of applications in the service, on its state, through its writes.

    async with application.hosting.space([apart], namespace="team-a") as space:
        requirement = await space.ask(apart, Task("web-1", group="web"))

The policies are the same as in applications. Instead of node status they change EphemeralResource objects, one for each
of their keys, with all of its nodes. A write is durable first, then in the ledger, then on the nodes, like any other.
So no application needs rights on node status, and no policy has to handle a kubelet that forgets. Such a policy is of
the service's own domain, and its pods have a scheduler that calls Escher. The service creates and deletes no pods for
applications: a policy that launches its tasks itself is refused that here.

A policy gets the pods of its own namespace, and the nodes of its scheduling domain. It still knows a node that leaves
the domain later, because what it has there stays. Hosted EscherPolicies (`mark`) outlive the process. What they set
names its owner, and an object of such a name that another owner has set is left alone. What is refused to them is tried
again as long as they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Self

import structlog

from extender.app.cache.cache import Cache
from extender.app.contracts.errors import BeingDeleted, ManagementError, NotYet
from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import Sink
from extender.app.escher_policies.esl_nodes import NodesTold
from extender.app.objects.retry import until_answered
from extender.app.resources.capacity import Capacities
from extender.app.resources.set_resource import Resources
from extender.app.resources.set_resource_plan import taken
from extender.core.cluster import Node, Pod
from extender.core.common.backoff import BackOff
from extender.core.names import EphemeralName
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
    RemoveCapacity,
    SetCapacity,
    StopTask,
    TaskChange,
)
from extender.esl.runtime.facts import Nodes, PodFacts
from extender.esl.runtime.policy_asks import PolicyAsks, Tell
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.policy_loop import Pace, PolicyLoop
from extender.esl.runtime.resource_sync import units_of
from extender.esl.runtime.several import Several
from extender.kube.errors import Refused, Unavailable, rights_may_come
from extender.kube.names import NodeName, PodUid, ResourceKey

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_TRY_AGAIN_SECONDS = 30.0
_NO_PODS = "Escher does not create or delete pods of applications: run this policy in the application"


class EslHost:
    """All spaces that run in the service."""

    def __init__(self, cache: Cache, resources: Resources, known: Callable[[], Awaitable[object]]) -> None:
        """`known`: waits until everything has been listed once."""
        self.cache = cache
        self.resources = resources
        self.known = known
        self.spaces: list[HostedPolicies] = []
        self.pace = Pace()
        self.told = Nodes({cache.ledger.capacity.domain}, self._node_seen, self._node_gone)
        """Nodes as policies know them: compared once for all policies."""
        self.finished: dict[PodUid, Pod] = {}
        """Finished task pods that still exist; the `Cache` does not keep them."""
        self.listed: list[Pod] | None = None
        """All pods, while a list of them is taken in and the `Cache` knows only a part."""
        resources.known.listeners.append(self._hear)

    def space(
        self,
        policies: Sequence[PolicyEsl],
        *,
        namespace: str,
        keep: bool = False,
        end_within: float = 10.0,
        on_notice: Tell = lambda notice: None,
        mark: str = "",
    ) -> HostedPolicies:
        """Returns a space: its policies run from entering the block to leaving it.

        The rest is as in `Policies` of `adapters.kubernetes`. `mark`: the owner that identifies the objects that they
        set; empty: their names alone do. Raises ValueError as `Several`, and if a policy is not of the service's
        domain."""
        several, domain = Several(policies, namespace), self.cache.ledger.capacity.domain
        for policy in several.policies:
            if policy.domain != domain:
                raise ValueError(f"policy {policy.name!r} has domain {policy.domain!r}; here it must be {domain!r}")
        return HostedPolicies(self, several, namespace, keep, end_within, on_notice, mark)

    def nodes(self, first: Sink[Node]) -> Sink[Node]:
        """Returns a sink that passes nodes to `first`, then to these policies."""
        return NodesTold(first, self.told)

    def pods(self, first: Sink[Pod]) -> Sink[Pod]:
        """Returns a sink that passes pods to `first`, then to these policies."""
        return _PodsTold(first, self)

    def _node_seen(self, node: Node) -> None:
        for space in self.spaces:
            space.node_seen(node)

    def _node_gone(self, name: NodeName) -> None:
        for space in self.spaces:
            space.node_gone(name)

    def _hear(self, name: Identity) -> None:
        for space in self.spaces:
            if space.namespace == name.namespace:
                space.look_at(name)


class _PodsTold:
    def __init__(self, first: Sink[Pod], hosting: EslHost) -> None:
        self._first, self._hosting = first, hosting

    def replace(self, objects: Iterable[Pod]) -> Iterator[None]:
        present = self._hosting.listed = list(objects)
        yield from self._first.replace(present)
        self._hosting.listed = None
        self._hosting.finished = {pod.uid: pod for pod in present if _is_a_finished_task(pod)}
        for space in self._hosting.spaces:
            space.pods.replace([pod for pod in present if pod.namespace == space.namespace])

    def upsert(self, item: Pod) -> None:
        self._first.upsert(item)
        if _is_a_finished_task(item):
            self._hosting.finished[item.uid] = item
        for space in self._hosting.spaces:
            if space.namespace == item.namespace:
                space.pods.upsert(item)

    def remove(self, item: Pod) -> None:
        self._first.remove(item)
        self._hosting.finished.pop(item.uid, None)
        for space in self._hosting.spaces:
            if space.namespace == item.namespace:
                space.pods.remove(item)


def _is_a_finished_task(pod: Pod) -> bool:
    return pod.finished and any(label.startswith("esl.") for label in pod.labels)


class HostedPolicies(PolicyAsks):
    """Several policies of one namespace that run in the service."""

    def __init__(
        self,
        hosting: EslHost,
        policies: Several,
        namespace: str,
        keep: bool,
        end_within: float,
        on_notice: Tell,
        mark: str,
    ) -> None:
        super().__init__(policies, on_notice)
        self.namespace = namespace
        self.pods = PodFacts(self._tell)
        self._hosting = hosting
        self._resources = hosting.resources
        self._capacities: Capacities = hosting.resources.capacities
        self.mark = mark
        self.failed = asyncio.Event()
        """Set when these policies have stopped because of a defect."""
        self.trouble: dict[ResourceKey, str] = {}
        """Their resources that cannot be set now, and why."""
        self.others: dict[ResourceKey, str] = {}
        """Their resources that another owner has set, in words."""
        self._taking: dict[str, tuple[list[Task], asyncio.Task[list[Effect]]]] = {}
        """By policy, the tasks that it gets at its next turn, and the work that passes them."""
        self._again: set[ResourceKey] = set()
        """Keys with a retry to come: only one each, else each refusal would start a series."""
        self._logged: dict[ResourceKey, str] = {}
        self._keep = keep
        self._end_within = end_within
        self._work = PolicyLoop(policies, self._on_event, self._failed, hosting.pace)
        self._first: list[Event] | None = []
        """Events of the initial state, until all of them are passed."""
        self._seen: set[NodeName] = set()
        """Nodes that the policies know."""
        self._told: dict[ResourceKey, dict[NodeName, int]] = {}
        """What is in force of the policies' keys, as it was last passed to them."""
        self._waiting: dict[ResourceKey, dict[NodeName, int]] = {}
        """By key, the units to write: a key has one object, with one write at a time."""

    async def __aenter__(self) -> Self:
        """Passes the present state to the policies."""
        await self._hosting.known()
        self._work.begin()
        with await self._work.turn() as now:
            for node in self._hosting.told:
                self.node_seen(node)
            for entry in list(self._resources.known.entries()):
                if entry.item.name.namespace == self.namespace:
                    self.look_at(Identity(self.namespace, entry.item.name.name))
            known = (*self._hosting.finished.values(), *self._hosting.cache.pods.values())
            pods = known if self._hosting.listed is None else self._hosting.listed
            self.pods.replace([pod for pod in pods if pod.namespace == self.namespace])
            first, self._first = self._first or [], None
            self._hosting.spaces.append(self)
            self._work.perform(self._policies.begin(first, now))
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if not self._keep:
                self._work.perform(self._policies.end(self.now()))
                await self._work.until(lambda: self._policies.ended, self._end_within)
        except TimeoutError:
            names = [policy.name for policy in self._policies.policies]
            _log.error("resources of policies remain until a process runs these policies again", policies=names)
        finally:
            self._hosting.spaces.remove(self)
            await self._work.end()

    async def ask_together(self, policy: PolicyEsl, task: Task) -> list[Effect]:
        """Adds the task to the policy's next turn; returns what is under way for all tasks of it.

        However many requests there are, a turn costs one comparison, and all take at most a fifth of the loop. Raises
        NotYet if the space has ended. The policy's `would_require` has said what the task's pod must declare."""
        if policy.tasks.get(task.name) == task:
            return []
        taking = self._taking.get(policy.name)
        if taking is None:
            tasks: list[Task] = []
            taking = self._taking[policy.name] = tasks, asyncio.create_task(self._take(policy, tasks))
        taking[0].append(task)
        return await asyncio.shield(taking[1])

    async def _take(self, policy: PolicyEsl, tasks: list[Task]) -> list[Effect]:
        with await self._work.turn() as now:
            del self._taking[policy.name]
            if self.failed.is_set() or self not in self._hosting.spaces:
                raise NotYet("name", policy.name, f"policy {policy.name} restarts; ask again", retry_after=1)
            try:
                effects = policy.take(tasks, now)
                self.perform(effects)
            except Exception as error:
                self.fail(error)
                raise
        return effects

    def fail(self, error: BaseException) -> None:
        """Stops these policies because of a defect."""
        self._work.fail(error)

    def perform(self, effects: Iterable[Effect]) -> None:
        if self._work.failure is not None:
            raise self._work.failure
        self._work.perform(effects)

    def now(self) -> float:
        return self._work.now()

    # -- what happens --------------------------------------------------------------------------------------------

    def look_at(self, name: Identity) -> None:
        """Takes in an object of the namespace that has changed, or is gone."""
        resource = EphemeralName(name.namespace, name.name)
        key = self._capacities.key_of(resource)
        if not any(policy.owns(key) for policy in self._policies.policies):
            return
        entry = self._resources.known.get(name)
        is_theirs = entry is None or not self.mark or entry.item.policy == self.mark
        if entry is None or is_theirs:
            self.others.pop(key, None)
        else:
            self.others[key] = taken(entry.item)
        if entry is None and key in self.trouble:
            self._try_again(key)
        before, after = self._told.pop(key, {}), dict(self._capacities.in_force(resource)) if is_theirs else {}
        if after:
            self._told[key] = after
        for node in sorted(before.keys() | after.keys()):
            if before.get(node, 0) != after.get(node, 0) and node in self._hosting.cache.nodes:
                self._tell(CapacitySeen(node, key, after.get(node, 0)))

    def _tell(self, event: Event) -> None:
        (self._work.put if self._first is None else self._first.append)(event)

    def _sees(self, node: Node) -> bool:
        """Returns whether the policies get the node."""
        return self._hosting.cache.isolation.of(self.namespace).has_node(node.labels) or node.name in self._seen

    def node_seen(self, node: Node) -> None:
        if not self._sees(node):
            return
        self._seen.add(node.name)
        self._tell(NodeSeen(node))
        for key, units in self._keys_of(node.name):
            self._tell(CapacitySeen(node.name, key, units))

    def node_gone(self, name: NodeName) -> None:
        if name not in self._seen:
            return
        self._seen.discard(name)
        self._tell(NodeGone(name))
        for key, _ in self._keys_of(name):
            # A later node of that name has to begin with nothing.
            self._set(key, name, 0)

    def _keys_of(self, node: NodeName) -> list[tuple[ResourceKey, int]]:
        return [(key, units[node]) for key, units in self._told.items() if node in units]

    # -- what is done --------------------------------------------------------------------------------------------

    def _on_event(self, effect: Effect) -> None:
        match effect:
            case SetCapacity() | RemoveCapacity():
                self._set(effect.resource, effect.node, units_of(effect))
            case Notice():
                if not self.mark:
                    _log.warning("a policy notices", policy=effect.policy, task=effect.task, what=effect.text)
                self._take_notice(effect)
            case LaunchTask() | CancelTask() | StopTask():
                self._work.spawn(self._refuse(effect))

    async def _refuse(self, change: TaskChange) -> None:
        self._tell(EffectRefused(change, _NO_PODS))

    def _set(self, key: ResourceKey, node: NodeName, units: int) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting[node] = units
            return
        self._waiting[key] = {node: units}
        self._work.spawn(self._drain(key))

    async def _drain(self, key: ResourceKey) -> None:
        waiting = self._waiting[key]
        while waiting:
            back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
            await until_answered(lambda: self._write(key, waiting), back_off=back_off, what="policy resource", key=key)
        del self._waiting[key]

    async def _write(self, key: ResourceKey, waiting: dict[NodeName, int]) -> None:
        """Writes all that waits, and reports each result unless another value is wanted by then."""
        units = dict(waiting)
        name = EphemeralName(self.namespace, key.partition("/")[2].removeprefix(f"{self.namespace}."))
        why = ""
        refused: dict[NodeName, str] = {}
        try:
            with rights_may_come():
                refused = dict(await self._resources.spread(name, units, self.mark))
        except BeingDeleted as error:
            raise Unavailable(str(error)) from error
        except (ManagementError, Refused) as error:
            why = str(error)
        over = [node for node in units if waiting.get(node) == units[node]]
        for node in over:
            del waiting[node]
        self._note_trouble(key, why or next(iter(refused.values()), ""))
        for node in over:
            if why or node in refused:
                change = SetCapacity(node, key, units[node]) if units[node] else RemoveCapacity(node, key)
                self._tell(EffectRefused(change, why or refused[node]))
            else:
                self._tell(CapacityConfirmed(node, key, units[node]))

    def _note_trouble(self, key: ResourceKey, why: str) -> None:
        if not why:
            self.trouble.pop(key, None)
            self._logged.pop(key, None)
            return
        self.trouble[key] = why
        if self.mark:
            if key not in self._again:
                self._again.add(key)
                self._work.later(_TRY_AGAIN_SECONDS, lambda: self._has_waited(key))
            if self._logged.get(key) != why:
                _log.warning("a policy's resource cannot be set", policy=self.mark, key=key, why=why)
                self._logged[key] = why

    def _has_waited(self, key: ResourceKey) -> None:
        self._again.discard(key)
        self._try_again(key)

    def _try_again(self, key: ResourceKey) -> None:
        """Reports all nodes again, so that policies retry what was refused of the key."""
        if self.trouble.pop(key, None) is not None:
            for node in self._hosting.told:
                self._tell(NodeSeen(node))

    def _failed(self, error: BaseException) -> None:
        self.failed.set()
        _log.error("a defect: these policies have stopped", namespace=self.namespace, exc_info=error)
