"""The desk: everything that `management.Management` offers, at one place. Hands each call to who knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from extender.app.braking import Braking
from extender.app.explain import Explain
from extender.app.inquiries import Inquiries
from extender.app.keeper import Keeper
from extender.app.management import (
    BrakeState,
    Explanation,
    GangState,
    NodeState,
    Outcome,
    ResourceState,
    SetResource,
    Transact,
)
from extender.app.resources import Resources
from extender.app.transactions import Transactions
from extender.core.names import EphemeralName, GangKey, NodeName, ResourceKey


class Desk:
    """`management.Management`. `nudge` is called when claims have set deadlines."""

    def __init__(
        self,
        keeper: Keeper,
        resources: Resources,
        nudge: Callable[[], None] = lambda: None,
        braking: Braking | None = None,
    ) -> None:
        self._resources = resources
        self._transactions = Transactions(keeper, resources, nudge)
        self._inquiries = Inquiries(keeper, resources.catalog)
        self._explain = Explain(keeper)
        self._braking = braking or Braking(keeper)

    async def set_resource(self, request: SetResource) -> ResourceState:
        return await self._resources.set_resource(request)

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        return await self._resources.get_resource(name)

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        return await self._resources.list_resources(namespace)

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        return await self._resources.delete_resource(name, if_version=if_version, dry_run=dry_run)

    async def transact(self, request: Transact) -> Outcome:
        return await self._transactions.transact(request)

    def cluster_state(
        self, *, namespace: str | None = None, node: NodeName | None = None, resource: ResourceKey | None = None
    ) -> Sequence[NodeState]:
        return self._inquiries.cluster_state(namespace=namespace, node=node, resource=resource)

    def brake(self) -> BrakeState:
        return self._braking.state()

    def gangs(self, namespace: str) -> Sequence[GangState]:
        return self._inquiries.gangs(namespace)

    def gang(self, key: GangKey) -> GangState:
        return self._inquiries.gang(key)

    def explain_pod(self, namespace: str, name: str) -> Explanation:
        return self._explain.pod(namespace, name)

    def explain_gang(self, key: GangKey) -> Explanation:
        return self._explain.gang(key)
