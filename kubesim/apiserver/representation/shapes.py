"""Shapes: the fields of the built-in kinds and their types, as far as this API server reads them.

As in Kubernetes' decoders, a value of another type is refused and an unknown field is dropped. `ANY` values are not
checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kubesim import kinds
from kubesim.apiserver.machinery.failures import bad_request, unreadable_quantity
from kubesim.apiserver.machinery.metadata import go_kind
from kubesim.apiserver.representation.ages import is_time
from kubesim.kinds import Json, Kind

ANY, TEXT, NUMBER, BOOL, AMOUNT = "any", "string", "int32", "bool", "quantity"
NUMBER_OR_TEXT, TIME = "int-or-string", "time"


@dataclass(frozen=True)
class Object:
    """Fields by name. `name`: the name of the Go struct."""

    name: str
    fields: Mapping[str, Shape]


@dataclass(frozen=True)
class Each:
    """A list with items of one shape."""

    of: Shape


@dataclass(frozen=True)
class Map:
    """An object with any keys and values of one shape."""

    of: Shape


_TYPES: Mapping[str, tuple[type, ...]] = {
    TEXT: (str,), BOOL: (bool,), NUMBER: (int, float), NUMBER_OR_TEXT: (int, float, str), AMOUNT: (str, int, float),
    TIME: (str,),
}  # fmt: skip
_LONG = frozenset((
    "generation", "deletionGracePeriodSeconds", "terminationGracePeriodSeconds", "activeDeadlineSeconds",
    "tolerationSeconds", "observedGeneration", "gracePeriodSeconds", "maxLength", "minLength", "maxItems", "minItems",
    "maxProperties", "minProperties",
))  # fmt: skip
"""The 64-bit numbers; all others have 32 bits."""

Shape = str | Object | Each | Map


def _of(shape: Shape, names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


_TEXTS = Map(TEXT)
_OWNER = Object(
    "OwnerReference", {**_of(TEXT, "apiVersion kind name uid"), **_of(BOOL, "controller blockOwnerDeletion")}
)
_METADATA = Object("ObjectMeta", {
    **_of(TEXT, "name generateName namespace selfLink uid resourceVersion"),
    **_of(TIME, "creationTimestamp deletionTimestamp"),
    **_of(NUMBER, "generation deletionGracePeriodSeconds"),
    **_of(_TEXTS, "labels annotations"), "ownerReferences": Each(_OWNER), "finalizers": Each(TEXT),
    "managedFields": ANY,
})  # fmt: skip
_SELECTOR = Object("LabelSelector", {
    "matchLabels": _TEXTS,
    "matchExpressions": Each(Object("LabelSelectorRequirement", {**_of(TEXT, "key operator"), "values": Each(TEXT)})),
})  # fmt: skip
_RESOURCES = Object("ResourceRequirements", {"limits": Map(AMOUNT), "requests": Map(AMOUNT), "claims": ANY})
_PORT = Object("ContainerPort", {**_of(TEXT, "name protocol hostIP"), **_of(NUMBER, "containerPort hostPort")})
_VARIABLE = Object("EnvVar", {**_of(TEXT, "name value"), "valueFrom": Map(Map(ANY))})
_CONTAINER = Object("Container", {
    **_of(TEXT, "name image workingDir restartPolicy terminationMessagePath terminationMessagePolicy imagePullPolicy"),
    **_of(BOOL, "stdin stdinOnce tty"), "targetContainerName": TEXT, "command": Each(TEXT), "args": Each(TEXT),
    "ports": Each(_PORT), "env": Each(_VARIABLE), "resources": _RESOURCES,
    **_of(Map(ANY), "livenessProbe readinessProbe startupProbe lifecycle securityContext"),
    **_of(Each(Map(ANY)), "envFrom resizePolicy restartPolicyRules volumeMounts volumeDevices"),
})  # fmt: skip
_TOLERATION = Object("Toleration", {**_of(TEXT, "key operator value effect"), "tolerationSeconds": NUMBER})
_REQUIREMENT = Object("NodeSelectorRequirement", {**_of(TEXT, "key operator"), "values": Each(TEXT)})
_TERM = Object("NodeSelectorTerm", _of(Each(_REQUIREMENT), "matchExpressions matchFields"))
_NODE_AFFINITY = Object("NodeAffinity", {
    "requiredDuringSchedulingIgnoredDuringExecution": Object("NodeSelector", {"nodeSelectorTerms": Each(_TERM)}),
    "preferredDuringSchedulingIgnoredDuringExecution":
        Each(Object("PreferredSchedulingTerm", {"weight": NUMBER, "preference": _TERM})),
})  # fmt: skip
_POD_TERM = Object("PodAffinityTerm", {
    "labelSelector": _SELECTOR, "namespaces": Each(TEXT), "topologyKey": TEXT, "namespaceSelector": _SELECTOR,
    **_of(Each(TEXT), "matchLabelKeys mismatchLabelKeys"),
})  # fmt: skip
_POD_AFFINITY = Object("PodAffinity", {
    "requiredDuringSchedulingIgnoredDuringExecution": Each(_POD_TERM),
    "preferredDuringSchedulingIgnoredDuringExecution":
        Each(Object("WeightedPodAffinityTerm", {"weight": NUMBER, "podAffinityTerm": _POD_TERM})),
})  # fmt: skip
_SPREAD = Object("TopologySpreadConstraint", {
    **_of(NUMBER, "maxSkew minDomains"), "labelSelector": _SELECTOR, "matchLabelKeys": Each(TEXT),
    **_of(TEXT, "topologyKey whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy"),
})  # fmt: skip
_VOLUME = Object("Volume", {"name": TEXT, **_of(
    Map(ANY),
    "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc flexVolume "
    "flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs persistentVolumeClaim photonPersistentDisk "
    "portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume",
)})  # fmt: skip
_POD_SPEC = Object("PodSpec", {
    **_of(TEXT, "restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostname subdomain schedulerName"),
    **_of(TEXT, "priorityClassName runtimeClassName preemptionPolicy hostnameOverride"),
    **_of(NUMBER, "terminationGracePeriodSeconds activeDeadlineSeconds priority"),
    **_of(BOOL, "automountServiceAccountToken hostNetwork hostPID hostIPC shareProcessNamespace enableServiceLinks"),
    **_of(BOOL, "setHostnameAsFQDN hostUsers"),
    **_of(Each(_CONTAINER), "containers initContainers ephemeralContainers"),
    "nodeSelector": _TEXTS, "tolerations": Each(_TOLERATION), "overhead": Map(AMOUNT), "resources": _RESOURCES,
    "schedulingGates": Each(Object("PodSchedulingGate", {"name": TEXT})),
    "affinity": Object("Affinity", {
        "nodeAffinity": _NODE_AFFINITY, "podAffinity": _POD_AFFINITY, "podAntiAffinity": _POD_AFFINITY,
    }),
    "topologySpreadConstraints": Each(_SPREAD), "volumes": Each(_VOLUME),
    **_of(Map(ANY), "securityContext dnsConfig os schedulingGroup"),
    **_of(Each(Map(ANY)), "imagePullSecrets hostAliases readinessGates resourceClaims"),
})  # fmt: skip
_CONDITION = Object("Condition", {
    **_of(TEXT, "type status reason message"), **_of(TIME, "lastProbeTime lastHeartbeatTime lastTransitionTime"),
    "observedGeneration": NUMBER,
})  # fmt: skip
_CONDITIONS = Each(_CONDITION)
_POD_STATUS = Object("PodStatus", {
    **_of(TEXT, "phase message reason nominatedNodeName hostIP podIP qosClass resize"), "startTime": TIME,
    "observedGeneration": NUMBER, "conditions": _CONDITIONS,
    **_of(Each(Map(ANY)), "hostIPs podIPs initContainerStatuses containerStatuses ephemeralContainerStatuses"),
    **_of(ANY, "resourceClaimStatuses extendedResourceClaimStatus allocatedResources resources"),
})  # fmt: skip
_TEMPLATE = Object("PodTemplateSpec", {"metadata": _METADATA, "spec": _POD_SPEC})
_JOB_SPEC = Object("JobSpec", {
    **_of(NUMBER, "parallelism completions activeDeadlineSeconds backoffLimit backoffLimitPerIndex maxFailedIndexes"),
    "ttlSecondsAfterFinished": NUMBER, **_of(BOOL, "manualSelector suspend"), "selector": _SELECTOR,
    "template": _TEMPLATE, **_of(TEXT, "completionMode podReplacementPolicy managedBy"),
    **_of(ANY, "podFailurePolicy successPolicy scheduling"),
})  # fmt: skip
_JOB_STATUS = Object("JobStatus", {
    "conditions": _CONDITIONS, **_of(TEXT, "completedIndexes failedIndexes"),
    **_of(TIME, "startTime completionTime"),
    **_of(NUMBER, "active succeeded failed terminating ready"), "uncountedTerminatedPods": Map(ANY),
})  # fmt: skip
_DAEMON_SET_SPEC = Object("DaemonSetSpec", {
    "selector": _SELECTOR, "template": _TEMPLATE, "updateStrategy": Map(ANY),
    **_of(NUMBER, "minReadySeconds revisionHistoryLimit"),
})  # fmt: skip
_TAINT = Object("Taint", {**_of(TEXT, "key value effect"), "timeAdded": TIME})
_NODE_SPEC = Object("NodeSpec", {
    **_of(TEXT, "podCIDR providerID externalID"), "podCIDRs": Each(TEXT), "unschedulable": BOOL, "taints": Each(_TAINT),
    "configSource": ANY,
})  # fmt: skip
_NODE_STATUS = Object("NodeStatus", {
    **_of(Map(AMOUNT), "capacity allocatable"), "phase": TEXT, "conditions": _CONDITIONS,
    "addresses": Each(Object("NodeAddress", _of(TEXT, "type address"))), **_of(Map(ANY), "daemonEndpoints nodeInfo"),
    "images": Each(Map(ANY)), "volumesInUse": Each(TEXT), "volumesAttached": Each(Map(ANY)),
    **_of(ANY, "config runtimeHandlers features declaredFeatures"),
})  # fmt: skip
_LEASE_SPEC = Object("LeaseSpec", {
    **_of(TEXT, "holderIdentity strategy preferredHolder"), **_of(TIME, "acquireTime renewTime"),
    **_of(NUMBER, "leaseDurationSeconds leaseTransitions"),
})  # fmt: skip
_ENDPOINT = Object("Endpoint", {
    "addresses": Each(TEXT), "conditions": Object("EndpointConditions", _of(BOOL, "ready serving terminating")),
    **_of(TEXT, "hostname nodeName zone"), **_of(ANY, "targetRef deprecatedTopology hints"),
})  # fmt: skip
_ENDPOINT_PORT = Object("EndpointPort", {**_of(TEXT, "name protocol appProtocol"), "port": NUMBER})
_BUDGET_SPEC = Object("PodDisruptionBudgetSpec", {
    **_of(NUMBER_OR_TEXT, "minAvailable maxUnavailable"), "selector": _SELECTOR, "unhealthyPodEvictionPolicy": TEXT,
})  # fmt: skip
_BUDGET_STATUS = Object("PodDisruptionBudgetStatus", {
    **_of(NUMBER, "observedGeneration disruptionsAllowed currentHealthy desiredHealthy expectedPods"),
    "disruptedPods": Map(TIME), "conditions": _CONDITIONS,
})  # fmt: skip
_SERVICE_SPEC = Object("ServiceSpec", {
    **_of(TEXT, "clusterIP externalName externalTrafficPolicy internalTrafficPolicy ipFamilyPolicy loadBalancerClass"),
    **_of(TEXT, "loadBalancerIP sessionAffinity trafficDistribution type"), "healthCheckNodePort": NUMBER,
    **_of(Each(TEXT), "clusterIPs externalIPs ipFamilies loadBalancerSourceRanges"), "selector": _TEXTS,
    **_of(BOOL, "allocateLoadBalancerNodePorts publishNotReadyAddresses"), "sessionAffinityConfig": Map(ANY),
    "ports": Each(Object("ServicePort", {
        **_of(TEXT, "name protocol appProtocol"), **_of(NUMBER, "port nodePort"), "targetPort": NUMBER_OR_TEXT,
    })),
})  # fmt: skip
_SCHEMA_FIELDS: dict[str, Shape] = {}
_SCHEMA = Object("JSONSchemaProps", _SCHEMA_FIELDS)
_SCHEMA_FIELDS |= {
    **_of(TEXT, "id $schema $ref description type format title pattern x-kubernetes-list-type x-kubernetes-map-type"),
    **_of(ANY, "default example additionalProperties additionalItems definitions dependencies externalDocs"),
    **_of(ANY, "maximum minimum multipleOf"), "enum": Each(ANY), "required": Each(TEXT),
    **_of(NUMBER, "maxLength minLength maxItems minItems maxProperties minProperties"),
    **_of(BOOL, "exclusiveMaximum exclusiveMinimum uniqueItems nullable x-kubernetes-preserve-unknown-fields"),
    **_of(BOOL, "x-kubernetes-embedded-resource x-kubernetes-int-or-string"), "x-kubernetes-list-map-keys": Each(TEXT),
    **_of(Map(_SCHEMA), "properties patternProperties"), **_of(_SCHEMA, "items not"),
    **_of(Each(_SCHEMA), "allOf anyOf oneOf"),
    "x-kubernetes-validations": Each(Object("ValidationRule", {
        **_of(TEXT, "rule message messageExpression reason fieldPath"), "optionalOldSelf": BOOL,
    })),
}  # fmt: skip
_MATCHES = Object("MatchResources", {
    "matchPolicy": TEXT, **_of(_SELECTOR, "namespaceSelector objectSelector"),
    **_of(Each(Object("NamedRuleWithOperations", {
        **_of(Each(TEXT), "resourceNames operations apiGroups apiVersions resources"), "scope": TEXT,
    })), "resourceRules excludeResourceRules"),
})  # fmt: skip
_NAMED_EXPRESSION = Each(Object("Variable", _of(TEXT, "name expression")))
_EXPRESSION = Object("ApplyConfiguration", {"expression": TEXT})
_POLICY_SPEC = Object("MutatingAdmissionPolicySpec", {
    "paramKind": Object("ParamKind", _of(TEXT, "apiVersion kind")), "matchConstraints": _MATCHES,
    **_of(_NAMED_EXPRESSION, "variables matchConditions"), **_of(TEXT, "failurePolicy reinvocationPolicy"),
    "mutations": Each(Object("Mutation", {"patchType": TEXT, **_of(_EXPRESSION, "applyConfiguration jsonPatch")})),
})  # fmt: skip
_POLICY_BINDING_SPEC = Object("MutatingAdmissionPolicyBindingSpec", {
    "policyName": TEXT, "matchResources": _MATCHES, "paramRef": Map(ANY),
})  # fmt: skip
_REFERENCE = Object("ObjectReference", _of(TEXT, "kind namespace name uid apiVersion resourceVersion fieldPath"))
_TOLD = {
    **_of(TEXT, "reason type action reportingInstance"),
    "eventTime": TIME,
    "series": Map(ANY),
    "related": _REFERENCE,
}

_BODIES: dict[Kind, dict[str, Shape]] = {
    kinds.POD: {"spec": _POD_SPEC, "status": _POD_STATUS},
    kinds.NODE: {"spec": _NODE_SPEC, "status": _NODE_STATUS},
    kinds.JOB: {"spec": _JOB_SPEC, "status": _JOB_STATUS},
    kinds.DAEMON_SET: {"spec": _DAEMON_SET_SPEC, "status": Map(ANY)},
    kinds.NAMESPACE: {"spec": Map(ANY), "status": Map(ANY)},
    kinds.SERVICE: {"spec": _SERVICE_SPEC, "status": Map(ANY)},
    kinds.LEASE: {"spec": _LEASE_SPEC},
    kinds.ENDPOINT_SLICE: {
        "addressType": TEXT, "endpoints": Each(_ENDPOINT), "ports": Each(_ENDPOINT_PORT),
    },
    kinds.DISRUPTION_BUDGET: {"spec": _BUDGET_SPEC, "status": _BUDGET_STATUS},
    kinds.PRIORITY_CLASS: {
        "value": NUMBER, "globalDefault": BOOL, **_of(TEXT, "description preemptionPolicy"),
    },
    kinds.CONFIG_MAP: {**_of(_TEXTS, "data binaryData"), "immutable": BOOL},
    kinds.SECRET: {**_of(_TEXTS, "data stringData"), "type": TEXT, "immutable": BOOL},
    kinds.SERVICE_ACCOUNT: {**_of(Each(Map(ANY)), "secrets imagePullSecrets"), "automountServiceAccountToken": BOOL},
    kinds.EVENT: {
        **_TOLD, "involvedObject": _REFERENCE, "source": Map(ANY), "count": NUMBER,
        **_of(TEXT, "message reportingComponent"), **_of(TIME, "firstTimestamp lastTimestamp"),
    },
    kinds.EVENTS: {
        **_TOLD, "regarding": _REFERENCE, "deprecatedSource": Map(ANY), "deprecatedCount": NUMBER,
        **_of(TEXT, "note reportingController"), **_of(TIME, "deprecatedFirstTimestamp deprecatedLastTimestamp"),
    },
    kinds.CUSTOM_RESOURCE_DEFINITION: {
        "spec": Object("CustomResourceDefinitionSpec", {
            **_of(TEXT, "group scope"), "preserveUnknownFields": BOOL, "conversion": Map(ANY),
            "names": Object("CustomResourceDefinitionNames", {
                **_of(TEXT, "plural singular kind listKind"), **_of(Each(TEXT), "shortNames categories"),
            }),
            "versions": Each(Object("CustomResourceDefinitionVersion", {
                **_of(TEXT, "name deprecationWarning"), **_of(BOOL, "served storage deprecated"),
                "schema": Object("CustomResourceValidation", {"openAPIV3Schema": _SCHEMA}), "subresources": Map(ANY),
                "additionalPrinterColumns": Each(Map(ANY)), "selectableFields": Each(Map(ANY)),
            })),
        }),
        "status": Map(ANY),
    },
    kinds.MUTATING_POLICY: {"spec": _POLICY_SPEC},
    kinds.MUTATING_POLICY_BINDING: {"spec": _POLICY_BINDING_SPEC},
}  # fmt: skip
_SHAPES = {
    kind: Object(kind.name, {"kind": TEXT, "apiVersion": TEXT, "metadata": _METADATA, **fields})
    for kind, fields in _BODIES.items()
}
_BINDING = Object("Binding", {"kind": TEXT, "apiVersion": TEXT, "metadata": _METADATA, "target": _REFERENCE})
_DELETION = Object("DeleteOptions", {
    **_of(TEXT, "kind apiVersion propagationPolicy"), "gracePeriodSeconds": NUMBER, "orphanDependents": BOOL,
    "preconditions": Object("Preconditions", _of(TEXT, "uid resourceVersion")), "dryRun": Each(TEXT),
    "ignoreStoreReadErrorWithClusterBreakingPotential": BOOL,
})  # fmt: skip
_EVICTION = Object("Eviction", {
    "kind": TEXT, "apiVersion": TEXT, "metadata": _METADATA, "deleteOptions": _DELETION,
})  # fmt: skip
_OTHERS = {"Binding": _BINDING, "Eviction": _EVICTION, "DeleteOptions": _DELETION}
_CUSTOM = Object("Object", {"metadata": _METADATA})


def of_kind(kind: Kind) -> Object:
    """The shape of a built-in kind."""
    return _SHAPES[kind]


def known(kind: Kind, obj: Json, unknown: list[str], stored: Json | None = None) -> Json:
    """The object with only the fields of its kind; others go to `unknown`. Raises Failure (400).

    `stored`: the object before a change. Identical parts were already checked when they were stored.
    """
    if kind.is_custom:
        metadata = obj.get("metadata")
        checked = _checked(kind.name, _METADATA, metadata, "metadata", "ObjectMeta", [])
        return obj if checked is metadata else {**obj, "metadata": checked}
    done: Json = _checked(kind.name, _SHAPES[kind], obj, "", kind.name, unknown, stored)
    return done


def known_other(name: str, obj: Json) -> Json:
    """The same for a body that is not stored: Binding, Eviction, DeleteOptions."""
    done: Json = _checked(name, _OTHERS[name], obj, "", name, [])
    return done


def _checked(
    kind: str, shape: Shape, value: Any, path: str, struct: str, unknown: list[str], stored: Any = None
) -> Any:
    if value is None or shape == ANY:
        return value
    match shape:
        case Object(name, fields):
            if not isinstance(value, dict):
                raise _unreadable(kind, value, struct, path, f"v1.{name}")
            return _fields(kind, name, fields, value, path, unknown, stored if isinstance(stored, dict) else {})
        case Map(of):
            if not isinstance(value, dict):
                raise _unreadable(kind, value, struct, path, "map[string]string")
            if of == ANY:
                return value
            done = {key: _checked(kind, of, each, path, struct, unknown) for key, each in value.items()}
            if of == TEXT:
                # A null text is read as an empty text.
                done = {key: "" if each is None else each for key, each in done.items()}
            return value if done == value else done
        case Each(of):
            if not isinstance(value, list):
                raise _unreadable(kind, value, struct, path, "[]string")
            items = [
                _checked(kind, of, each, f"{path}[{at}]", struct, unknown) if each is not None or of == ANY
                else _empty(of) for at, each in enumerate(value)
            ]  # fmt: skip
            return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return _checked_plain(kind, str(shape), value, path, struct)


def _checked_plain(kind: str, shape: str, value: Any, path: str, struct: str) -> Any:
    if not isinstance(value, _TYPES[shape]) or (isinstance(value, bool) and shape != BOOL):
        raise _unreadable(kind, value, struct, path, shape)
    if shape == TIME and isinstance(value, str) and value and not is_time(value):
        layout = "2006-01-02T15:04:05Z07:00"
        said = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {said}')
    if shape in (NUMBER, NUMBER_OR_TEXT) and isinstance(value, int | float):
        is_long = shape == NUMBER and path.rpartition(".")[2] in _LONG
        most = 2**63 if is_long else 2**31
        if isinstance(value, float) or not -most <= value < most:
            raise _unreadable(kind, value, struct, path, "int64" if is_long else "int32", number=True)
    return value


def _empty(shape: Shape) -> Any:
    return "" if shape == TEXT else {}


def _fields(
    kind: str, name: str, fields: Mapping[str, Shape], value: Json, path: str, unknown: list[str], stored: Json
) -> Json:
    done: Json = {}
    changed = False
    for key, each in value.items():
        where = f"{path}.{key}" if path else key
        shape = fields.get(key)
        if shape is None:
            unknown.append(where)
            changed = True
            continue
        before = stored.get(key)
        if before is each:
            done[key] = each
            continue
        done[key] = _checked(kind, shape, each, where, name, unknown, before)
        changed = changed or done[key] is not each
    return done if changed else value


def _unreadable(kind: str, value: Any, struct: str, path: str, wanted: str, *, number: bool = False) -> Exception:
    """The error for a value of a wrong type. `number`: shows the number that does not fit."""
    shown = "".join(part.partition("[")[0] + "." for part in path.split(".")).rstrip(".")
    if wanted == AMOUNT:
        return unreadable_quantity(kind)
    if wanted == NUMBER_OR_TEXT:
        wanted = NUMBER
    given = f"number {msgspec.json.encode(value).decode()}" if number else go_kind(value)
    said = f"json: cannot unmarshal {given} into Go struct field {struct}.{shown} of type {wanted}"
    return bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {said}')
