"""Absent: kinds and paths that Kubernetes has and the embedded cluster has not, and their answers.

Discovery lists these kinds without any verb, so kubectl finds them, sends a request, and shows the answer.
"""

from __future__ import annotations

from kubesim.apiserver.machinery.failures import Failure
from kubesim.kinds import Kind


def _of(group: str, version: str, text: str, *, namespaced: bool = True) -> list[Kind]:
    """One kind for each line: its name, its plural, and short names."""
    rows = [line.split() for line in text.strip().splitlines()]
    return [
        Kind(group, version, name, plural, namespaced, tuple(short), verbs=())
        for name, plural, *short in rows
    ]  # fmt: skip


_CORE = """
    Endpoints endpoints ep
    LimitRange limitranges limits
    PersistentVolumeClaim persistentvolumeclaims pvc
    PodTemplate podtemplates
    ReplicationController replicationcontrollers rc
    ResourceQuota resourcequotas quota
"""
_CORE_OF_CLUSTER = """
    ComponentStatus componentstatuses cs
    PersistentVolume persistentvolumes pv
"""
_APPS = """
    ControllerRevision controllerrevisions
    Deployment deployments deploy
    ReplicaSet replicasets rs
    StatefulSet statefulsets sts
"""
_NETWORKING = """
    Ingress ingresses ing
    NetworkPolicy networkpolicies netpol
"""
_RBAC = """
    Role roles
    RoleBinding rolebindings
"""
_RBAC_OF_CLUSTER = """
    ClusterRole clusterroles
    ClusterRoleBinding clusterrolebindings
"""
_STORAGE = """
    CSIDriver csidrivers
    CSINode csinodes
    StorageClass storageclasses sc
    VolumeAttachment volumeattachments
"""
_ADMISSION = """
    MutatingWebhookConfiguration mutatingwebhookconfigurations
    ValidatingAdmissionPolicy validatingadmissionpolicies
    ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings
    ValidatingWebhookConfiguration validatingwebhookconfigurations
"""
_DEVICES = """
    ResourceClaim resourceclaims
    ResourceClaimTemplate resourceclaimtemplates
"""
_DEVICES_OF_CLUSTER = """
    DeviceClass deviceclasses
    ResourceSlice resourceslices
"""
_FLOW = """
    FlowSchema flowschemas
    PriorityLevelConfiguration prioritylevelconfigurations
"""

KINDS: tuple[Kind, ...] = (
    *_of("", "v1", _CORE),
    *_of("", "v1", _CORE_OF_CLUSTER, namespaced=False),
    *_of("apiregistration.k8s.io", "v1", "APIService apiservices", namespaced=False),
    *_of("apps", "v1", _APPS),
    *_of("autoscaling", "v2", "HorizontalPodAutoscaler horizontalpodautoscalers hpa"),
    *_of("batch", "v1", "CronJob cronjobs cj"),
    *_of("certificates.k8s.io", "v1", "CertificateSigningRequest certificatesigningrequests csr", namespaced=False),
    *_of("networking.k8s.io", "v1", _NETWORKING),
    *_of("networking.k8s.io", "v1", "IngressClass ingressclasses", namespaced=False),
    *_of("rbac.authorization.k8s.io", "v1", _RBAC),
    *_of("rbac.authorization.k8s.io", "v1", _RBAC_OF_CLUSTER, namespaced=False),
    *_of("storage.k8s.io", "v1", _STORAGE, namespaced=False),
    *_of("admissionregistration.k8s.io", "v1", _ADMISSION, namespaced=False),
    *_of("flowcontrol.apiserver.k8s.io", "v1", _FLOW, namespaced=False),
    *_of("node.k8s.io", "v1", "RuntimeClass runtimeclasses", namespaced=False),
    *_of("resource.k8s.io", "v1", _DEVICES),
    *_of("resource.k8s.io", "v1", _DEVICES_OF_CLUSTER, namespaced=False),
)

_SUBRESOURCES = {
    "pods": ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"),
    "nodes": ("proxy",),
    "services": ("proxy",),
    "serviceaccounts": ("token",),
}
_SCALE = "scale"
_BY_PATH = {(kind.root, kind.plural): kind for kind in KINDS}


def of_path(path: str) -> Failure | None:
    """The answer for a path that is not served; None if Kubernetes does not serve it either."""
    root, _, rest = path.strip("/").partition("/v")
    version, _, rest = rest.partition("/")
    parts = rest.split("/")
    root = f"/{root}/v{version}"
    if parts[0] == "watch" and len(parts) > 1:
        return not_here(f"{root}/watch (use ?watch=true)", 404)
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    kind = _BY_PATH.get((root, parts[0]))
    if kind is not None:
        return not_here(f"{kind!r}", 404)
    if root == "/api/v1" and len(parts) > 2 and parts[2] in _SUBRESOURCES.get(parts[0], ()):
        return not_here(f"{parts[0]}/{parts[2]}", 501)
    return None


def of_subresource(kind: Kind, name: str) -> Failure | None:
    """The same for a subresource of a kind that is served."""
    if (name == _SCALE and name in kind.subresources) or (
        not kind.group and name in _SUBRESOURCES.get(kind.plural, ())
    ):
        return not_here(f"{kind.plural}/{name}", 501)
    return None


def not_here(what: str, code: int) -> Failure:
    reason = {404: "NotFound", 501: "NotImplemented"}[code]
    return Failure(code, reason, f'{what}: not in the embedded cluster; "--real" has it', {})
