"""The lies of tests/lies, told one after the other to a real API server: the neighbour does not feel them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kubesim.kinds import POD, Json, Kind
from lab.controlplane.api import Api
from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from tests.lies.test_lies import LIES
from tests.lies.town import VICTIM, Tenants, said

pytestmark = [pytest.mark.e2e, pytest.mark.anyio, pytest.mark.timeout(600)]


class RealTenants(Tenants):
    def __init__(self, api: Api, service: Service) -> None:
        super().__init__()
        self._api, self._service = api, service

    def makes(self, namespace: str) -> str:
        self._api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        return namespace

    async def create(self, namespace: str, body: Mapping[str, Any], kind: Kind = POD) -> Json:
        return self._api.post(kind.path(namespace), said(namespace, body, kind))

    async def edit(self, kind: Kind, name: str, patch: Mapping[str, Any], *, status: bool = False) -> Json:
        return self._api.patch(kind.path(self.liar, name, "status" if status else ""), patch)

    def all(self, namespace: str, kind: Kind = POD) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self._api.list_all(kind.path(namespace))}

    def violations(self) -> int:
        return int(self._service.metric("escher_invariant_violations_total"))


@pytest.fixture
def tenants(state_folder: object) -> Iterator[RealTenants]:
    with RealCluster.start(nodes=4) as cluster:
        service = Service(cluster.service_url)
        yield RealTenants(cluster.admin, service)
        service.close()


async def test_all_lies_together_do_not_reach_a_neighbour(tenants: RealTenants) -> None:
    tenants.makes(VICTIM)
    await tenants.settle()
    for name, lie in LIES.items():
        # Each by a liar of its own: they use the same names.
        tenants.liar = tenants.makes(name.replace(" ", "-"))
        await lie(tenants)
    await tenants.is_unharmed(after=10.0)
