"""Kinds: the resources that the embedded API server serves, as discovery describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

STATUS = frozenset({"status"})


@dataclass(frozen=True, eq=False)
class Kind:
    """A resource; `name`: its kind. `schema`: openAPIV3Schema, None for built-in kinds."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    schema: Mapping[str, Any] | None = None
    columns: tuple[Mapping[str, Any], ...] = field(default=())
    """additionalPrinterColumns of a custom resource."""
    singular: str = ""
    verbs: tuple[str, ...] = VERBS
    """The verbs that its objects support, as discovery lists them."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        return self.schema is not None

    @property
    def root(self) -> str:
        """The path of its group and version: `/api/v1`, `/apis/batch/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of all its objects, of those of a namespace, or of one."""
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        parts = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{self.root}{where}/{self.plural}{parts}"

    def __repr__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


# Deleting a namespace deletes all its contents, so Kubernetes does not offer deletecollection for namespaces.
_ONE_BY_ONE = tuple(verb for verb in VERBS if verb != "deletecollection")

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, ("ns",), (), STATUS, verbs=_ONE_BY_ONE)
NODE = Kind("", "v1", "Node", "nodes", False, ("no",), (), STATUS)
POD = Kind("", "v1", "Pod", "pods", True, ("po",), ("all",), frozenset({"status", "binding", "eviction"}))
EVENT = Kind("", "v1", "Event", "events", True, ("ev",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, ("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE = Kind("", "v1", "Service", "services", True, ("svc",), ("all",), STATUS)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",))
EVENTS = Kind("events.k8s.io", "v1", "Event", "events", True, ("ev",))
"""The same events as `EVENT`, in the form of the newer API."""
JOB = Kind("batch", "v1", "Job", "jobs", True, (), ("all",), STATUS)
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), ("all",), STATUS)
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",))
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",), (), STATUS)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    ("crd", "crds"),
    ("api-extensions",),
    STATUS,
)
MUTATING_POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    False,
    (),
    ("api-extensions",),
)
MUTATING_POLICY_BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
    False,
    (),
    ("api-extensions",),
)

BUILT_IN = (
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    CONFIG_MAP,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    EVENTS,
    JOB,
    DAEMON_SET,
    ENDPOINT_SLICE,
    LEASE,
    PRIORITY_CLASS,
    DISRUPTION_BUDGET,
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_POLICY,
    MUTATING_POLICY_BINDING,
)


def custom(definition: Mapping[str, Any]) -> list[Kind]:
    """The kinds that a CustomResourceDefinition defines: one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            frozenset(version.get("subresources") or ()),
            (version.get("schema") or {}).get("openAPIV3Schema") or {},
            tuple(version.get("additionalPrinterColumns") or ()),
            names.get("singular") or names["kind"].lower(),
        )
        for version in spec["versions"]
        if version.get("served")
    ]
