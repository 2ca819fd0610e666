"""`Place`: one control plane, shared by all cases, and the connections to it. It does not tell which one it is."""

from __future__ import annotations

import httpx

from lab.controlplane.api import Access
from lab.controlplane.clusters import LocalCluster
from loadtests.shared.ledger import Service


class Place:
    """A running cluster as its clients see it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.kubeconfig, self.service_url = cluster.kubeconfig, cluster.service_url
        self.api = cluster.admin
        self.service = Service(self.service_url)
        access = Access(self.kubeconfig)
        self.http = httpx.Client(
            base_url=access.url,
            verify=access.trust,
            headers={"Authorization": f"Bearer {access.token}"},
            timeout=30,
            trust_env=False,
        )
        self._count = 0

    def fresh_namespace(self, word: str) -> str:
        """A namespace that nobody had before; its name begins with `word`."""
        self._count += 1
        name = f"{word}-{self._count}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def close(self) -> None:
        self.http.close()
        self.service.close()
