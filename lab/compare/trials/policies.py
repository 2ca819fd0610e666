"""Policies: the ways to place groups of pods by a policy other than gangs.

See `vocabulary.POLICIES`. Each is carried out as its users would: by Kubernetes' own fields of pods, by an EscherPolicy
that pods name or users ask, or by an ESL. An ESL runs in the application (AppSpace) or in a shared service (LibSpace).
Policies exist before their pods are requested, as PodGroups do, and go with the last of them. What an ESL sets on nodes
for its tasks comes with these, and is in their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from escher_k8s import AsyncEscher, NotFound
from extender.adapters.kubernetes.appspace.extended_resource_policies import Policies
from extender.core.policies.policy_matching import POLICY
from extender.esl import Approach
from extender.esl.policies.balance import DynamicBalance
from extender.esl.policies.co_location import CoLocation
from extender.esl.policies.fair_share import FairShare, User
from extender.esl.runtime.policy_asks import Application
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.client.requests import Requests
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.compare.trials.approaches import Plain, Ways, scheduled_by
from lab.compare.trials.outside import LABEL, NAMESPACE
from lab.compare.trials.pods import Manifest, create, manifest, remove
from lab.compare.trials.polling import until
from lab.compare.trials.workloads import POOL, WEIGHTS, Ask
from lab.compare.vocabulary import APPSPACE, BALANCING, BASE, CO_LOCATION, EXTENDER, FAIR_SHARE, LIBSPACE, NATIVE

_PURE, _EXTENDER = Approach.EXTENDED_RESOURCES.value, Approach.EXTENDER.value
_HOSTNAME = "kubernetes.io/hostname"
_EVERY, _WITHIN = 0.05, 30.0

Attach = Callable[[Ask, Manifest], Awaitable[Manifest]]
"""Returns the member as the policy requires it."""
Block = Callable[[str], AbstractAsyncContextManager[Attach]]
"""A policy of that name exists during the block."""


# -- what Kubernetes has ---------------------------------------------------------------------------------------------


def together_natively(pod: Manifest, selector: Mapping[str, Any]) -> None:
    """Requires the node that has the pods of the selector; the pod itself must match it."""
    term = {"topologyKey": _HOSTNAME, "labelSelector": selector}
    pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def evenly_natively(pod: Manifest, selector: Mapping[str, Any]) -> None:
    """Allows nodes to differ by one pod of the selector at most; the pod itself must match it."""
    spread = {"maxSkew": 1, "topologyKey": _HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    pod["spec"]["topologySpreadConstraints"] = [spread]


def _native(say: Callable[[Manifest, Mapping[str, Any]], None]) -> Callable[[Manifest, Ask], None]:
    def shape(pod: Manifest, ask: Ask) -> None:
        pod["spec"]["schedulerName"] = _PURE
        say(pod, {"matchLabels": {LABEL: ask.name}})

    return shape


# -- EscherPolicies --------------------------------------------------------------------------------------------------


async def put_in_force(escher: AsyncEscher, name: str, kind: str, parameters: Mapping[str, Any]) -> None:
    """Creates the policy and waits until it is in force. Raises Late."""
    await escher.put_policy(name, kind, parameters)

    async def ready() -> bool:
        return (await escher.get_policy(name)).ready

    await until(ready, lambda: f"policy {name} being in force", within=_WITHIN, every=_EVERY)


async def take_out_of_force(escher: AsyncEscher, name: str) -> None:
    """Deletes the policy and waits until what it has set is gone too. Raises Late."""
    await escher.delete_policy(name)

    async def gone() -> bool:
        try:
            await escher.get_policy(name)
        except NotFound:
            return not [each for each in await escher.list_resources() if each.name.startswith(f"{name}--")]
        return False

    await until(gone, lambda: f"the end of policy {name}", within=_WITHIN, every=_EVERY)


def _escher_policy(escher: AsyncEscher, kind: str, parameters: Mapping[str, Any], *, is_asked: bool) -> Block:
    """Pods name the policy, or, if `is_asked`, get their fields from its answer."""

    @asynccontextmanager
    async def block(name: str) -> AsyncIterator[Attach]:
        async def named(ask: Ask, pod: Manifest) -> Manifest:
            pod["metadata"]["annotations"] = {POLICY: name}
            pod["spec"]["schedulerName"] = _EXTENDER
            return pod

        async def asked(ask: Ask, pod: Manifest) -> Manifest:
            task = pod["metadata"]["name"]
            answer = await escher.ask_policy(name, task, ask.user, needs=ask.requests, node_labels=_node_labels(ask))
            return answer.attach(pod)

        try:
            await put_in_force(escher, name, kind, parameters)
            yield asked if is_asked else named
        finally:
            await take_out_of_force(escher, name)

    return block


# -- ESLs ------------------------------------------------------------------------------------------------------------


def _space(requests: Requests, made: Callable[[str], PolicyEsl], *, is_shared: bool) -> Block:
    """`is_shared`: every group is another application's."""

    @asynccontextmanager
    async def block(name: str) -> AsyncIterator[Attach]:
        policy = made(name)
        async with Policies(requests, [policy], namespace=NAMESPACE) as space:
            if isinstance(policy, FairShare):
                users = {user: User(weight) for user, weight in WEIGHTS.items()}
                await space.do(lambda now: policy.set_users(users, now=now))
            applications: dict[str, Application] = {}

            async def attach(ask: Ask, pod: Manifest) -> Manifest:
                group = ask.user or ask.name
                by = applications.setdefault(group, space.application()) if is_shared else space
                needs = {CPU: count(CPU, ask.requests[CPU])}
                requirement = await by.ask(policy, Task(pod["metadata"]["name"], group, needs, _node_labels(ask)))
                return requirement.attach(pod)

            yield attach

    return block


