"""Transactions: clients that set several resources as one, and the oracle of the result.

A client asks once, and may not wait for the answer. The capacity that it sets identifies the transaction. The oracle:
some order of the transactions that took effect explains the objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import inf

import httpx

from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import Json, Kind
from loadtests.fault_simulation.plan import Work
from loadtests.life.actors.hands import Hands
from loadtests.life.seeing import annotation, name
from loadtests.month.agreement import units_of

NAMESPACE, ELSEWHERE, BYSTANDER = "default", "kube-public", "bystander"
"""Where transactions set resources; and the resource of a tenant, which only forges intents."""
_MARK, _OLD_INTENT = "escher.dev/mark", "escher.dev/transaction"
_FORGES_AFTER = 0.005

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
Values = Mapping[str, int]
"""By resource: the capacity; absent resources are left out."""


@dataclass(slots=True)
class Tried:
    """`done`: whether it took effect; None: unknown to the caller, and it may still take effect."""

    work: Work
    began: float
    ended: float = inf
    done: bool | None = None


class Transactions:
    """`answer` asks the leading service and waits for that many seconds; None means no answer."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        tenant: Hands,
        answer: Callable[[Ask, float], Awaitable[httpx.Response | None]],
    ) -> None:
        self.tried: list[Tried] = []
        self._store = store
        self._kind = kind
        self._tenant = tenant
        self._answer = answer

    @property
    def names(self) -> list[str]:
        return sorted({each for tried in self.tried for each in (*tried.work.over, BYSTANDER)})

    async def transact(self, work: Work, patience: float) -> None:
        """Asks once; returns when the caller has an answer or has given up."""
        loop = asyncio.get_running_loop()
        await self.have_bystander()
        tried = Tried(work, loop.time())
        self.tried.append(tried)
        operations = [{"op": "set", "namespace": NAMESPACE, "name": each, **body_of(work)} for each in work.over]
        forging = asyncio.ensure_future(self._forge(work))
        answer = await self._answer(
            lambda client: client.post("/v1/transactions", json={"operations": operations}), work.patience or patience
        )
        await forging
        if answer is not None and answer.status_code < 500:
            tried.done, tried.ended = answer.status_code == 200, loop.time()

    async def have_bystander(self) -> None:
        if self._bystander() is None:
            metadata = {"name": BYSTANDER, "namespace": ELSEWHERE}
            head = {"apiVersion": self._kind.api_version, "kind": self._kind.name}
            await self._tenant.create(self._kind, {**head, "metadata": metadata, "spec": {"nodes": {}}})

    def _bystander(self) -> Json | None:
        return self._store.get(self._kind, ELSEWHERE, BYSTANDER)

    async def _forge(self, work: Work) -> None:
        """Makes the tenant's resource pose as the intent, in an old form; marks are public."""
        await asyncio.sleep(_FORGES_AFTER)
        found = [self._store.get(self._kind, NAMESPACE, each) for each in work.over]
        marks = [annotation(each, _MARK) for each in found if each is not None]
        there = self._bystander()
        if any(marks) and there is not None:
            await self._tenant.merge(self._kind, there, {"metadata": {"annotations": {_OLD_INTENT: max(marks)}}})

    async def take_back(self) -> None:
        """Deletes the tenant's resource. The caller deletes those of the transactions."""
        there = self._bystander()
        if there is not None:
            assert await self._tenant.delete(self._kind, there)
        self.tried.clear()

    def amiss(self, *, restored: bool) -> list[str]:
        """What is wrong: the tenant's resource, a value that was to end, unexplained values.

        `restored`: leaves the last check out, because etcd may hold half of a transaction that the service went on
        writing."""
        if not self.tried:
            return []
        there, found = self._bystander(), []
        if there is None or units_of(there):
            found.append(f"{ELSEWHERE}/{BYSTANDER} is {there and there['spec']}, and its tenant wants it without nodes")
        objects = [each for each in self._store.list(self._kind) if each["metadata"]["namespace"] == NAMESPACE]
        values = {name(each): max(units_of(each).values(), default=0) for each in objects if name(each) in self.names}
        ending = {each.work.capacity for each in self.tried if each.work.seconds}
        found += [f"{each} is {value}, and was to end" for each, value in values.items() if value in ending]
        if not restored and not explained(values, self.tried):
            told = ", ".join(
                f"{each.work.name} {each.work.over} {each.work.capacity} {each.done}" for each in self.tried
            )
            found.append(f"{values} is part of a transaction: {told}")
        return found


def body_of(work: Work) -> Json:
    """The body for one resource, in a PUT and in a transaction."""
    body: Json = {"capacity": work.capacity, "node_spec": {}}
    if work.nodes:
        body["num_nodes"] = work.nodes
    if work.seconds:
        body["ttl_seconds"] = work.seconds
    return body


def explained(values: Values, tried: Iterable[Tried]) -> bool:
    """Whether some order of all confirmed transactions, and some unclear ones, explains the values.

    Each of them took effect as a whole, and comes before those that began after its answer."""
    possible = [each for each in tried if each.done is not False]
    return any(
        all(each in order for each in possible if each.done)
        and all(later.ended >= earlier.began for at, earlier in enumerate(order) for later in order[at + 1 :])
        and _after(order) == values
        for count in range(len(possible) + 1)
        for order in permutations(possible, count)
    )


def _after(order: Iterable[Tried]) -> dict[str, int]:
    values: dict[str, int] = {}
    for each in order:
        values |= dict.fromkeys(each.work.over, 0 if each.work.seconds else each.work.capacity)
    return {name: value for name, value in values.items() if value}
