"""What tests of applications without the service share: their credentials, and waiting."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from extender.shipped import places
from lab.controlplane.clusters import LocalCluster
from tests.controlplane.deadline import eventually

Value = TypeVar("Value")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def until(look: Callable[[], Value], *, within: float = 30, what: str = "it") -> Value:
    return await asyncio.to_thread(eventually, look, within=within, what=what)


def as_service_account(cluster: LocalCluster, folder: Path, manifest: str, account: str) -> Path:
    """A kubeconfig of the service account that this manifest of deploy/applications makes."""
    for document in yaml.safe_load_all((places.shipped("deploy") / "applications" / manifest).read_text()):
        kind = document["kind"]
        namespace = document["metadata"].get("namespace")
        root = "/api/v1" if kind == "ServiceAccount" else _RBAC
        cluster.admin.post(f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{kind.lower()}s", document)
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    token = cluster.admin.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    assert base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    config["users"][0]["user"] = {"token": token}
    made = folder / "kubeconfig"
    made.write_text(yaml.safe_dump(config))
    return made
