"""The manifests in deploy/, read; and which files of the chart are copies of which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
KUSTOMIZE = DEPLOY / "kustomize"
NAMESPACE = "escher-system"
NAME = "escher"

OF_THE_CHART = {
    *("host", "port", "kubeconfig", "context", "insecure", "authorization"),
    *("tls_certificate", "tls_key", "tls_client_ca", "tls_scheduler_names"),
    *("leader_election", "lease_name", "lease_namespace", "leader_service", "leader_service_port"),
    "tracing",
}
"""Settings that the chart sets itself, or that make no sense in a pod: its `settings` refuse them."""

Object = dict[str, Any]


def objects(text: str) -> list[Object]:
    """The objects of a stream of YAML, without empty documents."""
    return [each for each in yaml.safe_load_all(text) if each]


def copies() -> dict[Path, Path]:
    """Each file of the chart that stands elsewhere too, and where: a chart cannot have files from outside of itself."""
    sources = [
        *sorted((DEPLOY / "crds").glob("*.yaml")),
        *sorted((DEPLOY / "policies").glob("*.yaml")),
        *sorted((DEPLOY / "authorization").glob("*.yaml")),
        *sorted((DEPLOY / "monitoring").iterdir()),
        ROOT / "scheduler-config" / "escher.yaml",
    ]
    return {CHART / "files" / source.parent.name / source.name: source for source in sources}


def one(found: Iterable[Object], kind: str, name: str) -> Object:
    """The object of that kind and name: there is one."""
    [it] = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return it


def pod_specs(found: Iterable[Object]) -> dict[str, Object]:
    """The spec of each pod that would be made, by kind and name of who makes it."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"]["template"]["spec"]
        for each in found
        if each["kind"] in ("Deployment", "Job")
    }


def grants(found: Iterable[Object], account: str) -> Iterator[tuple[str, Object]]:
    """Each rule that a service account has of roles among these objects, and the namespace that it is for; "": all."""
    found = list(found)
    for binding in found:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        if account not in [each["name"] for each in binding["subjects"]]:
            continue
        reference = binding["roleRef"]
        where = binding["metadata"].get("namespace", "") if binding["kind"] == "RoleBinding" else ""
        for role in found:
            if (role["kind"], role["metadata"]["name"]) == (reference["kind"], reference["name"]):
                yield from ((where, rule) for rule in role["rules"])


def granted(found: Iterable[Object], account: str, *, namespace: str = "") -> set[tuple[str, str, str]]:
    """(group, resource, verb) that it may do everywhere, or in the namespace alone."""
    return {
        (group, resource, verb)
        for where, rule in grants(found, account)
        if where == namespace
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
