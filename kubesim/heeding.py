"""Pod fields: which fields of a pod's spec have an effect in the embedded cluster, and which not.

It is one table. The API server uses it for warnings, a controller for events, and the documentation shows it. A test
checks that no field of a pod or a container is missing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kubesim.kinds import Json

HEEDED: Mapping[str, str] = {
    "affinity": "scheduler: node affinity; required affinity and anti-affinity between pods",
    "containers": "scheduler: what they ask for, and their host ports",
    "ephemeralContainers": "API server: refuses them, as the real one does in a pod that is created",
    "hostNetwork": "API server: containers' ports become host ports",
    "initContainers": "scheduler: what they ask for, and host ports of those that stay",
    "nodeName": "scheduler, kubelets",
    "nodeSelector": "scheduler",
    "overhead": "API server: refuses it, for there are no runtime classes",
    "preemptionPolicy": "scheduler",
    "priority": "API server, scheduler",
    "priorityClassName": "API server, scheduler",
    "runtimeClassName": "API server: refuses it, for there are none",
    "resources": "scheduler: what the pod asks for as a whole",
    "schedulerName": "scheduler",
    "schedulingGates": "API server, scheduler",
    "terminationGracePeriodSeconds": "kubelets",
    "tolerations": "scheduler; no running pod is evicted by a NoExecute taint",
    "topologySpreadConstraints": "scheduler",
    "containers[].name": "API server",
    "containers[].image": "API server: there must be one",
    "containers[].ports": "scheduler: host ports",
    "containers[].resources": "scheduler: requests and limits",
    "containers[].restartPolicy": "scheduler: an init container that stays",
}
"""By field: which component acts on it."""

WITHOUT_CONTAINERS = (
    "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "evictionResponders",
    "hostAliases", "hostIPC", "hostPID", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets", "os",
    "restartPolicy", "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN",
    "shareProcessNamespace", "subdomain", "containers[].args", "containers[].command", "containers[].env",
    "containers[].envFrom", "containers[].imagePullPolicy", "containers[].resizePolicy",
    "containers[].restartPolicyRules", "containers[].securityContext", "containers[].stdin", "containers[].stdinOnce",
    "containers[].terminationMessagePath", "containers[].terminationMessagePolicy", "containers[].tty",
    "containers[].volumeDevices", "containers[].volumeMounts", "containers[].workingDir",
)  # fmt: skip
"""Fields about running containers: stored and shown, but pods get no warning about them."""


class Unheeded(NamedTuple):
    field: str
    what: str
    """The consequence for the pod."""
    found: Callable[[Json], Iterator[str]]
    """Where a spec uses the field, as paths below the spec."""


def unheeded(spec: Json, where: str = "spec") -> list[str]:
    """Warnings in words: the fields of this spec that have no effect, each with its path."""
    said = []
    for each in UNHEEDED:
        places = list(each.found(spec))
        if places:
            shown = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
            said.append(f"{where}.{shown}: not heeded by the embedded cluster: {each.what}")
    return said


def _field(name: str) -> Callable[[Json], Iterator[str]]:
    def found(spec: Json) -> Iterator[str]:
        if spec.get(name):
            yield name

    return found


def _volumes(*sources: str) -> Callable[[Json], Iterator[str]]:
    def found(spec: Json) -> Iterator[str]:
        for at, volume in enumerate(_objects(spec.get("volumes"))):
            for source in sources:
                if volume.get(source) is not None:
                    yield f"volumes[{at}].{source}"

    return found


def _of_containers(*names: str) -> Callable[[Json], Iterator[str]]:
    def found(spec: Json) -> Iterator[str]:
        for path, container in _containers(spec):
            for name in names:
                if container.get(name):
                    yield f"{path}.{name}"

    return found


def _device_claims(spec: Json) -> Iterator[str]:
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    for path, container in _containers(spec):
        resources = container.get("resources")
        if isinstance(resources, dict) and resources.get("claims"):
            yield f"{path}.resources.claims"


def _preferred_neighbours(spec: Json) -> Iterator[str]:
    for path, affinity in _pod_affinities(spec):
        if affinity.get("preferredDuringSchedulingIgnoredDuringExecution"):
            yield f"{path}.preferredDuringSchedulingIgnoredDuringExecution"


def _selected_namespaces(spec: Json) -> Iterator[str]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for path, affinity in _pod_affinities(spec):
        for at, term in enumerate(_objects(affinity.get(required))):
            # An empty selector means all namespaces, for which no label is needed.
            if term.get("namespaceSelector"):
                yield f"{path}.{required}[{at}].namespaceSelector"


def _pod_affinities(spec: Json) -> Iterator[tuple[str, Json]]:
    affinity = spec.get("affinity")
    for side in ("podAffinity", "podAntiAffinity"):
        if isinstance(affinity, dict) and isinstance(affinity.get(side), dict):
            yield f"affinity.{side}", affinity[side]


def _containers(spec: Json) -> Iterator[tuple[str, Json]]:
    for kind in ("containers", "initContainers"):
        for at, container in enumerate(_objects(spec.get(kind))):
            yield f"{kind}[{at}]", container


def _objects(value: object) -> Iterator[Json]:
    """The items of a list that are objects; a restored store may hold anything."""
    yield from (each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict))


UNHEEDED: tuple[Unheeded, ...] = (
    Unheeded(
        "volumes[].persistentVolumeClaim",
        "no claim is looked for, bound or waited for",
        _volumes("persistentVolumeClaim", "ephemeral"),
    ),
    Unheeded(
        "volumes[].csi",
        "nothing is attached, and a node takes any number of them",
        _volumes("csi", "awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd", "cinder", "azureDisk"),
    ),
    Unheeded("resourceClaims", "no device is allocated", _device_claims),
    Unheeded(
        "affinity.podAffinity.preferred...", "nodes get no score for the pods that are on them", _preferred_neighbours
    ),
    Unheeded(
        "affinity.podAffinity.required...namespaceSelector",
        "labels of namespaces are not looked at, so it selects no namespace",
        _selected_namespaces,
    ),
    Unheeded("schedulingGroup", "native pod groups are not scheduled together", _field("schedulingGroup")),
    Unheeded("activeDeadlineSeconds", "the pod runs on after it", _field("activeDeadlineSeconds")),
    Unheeded("readinessGates", "the pod is ready without them", _field("readinessGates")),
    Unheeded(
        "containers[].livenessProbe",
        "no container runs, and the pod is ready at once",
        _of_containers("livenessProbe", "readinessProbe", "startupProbe"),
    ),
    Unheeded("containers[].lifecycle", "no container runs, and no hook is called", _of_containers("lifecycle")),
)


def as_markdown() -> str:
    """The tables for the documentation, as Markdown."""
    lines = ["| heeded | by |", "|---|---|", *(f"| `{field}` | {by} |" for field, by in HEEDED.items())]
    lines += ["", "| not heeded, and told | what comes of it |", "|---|---|"]
    lines += [f"| `{each.field}` | {each.what} |" for each in UNHEEDED]
    lines += ["", f"Without containers of no effect: {', '.join(f'`{field}`' for field in WITHOUT_CONTAINERS)}."]
    return "\n".join(lines) + "\n"
