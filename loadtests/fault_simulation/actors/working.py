"""Working: people ask for what a plan has, and repeat each request until it is answered."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx

from kubesim.apiserver.machinery.store import Store
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import POD, PRIORITY_CLASS, Json, Kind
from loadtests.fault_simulation.actors.transactions import NAMESPACE, Ask, Transactions, body_of
from loadtests.fault_simulation.plan import Work
from loadtests.fault_simulation.stage import Stage
from loadtests.life.actors.hands import Hands
from loadtests.life.policies import POLICY
from loadtests.life.seeing import cpu_of, free_cpu
from loadtests.life.works import PRIORITIES
from loadtests.month.agreement import ephemeral_resources
from loadtests.shared.pods import EXTENDER, LEDGER, pod
from loadtests.shared.reading import OURS

GROUP = "fault-simulation/group"
"""The label of pods that keep off each other."""
FOREIGN = "another-scheduler"
"""A scheduler that binds its pods itself, without the service."""
_AGAIN_AFTER = 1.0
_ATTEMPTS = 3
_ANSWERED_WITHIN = 30.0


class Working:
    """`wishes`: each resource, with the work that was asked for last."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.wishes: dict[str, Work] = {}
        self.last_answers: dict[str, str] = {}
        """By resource."""
        self.told: dict[str, frozenset[str]] = {}
        """By resource: the nodes in the service's last answer."""
        self._stage = stage
        self._people = self._hands(seed, "people")
        self._others = self._hands(seed, FOREIGN)
        tenant = self._hands(seed, "tenant")
        self.transactions = Transactions(self._store, ephemeral_resources(stage), tenant, self._answered)
        self._turns: dict[str, asyncio.Lock] = {}
        self._policies: list[Json] = []

    def _hands(self, seed: int, whose: str) -> Hands:
        drawn = random.Random(f"{seed} {whose}")
        return Hands(InProcess(self._stage.cluster.api, latency=0.001, rng=drawn, user=whose))

    @property
    def _store(self) -> Store:
        return self._stage.cluster.api.store

    async def work(self, work: Work) -> None:
        """Asks for it at its time; takes it back after `lasts` seconds, unless that is None."""
        await asyncio.sleep(work.at)
        match work.kind:
            case "resource":
                await self.set_resource(work)
                return
            case "transaction":
                await self.transactions.transact(work, _ANSWERED_WITHIN)
                return
            case "policy":
                self._policies.append(_policy(work))
                await self._create(POLICY, self._policies[-1])
                return
            case "foreign":
                for body in pods_of(work):
                    await self._come_in(body)
            case _:
                for body in pods_of(work):
                    await self._create(POD, body, work.priority)
        if work.lasts is not None:
            await asyncio.sleep(work.lasts)
            await self.take_back(work)

    async def _create(self, kind: Kind, body: Json, priority: str = "") -> None:
        """Tries repeatedly, because a restore of etcd may delete the priority class meanwhile."""
        body["metadata"]["namespace"] = NAMESPACE
        for _ in range(_ATTEMPTS if priority else 1):
            await self._have_class(priority)
            if await self._people.create(kind, body) is not None:
                return
        raise AssertionError(f"{kind.name} {body['metadata']['name']} is refused")

    async def _have_class(self, priority: str) -> None:
        if priority and self._store.get(PRIORITY_CLASS, "", priority) is None:
            value, policy = PRIORITIES[priority]
            body: Json = {"metadata": {"name": priority}, "value": value, "preemptionPolicy": policy}
            await self._people.create(PRIORITY_CLASS, body)

    async def _come_in(self, body: Json) -> None:
        """Creates the pod and binds it where most CPU is free; deletes it if that fails."""
        if not self._free_for(body):
            return
        await self._create(POD, body)
        found = self._store.get(POD, NAMESPACE, body["metadata"]["name"])
        free = self._free_for(body)
        # The first node by name, if several have the most.
        if found is not None and not (free and await self._others.bind(found, max(sorted(free), key=free.__getitem__))):
            await self._others.delete(POD, found)

    def _free_for(self, body: Json) -> dict[str, int]:
        """The free CPU of each node that has enough for the pod, according to the objects."""
        return {node: free for node, free in free_cpu(self._store).items() if free >= cpu_of(body)}

    async def take_back(self, work: Work) -> None:
        for body in pods_of(work):
            found = self._store.get(POD, NAMESPACE, body["metadata"]["name"])
            if found is not None:
                await self._people.delete(POD, found)

    async def set_resource(self, work: Work) -> None:
        """Requests for the same resource wait for each other."""
        async with self._turns.setdefault(work.name, asyncio.Lock()):
            self.wishes[work.name] = work
            await self._insist(work)

    async def _insist(self, work: Work) -> None:
        heard = False
        while not heard:
            heard = await self._ask(work)
            await asyncio.sleep(0.0 if heard else _AGAIN_AFTER)

    async def ask_again(self) -> None:
        """Asks again for the last requests: resources, policies, and the tenant's resource."""
        if self.transactions.tried:
            await self.transactions.have_bystander()
        for name in list(self.wishes):
            async with self._turns[name]:
                await self._insist(self.wishes[name])
        for body in self._policies:
            if self._store.get(POLICY, NAMESPACE, body["metadata"]["name"]) is None:
                await self._create(POLICY, body)

    async def _ask(self, work: Work) -> bool:
        """Whether the request was answered, and carried out."""
        where = f"/v1/namespaces/{NAMESPACE}/resources/{work.name}"
        answer = await self._answered(
            lambda client: client.put(where, json=body_of(work)) if work.capacity else client.delete(where),
            _ANSWERED_WITHIN,
        )
        if answer is None:
            return False
        self.last_answers[work.name] = f"{answer.status_code} {answer.text}"
        if answer.status_code == 200:
            self.told[work.name] = frozenset(answer.json()["nodes"])
        return not answer.is_error or (answer.status_code == 404 and not work.capacity)

    async def _answered(self, ask: Ask, within: float) -> httpx.Response | None:
        """The answer of the leading service within that many seconds; None if there is none."""
        life = self._stage.leading
        if life is None:
            return None
        served = httpx.ASGITransport(app=life.http)
        async with httpx.AsyncClient(transport=served, base_url="http://escher") as client:
            try:
                async with asyncio.timeout(within):
                    answer = await ask(client)
            except TimeoutError:
                return None
            except asyncio.CancelledError:
                # The service has died; what it had sent for this request is lost.
                if (own := asyncio.current_task()) is not None and own.cancelling():
                    raise
                return None
        return answer if life in self._stage.living else None

    async def take_all_back(self) -> None:
        """Deletes all pods, policies and resources."""
        self._policies.clear()
        for found in [*self._store.list(POD), *self._store.list(POLICY)]:
            await self._people.delete(POD if "containers" in found["spec"] else POLICY, found)
        names = self.transactions.names
        await self.transactions.take_back()
        for name in [*self.wishes, *names]:
            await self.set_resource(Work("resource", name, 0.0))


def pods_of(work: Work) -> list[Json]:
    asks: dict[str, Any] = {"cpu": work.cpu}
    if work.asks:
        asks[resource_key(work.asks)] = 1
    gang = work.name if work.kind == "gang" else None
    made = [
        pod(
            f"{work.name}-{number}",
            FOREIGN if work.kind == "foreign" else LEDGER if work.ledger else EXTENDER,
            gang=gang,
            quorum=None if gang is None else work.size,
            gated=work.gated,
            run_seconds=work.seconds or None,
            priority_class=work.priority or None,
            labels={GROUP: work.group} if work.group else None,
            **asks,
        )
        for number in range(work.size + work.surplus)
    ]
    for each in made if work.port else ():
        each["spec"]["containers"][0]["ports"] = [{"containerPort": work.port, "hostPort": work.port}]
    return made


def resource_key(name: str) -> str:
    return f"{OURS}{NAMESPACE}.{name}"


def _policy(work: Work) -> Json:
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.name,
        "metadata": {"name": work.name},
        "spec": {"type": "anti-affinity", "parameters": {}, "selector": {"matchLabels": {GROUP: work.name}}},
    }
