"""ESL controller: runs the EscherPolicies that applications ask, while they are in force.

Each is an ESL in a space of its own (`esl_host`). It gets other parameters as soon as they are in force. After a
restart it goes on from the objects and the pods that exist. The objects that it has set name it
(`EphemeralResource.policy`). They are removed when the policy is gone, or of another type. Removal depends on what
exists, not on events, so that neither a crash nor a silent API server leaves anything for good. Running pods are left
alone.

An answer is valid while the policy exists. A task without a pod is remembered only in the process, and for at most
`_LAPSES_SECONDS`: the pod itself says which task it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog

from extender.app.contracts.errors import Invalid, NotInForce, NotYet
from extender.app.contracts.kind import Identity
from extender.app.contracts.policy_state import Answer, PolicyReceiver
from extender.app.contracts.ports import EphemeralResource
from extender.app.escher_policies.esl_host import EslHost, HostedPolicies
from extender.core.common.backoff import BackOff
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import Hosted, PolicyInForce, type_of
from extender.esl import hosted
from extender.esl.base import Effect, Notice, PodRequirement, RemoveCapacity, SetCapacity
from extender.esl.gangs.gang_spec import Approach
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import InvalidName, NodeName, ResourceKey, require_label

_log = structlog.get_logger(__name__)

_ROUND_SECONDS, _SOON_SECONDS = 60.0, 5.0
_LAPSES_SECONDS = 600.0
_BEGUN_WITHIN_SECONDS = 2.0
MOST_TASKS = 5000
"""Most tasks that one policy remembers. A request for one more has to come again later."""
_SHOWN_NODES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

Find = Callable[[Identity], PolicyInForce]
"""Returns what is in force of the policy. Raises NotFound, NotInForce."""


@dataclass(slots=True)
class _Host:
    """One policy. `parameters`: None if it has to end. `turn`: set when their type changes."""

    name: Identity
    parameters: Hosted | None
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    at_work: tuple[HostedPolicies, PolicyEsl] | None = None
    asked: dict[str, float] = field(default_factory=dict)
    """Until when a task without a pod is remembered."""

    @property
    def mark(self) -> str:
        return "" if self.parameters is None else f"{type_of(self.parameters)}/{self.name.name}"


class EslController:
    """Implements `policy_state.PolicyReceiver` and `api.AskCalls`.

    `first` gets every policy before this object. `listed`: whether all existing policies have been passed."""

    def __init__(self, hosting: EslHost, first: PolicyReceiver, find: Find, listed: Callable[[], bool]) -> None:
        self._hosting = hosting
        self._first = first
        self._find = find
        self._listed = listed
        self._hosts: dict[Identity, _Host] = {}
        self._group: asyncio.TaskGroup | None = None
        self._nudged = asyncio.Event()
        hosting.resources.known.listeners.append(self._hear)

    # -- policies come and go ------------------------------------------------------------------------------------------

    def put(self, name: Identity, policy: PolicyInForce) -> None:
        self._first.put(name, policy)
        parameters = policy.parameters if isinstance(policy.parameters, Hosted) else None
        host = self._hosts.get(name)
        if host is not None:
            self._turn(host, parameters)
        elif parameters is not None:
            host = self._hosts[name] = _Host(name, parameters)
            if self._group is not None:
                self._group.create_task(self._run_one(host))

    def drop(self, name: Identity) -> None:
        self._first.drop(name)
        if (host := self._hosts.get(name)) is not None:
            self._turn(host, None)

    def _turn(self, host: _Host, parameters: Hosted | None) -> None:
        before, host.parameters = host.parameters, parameters
        if type(parameters) is not type(before):
            host.turn.set()
        elif parameters is not None and host.at_work is not None:
            space, esl = host.at_work
            self._adapt(space, esl, parameters)

    def _adapt(self, space: HostedPolicies, esl: PolicyEsl, parameters: Hosted) -> None:
        """Passes new parameters on. A defect in that is the policy's own, and restarts it."""
        if not space.failed.is_set():
            try:
                space.perform(hosted.change(esl, parameters, space.now()))
            except Exception as error:
                space.fail(error)

    # -- at work -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs policies until it is cancelled; what they have set stays for the next process."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for host in list(self._hosts.values()):
                    group.create_task(self._run_one(host))
                await self._look_after_all()
            finally:
                self._group = None

    async def _run_one(self, host: _Host) -> None:
        back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while (parameters := host.parameters) is not None:
            host.turn.clear()
            try:
                await self._host(host, parameters)
            except Exception:
                _log.exception("a policy is restarted after a defect", policy=str(host.name))
                await asyncio.sleep(back_off.failed(None))
            finally:
                host.at_work = None
                host.begun.clear()
            # If it has another type now, it would take what it has set itself for another owner's.
            await self._remove_what_is_nobodys()
        self._nudged.set()
        del self._hosts[host.name]

    async def _host(self, host: _Host, parameters: Hosted) -> None:
        esl = hosted.made(host.name.namespace, host.name.name, parameters, self._hosting.cache.ledger.capacity.domain)
        space = self._hosting.space([esl], namespace=host.name.namespace, keep=True, mark=host.mark)
        async with space:
            if type(host.parameters) is type(parameters):
                host.at_work = space, esl
                host.begun.set()
                if host.parameters is not None and host.parameters != parameters:
                    self._adapt(space, esl, host.parameters)
                await _either(host.turn, space.failed)

    async def _look_after_all(self) -> None:
        wait = _SOON_SECONDS
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._nudged.wait()
            except TimeoutError:
                pass
            self._nudged.clear()
            for host in list(self._hosts.values()):
                self._forget_asks(host)
            wait = _ROUND_SECONDS if await self._remove_what_is_nobodys() else _SOON_SECONDS

    def _forget_asks(self, host: _Host) -> None:
        """Releases tasks that had no pod for too long: nothing is kept ready for ever."""
        if host.at_work is None or host.at_work[0].failed.is_set():
            return
        space, esl = host.at_work
        there, over = {pod.labels[esl.label] for pod in esl.view.alive(esl.label)}, list[str]()
        for task, until in list(host.asked.items()):
            if task not in esl.tasks:
                del host.asked[task]
            elif task in there:
                host.asked[task] = space.now() + _LAPSES_SECONDS
            elif until <= space.now():
                over.append(task)
        if not over:
            return
        for task in over:
            del host.asked[task]
        try:
            # In one call: each release compares all nodes, and thousands of tasks may be over together.
            space.perform(esl.release_all(over, space.now()))
        except Exception as error:
            space.fail(error)

    # -- what policies have left ---------------------------------------------------------------------------------------

    def _hear(self, name: Identity) -> None:
        entry = self._hosting.resources.known.get(name)
        if entry is not None and self._is_nobodys(entry.item):
            self._nudged.set()

    def _is_nobodys(self, resource: EphemeralResource) -> bool:
        """Returns whether a policy has set it that is no longer in force."""
        if not resource.policy or resource.deleting or not self._listed():
            return False
        host = self._hosts.get(Identity(resource.name.namespace, resource.policy.partition("/")[2]))
        return host is None or host.mark != resource.policy

    async def _remove_what_is_nobodys(self) -> bool:
        """Removes what policies no longer in force have set. Returns whether all could be."""
        removed = self._listed()
        resources = self._hosting.resources
        for resource in [entry.item for entry in resources.known.entries() if self._is_nobodys(entry.item)]:
            try:
                if self._is_nobodys(resource):
                    name = Identity(resource.name.namespace, resource.name.name)
                    await resources.remove_of_policy(name, resource.policy)
                    _log.info("removed a resource that a policy had set", policy=resource.policy, resource=str(name))
            except (Unavailable, Invalid, Refused) as error:
                removed = False
                _log.info("a policy's resource is removed later", resource=str(resource.name), why=str(error))
        return removed

    # -- asks ----------------------------------------------------------------------------------------------------------

    async def ask_policy(self, name: Identity, task: Task, *, dry_run: bool = False) -> Answer:
        policy = self._find(name)
        kind = type_of(policy.parameters)
        try:
            if not isinstance(policy.parameters, Hosted):
                return Answer(name=name, type=kind, task=task.name, requirement=_with_task(name, task))
            host = self._hosts.get(name)
            if host is not None and host.at_work is None:
                await _either(host.begun, within=_BEGUN_WITHIN_SECONDS)
            if host is None or host.at_work is None or host.at_work[0].failed.is_set():
                raise NotYet("name", str(name), f"policy {name} has not started yet; ask again", retry_after=1)
            return await self._answer(host, *host.at_work, task, dry_run)
        except InvalidName as error:
            field = {"task": "task.name", "group": "task.group"}.get(error.field, "task.name")
            raise Invalid(field, error.value, str(error)) from error

    async def _answer(self, host: _Host, space: HostedPolicies, esl: PolicyEsl, task: Task, dry_run: bool) -> Answer:
        requirement, effects = esl.would_require(task), list[Effect]()
        for key in requirement.resources:
            if (said := space.others.get(ResourceKey(key))) is not None:
                raise NotInForce("name", str(host.name), f"policy {host.name} cannot be carried out: {said}")
        if task.name not in esl.tasks and len(esl.tasks) >= MOST_TASKS:
            said = f"policy {host.name} has {len(esl.tasks)} unfinished tasks, the most that it can have; ask later"
            raise NotYet("name", str(host.name), said, retry_after=30)
        if not dry_run:
            effects = await space.ask_together(esl, task)
            host.asked[task.name] = space.now() + _LAPSES_SECONDS
        return Answer(
            name=host.name,
            type=space.mark.partition("/")[0],
            task=task.name,
            requirement=requirement,
            effects=list(_worded(effects)),
            notices=self.trouble(host.name),
        )

    def trouble(self, name: Identity) -> list[str]:
        """Says which of its resources cannot be set now, and why."""
        host = self._hosts.get(name)
        if host is None or host.at_work is None:
            return []
        space, _ = host.at_work
        return [*space.others.values(), *(f"{key} cannot be set: {why}" for key, why in sorted(space.trouble.items()))]