def _node_labels(ask: Ask) -> Mapping[str, str]:
    return {POOL: ""} if ask.pool else {}


# -- ways ------------------------------------------------------------------------------------------------------------


class ByPolicy(Plain):
    """Each ask has a policy of its own, or all of them share one."""

    def __init__(self, requests: Requests, block: Block, *, one_for_all: bool) -> None:
        super().__init__(requests, lambda pod, ask: None)
        self._block, self._one_for_all = block, one_for_all
        self._standing: dict[str, _Standing] = {}

    async def prepare(self, ask: Ask) -> None:
        await self._standing.setdefault(self._key(ask), _Standing(self._block)).join(ask.name)

    async def submit(self, ask: Ask) -> None:
        await create(self._requests, [await self._attached(ask, number) for number in range(ask.size)])

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        await create(self._requests, [await self._attached(ask, number, name)])

    async def _attached(self, ask: Ask, number: int, name: str = "") -> Manifest:
        return await self._standing[self._key(ask)].attach(ask, manifest(ask, number, name))

    async def end(self, ask: Ask) -> None:
        await remove(self._requests, ask)
        standing = self._standing.get(self._key(ask))
        if standing is not None and await standing.leave(ask.name):
            self._standing.pop(self._key(ask), None)

    async def aclose(self) -> None:
        """Removes all policies, even if they are needed."""
        for standing in self._standing.values():
            await standing.aclose()

    def _key(self, ask: Ask) -> str:
        return "" if self._one_for_all else ask.name


class _Standing:
    """A policy that exists from the first to the last ask that needs it, named after the first.

    One task enters and leaves its block, whichever asks join and leave."""

    attach: Attach

    def __init__(self, block: Block) -> None:
        self._block = block
        self._needed_by: set[str] = set()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def join(self, who: str) -> None:
        self._needed_by.add(who)
        if self._task is None:
            begun = asyncio.Event()
            self._task = asyncio.create_task(self._stand(who, begun))
            waiting = asyncio.create_task(begun.wait())
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._task.done():
                await self._task

    async def leave(self, who: str) -> bool:
        """Removes the policy if no other ask needs it; true if it is gone."""
        self._needed_by.discard(who)
        if not self._needed_by:
            await self.aclose()
        return not self._needed_by

    async def aclose(self) -> None:
        self._over.set()
        if self._task is not None:
            # The caller may be cancelled; the policy is removed all the same.
            await asyncio.shield(self._task)

    async def _stand(self, name: str, begun: asyncio.Event) -> None:
        async with self._block(name) as self.attach:
            begun.set()
            await self._over.wait()


@dataclass(frozen=True, slots=True)
class _Said:
    """A policy by `native` fields, an EscherPolicy, an ESL; `one_for_all`: all users share one."""

    native: Callable[[Manifest, Mapping[str, Any]], None] | None
    kind: str
    parameters: Mapping[str, Any]
    esl: Callable[[str], PolicyEsl]
    one_for_all: bool = False


_USERS = [{"name": user, "weight": weight} for user, weight in WEIGHTS.items()]
_SAID: Mapping[str, _Said] = {
    CO_LOCATION: _Said(together_natively, "co-location", {}, CoLocation),
    BALANCING: _Said(evenly_natively, "balance", {"max_skew": 1}, DynamicBalance),
    FAIR_SHARE: _Said(None, "shares", {"users": _USERS}, FairShare, one_for_all=True),
}


async def ways(
    requests: Requests, service_url: str, workload: str, chosen: Iterable[str], stack: AsyncExitStack
) -> dict[str, Ways]:
    """The workload's ways by approach; what they keep running ends with the stack."""
    said = _SAID[workload]
    escher = await stack.enter_async_context(AsyncEscher(service_url, namespace=NAMESPACE))

    async def of(name: str) -> Plain:
        if name == BASE:
            return Plain(requests, scheduled_by(_PURE))
        if name == NATIVE and said.native is not None:
            return Plain(requests, _native(said.native))
        one_for_all = said.one_for_all or name == LIBSPACE
        if name == EXTENDER:
            block = _escher_policy(escher, said.kind, said.parameters, is_asked=said.one_for_all)
        elif name in (APPSPACE, LIBSPACE):
            block = _space(requests, said.esl, is_shared=name == LIBSPACE)
        else:
            raise ValueError(f"approach {name} has nothing for {workload}")
        way = ByPolicy(requests, block, one_for_all=one_for_all)
        stack.push_async_callback(way.aclose)
        return way

    return {name: Ways(await of(name), Plain(requests, scheduled_by(_PURE))) for name in chosen}
