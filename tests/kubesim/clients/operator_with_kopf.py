"""An operator as Kopf's users write one, run by `kopf run`: it knows nothing of the embedded cluster.

For each EphemeralResource there is a ConfigMap with its capacity; a Copy says in its status what its spec says.
"""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config


@kopf.on.startup()
def connect(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()  # type: ignore[no-untyped-call]
    settings.posting.level = 20


@kopf.on.create("escher.dev", "v1alpha1", "ephemeralresources")
@kopf.on.update("escher.dev", "v1alpha1", "ephemeralresources")
def follow(spec: kopf.Spec, name: str, namespace: Any, **_: Any) -> None:
    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name=f"{name}-copy"), data={"nodes": str(dict(spec["nodes"]))}
    )
    core = client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
        core.replace_namespaced_config_map(f"{name}-copy", namespace, body)


@kopf.on.delete("escher.dev", "v1alpha1", "ephemeralresources")
def forget(name: str, namespace: Any, **_: Any) -> None:
    client.CoreV1Api().delete_namespaced_config_map(f"{name}-copy", namespace)


@kopf.on.create("copies.tests")
def copy(spec: kopf.Spec, body: kopf.Body, patch: kopf.Patch, **_: Any) -> dict[str, Any]:
    patch.status["phase"] = "Copied"
    kopf.info(body, reason="Copied", message="The text was copied.")
    return {"text": spec["text"]}


@kopf.on.field("copies.tests", field="spec.text")
def changed(old: Any, new: Any, patch: kopf.Patch, **_: Any) -> None:
    patch.status["change"] = f"{old} to {new}"


@kopf.timer("copies.tests", interval=0.5)
def count(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    patch.status["times"] = status.get("times", 0) + 1