def tried(name: Identity, policy: PolicyInForce) -> None:
    """Implements `controller.Try`."""
    if isinstance(policy.parameters, Hosted):
        # A policy that is only judged may have no name.
        hosted.made(name.namespace, name.name or "unnamed", policy.parameters)


def _with_task(name: Identity, task: Task) -> PodRequirement:
    """Returns what a pod needs so that the policy matches it. Raises InvalidName."""
    require_label("task", task.name)
    if task.group:
        require_label("group", task.group)
    return PodRequirement({}, annotations={POLICY: name.name}, scheduler_name=Approach.EXTENDER.value)


def _worded(effects: list[Effect]) -> Iterator[str]:
    """Puts the effects into words, with one line for equal ones."""
    alike: dict[tuple[ResourceKey, int], list[NodeName]] = {}
    for effect in effects:
        match effect:
            case SetCapacity(node, resource, units):
                alike.setdefault((resource, units), []).append(node)
            case RemoveCapacity(node, resource):
                alike.setdefault((resource, 0), []).append(node)
            case Notice():
                yield effect.text
    for (resource, units), nodes in alike.items():
        more = len(nodes) - _SHOWN_NODES
        named = ", ".join(nodes[:_SHOWN_NODES]) + (f" and {more} more" if more > 0 else "")
        yield f"{resource} becomes {units} on {named}"


async def _either(*events: asyncio.Event, within: float | None = None) -> None:
    """Waits until one of the events is set, or `within` seconds have passed."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
