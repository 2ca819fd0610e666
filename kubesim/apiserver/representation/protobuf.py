"""Protobuf: decodes the objects that Go programs send, into their JSON form.

`kubectl create namespace` (configmap, secret, job, ...) and every typed client of client-go send such bodies. They do
not fall back to JSON, though they read answers in JSON. The decoder has the kinds and fields that kubectl's own
generators write. It refuses an unknown field and never drops it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kubesim.kinds import Json

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotUnderstood(Exception):
    """The body is not protobuf, or has an unknown part, which the text names."""


def decode(body: bytes) -> Json:
    """The object in the body, with its apiVersion and kind. Raises NotUnderstood."""
    if not body.startswith(_MAGIC):
        raise NotUnderstood("the body does not begin as Kubernetes' protobuf does")
    envelope = _message("Unknown", body[len(_MAGIC) :])
    named = envelope.get("typeMeta") or {}
    kind = named.get("kind", "")
    if kind not in _OBJECTS or envelope.get("contentEncoding"):
        raise NotUnderstood(f"objects of kind {kind!r} are not understood as protobuf; send JSON")
    return named | _message(kind, envelope.get("raw", b""))


@dataclass(frozen=True)
class _Field:
    """A field of a message. `kept`: it is set even if empty or 0, because it is a pointer in Go."""

    name: str
    of_type: str
    kept: bool
    repeated: bool
    mapped: bool


@cache
def _fields(message: str) -> dict[int, _Field]:
    fields = {}
    for each in _MESSAGES[message].split(","):
        number, name, of_type = each.split()
        bare = of_type.rstrip("?[]{}")
        fields[int(number)] = _Field(name, bare, "?" in of_type, "[]" in of_type, "{}" in of_type)
    return fields


def _message(message: str, content: bytes) -> Json:
    known = _fields(message)
    found: Json = {}
    for number, value in _parts(content):
        field = known.get(number)
        if field is None:
            if value:
                raise NotUnderstood(f"field {number} of {message} is not understood as protobuf; send JSON")
        elif field.mapped:
            entry = dict(_parts(_bytes(value)))
            found.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.of_type, entry.get(2, b""))
        elif field.repeated:
            found.setdefault(field.name, []).append(_value(field.of_type, value))
        elif (meant := _value(field.of_type, value)) or (field.kept and meant is not None):
            found[field.name] = meant
    return found


def _parts(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message as number and value: an integer, or bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, at = _varint(content, at)
            yield number, value
            continue
        if wire_type == _LENGTH:
            size, at = _varint(content, at)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise NotUnderstood(f"the body has a field of the unknown wire type {wire_type}")
        if at + size > len(content):
            raise NotUnderstood("the body ends in the middle of a field")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise NotUnderstood("the body ends in the middle of a number")


def _value(of_type: str, value: int | bytes) -> Any:
    made = _SCALARS.get(of_type)
    return made(value) if made else _message(of_type, _bytes(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise NotUnderstood("the body has a number where text or a message should be")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise NotUnderstood("the body has text that is not UTF-8") from None


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise NotUnderstood("the body has bytes where a number should be")
    return value - (1 << 64) if value >= 1 << 63 else value


def _int_or_string(value: int | bytes) -> int | str:
    parts = dict(_parts(_bytes(value)))
    return _text(parts.get(3, b"")) if parts.get(1) else _number(parts.get(2, 0))


def _time(value: int | bytes) -> str | None:
    """The time; None for an empty message."""
    parts = dict(_parts(_bytes(value)))
    if not parts:
        return None
    try:
        time = _EPOCH + timedelta(seconds=_number(parts.get(1, 0)))
    except OverflowError:
        raise NotUnderstood("the body has a time that is out of reach") from None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "text": _text,
    "int": _number,
    "bool": lambda value: bool(_number(value)),
    "raw": _bytes,
    "base64": lambda value: b64encode(_bytes(value)).decode(),
    "time": _time,
    "int-or-text": _int_or_string,
    "quantity": lambda value: _text(dict(_parts(_bytes(value))).get(1, b"")),
}

_OBJECTS = frozenset(
    (
        *("Namespace", "ConfigMap", "Secret", "ServiceAccount", "Service", "Pod", "Binding"),
        *("Job", "PriorityClass", "PodDisruptionBudget", "Eviction", "DeleteOptions"),
        *("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview", "TokenReview"),
        *("SubjectAccessReview", "LocalSubjectAccessReview"),
    )
)
"""The supported kinds; no two of different groups have the same name."""

_WITH_SPEC = "1 metadata ObjectMeta, 2 spec {spec}, 3 status Nothing"

_MESSAGES = {
    "Unknown": "1 typeMeta TypeMeta, 2 raw raw, 3 contentEncoding text, 4 contentType text",
    "TypeMeta": "1 apiVersion text, 2 kind text",
    "Nothing": "0 none text",
    "ObjectMeta": (
        "1 name text, 2 generateName text, 3 namespace text, 4 selfLink text, 5 uid text, 6 resourceVersion text,"
        "7 generation int, 8 creationTimestamp time, 9 deletionTimestamp time, 10 deletionGracePeriodSeconds int?,"
        "11 labels text{}, 12 annotations text{}, 13 ownerReferences OwnerReference[], 14 finalizers text[]"
    ),
    "OwnerReference": (
        "5 apiVersion text, 1 kind text, 3 name text, 4 uid text, 6 controller bool?, 7 blockOwnerDeletion bool?"
    ),
    "LabelSelector": "1 matchLabels text{}, 2 matchExpressions LabelSelectorRequirement[]",
    "LabelSelectorRequirement": "1 key text, 2 operator text, 3 values text[]",
    "DeleteOptions": (
        "1 gracePeriodSeconds int?, 2 preconditions Preconditions?, 3 orphanDependents bool?,"
        "4 propagationPolicy text?, 5 dryRun text[]"
    ),
    "Preconditions": "1 uid text?, 2 resourceVersion text?",
    "Namespace": _WITH_SPEC.format(spec="NamespaceSpec"),
    "NamespaceSpec": "1 finalizers text[]",
    "ConfigMap": "1 metadata ObjectMeta, 4 immutable bool?, 2 data text{}, 3 binaryData base64{}",
    "Secret": "1 metadata ObjectMeta, 5 immutable bool?, 2 data base64{}, 4 stringData text{}, 3 type text",
    "ServiceAccount": (
        "1 metadata ObjectMeta, 2 secrets ObjectReference[], 3 imagePullSecrets LocalObjectReference[],"
        "4 automountServiceAccountToken bool?"
    ),
    "LocalObjectReference": "1 name text",
    "ObjectReference": (
        "1 kind text, 2 namespace text, 3 name text, 4 uid text, 5 apiVersion text, 6 resourceVersion text,"
        "7 fieldPath text"
    ),
    "Service": _WITH_SPEC.format(spec="ServiceSpec"),
    "ServiceSpec": (
        "1 ports ServicePort[], 2 selector text{}, 3 clusterIP text, 18 clusterIPs text[], 4 type text,"
        "5 externalIPs text[], 7 sessionAffinity text, 10 externalName text, 13 publishNotReadyAddresses bool"
    ),
    "ServicePort": (
        "1 name text, 2 protocol text, 6 appProtocol text?, 3 port int, 4 targetPort int-or-text, 5 nodePort int"
    ),
    "Binding": "1 metadata ObjectMeta, 2 target ObjectReference",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions?",
    "PriorityClass": (
        "1 metadata ObjectMeta, 2 value int?, 3 globalDefault bool, 4 description text, 5 preemptionPolicy text?"
    ),
    "PodDisruptionBudget": _WITH_SPEC.format(spec="PodDisruptionBudgetSpec"),
    "PodDisruptionBudgetSpec": (
        "1 minAvailable int-or-text?, 2 selector LabelSelector?, 3 maxUnavailable int-or-text?,"
        "4 unhealthyPodEvictionPolicy text?"
    ),
    "Job": _WITH_SPEC.format(spec="JobSpec"),
    "JobSpec": (
        "1 parallelism int?, 2 completions int?, 3 activeDeadlineSeconds int?, 7 backoffLimit int?,"
        "4 selector LabelSelector?, 5 manualSelector bool?, 6 template PodTemplateSpec, 8 ttlSecondsAfterFinished int?,"
        "9 completionMode text?, 10 suspend bool?, 14 podReplacementPolicy text?, 15 managedBy text?"
    ),
    "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
    "Pod": _WITH_SPEC.format(spec="PodSpec"),
    "PodSpec": (
        "20 initContainers Container[], 2 containers Container[], 3 restartPolicy text,"
        "4 terminationGracePeriodSeconds int?, 5 activeDeadlineSeconds int?, 6 dnsPolicy text, 7 nodeSelector text{},"
        "8 serviceAccountName text, 9 serviceAccount text, 10 nodeName text, 11 hostNetwork bool, 12 hostPID bool,"
        "13 hostIPC bool, 15 imagePullSecrets LocalObjectReference[], 16 hostname text, 17 subdomain text,"
        "19 schedulerName text, 21 automountServiceAccountToken bool?, 22 tolerations Toleration[],"
        "24 priorityClassName text, 25 priority int?, 27 shareProcessNamespace bool?, 29 runtimeClassName text?,"
        "30 enableServiceLinks bool?, 31 preemptionPolicy text?, 32 overhead quantity{},"
        "38 schedulingGates PodSchedulingGate[]"
    ),
    "PodSchedulingGate": "1 name text",
    "Toleration": "1 key text, 2 operator text, 3 value text, 4 effect text, 5 tolerationSeconds int?",
    "Container": (
        "1 name text, 2 image text, 3 command text[], 4 args text[], 5 workingDir text, 6 ports ContainerPort[],"
        "7 env EnvVar[], 8 resources ResourceRequirements, 13 terminationMessagePath text, 14 imagePullPolicy text,"
        "16 stdin bool, 17 stdinOnce bool, 18 tty bool, 20 terminationMessagePolicy text, 24 restartPolicy text?"
    ),
    "ContainerPort": "1 name text, 2 hostPort int, 3 containerPort int, 4 protocol text, 5 hostIP text",
    "EnvVar": "1 name text, 2 value text",
    "ResourceRequirements": "1 limits quantity{}, 2 requests quantity{}",
    "SelfSubjectAccessReview": _WITH_SPEC.format(spec="SubjectAccessReviewSpec"),
    "SubjectAccessReview": _WITH_SPEC.format(spec="SubjectAccessReviewSpec"),
    "LocalSubjectAccessReview": _WITH_SPEC.format(spec="SubjectAccessReviewSpec"),
    "SubjectAccessReviewSpec": (
        "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes, 3 user text,"
        "4 groups text[], 6 uid text"
    ),
    "ResourceAttributes": (
        "1 namespace text, 2 verb text, 3 group text, 4 version text, 5 resource text, 6 subresource text, 7 name text,"
        "8 fieldSelector SelectorAttributes, 9 labelSelector SelectorAttributes"
    ),
    "NonResourceAttributes": "1 path text, 2 verb text",
    "SelectorAttributes": "1 rawSelector text, 2 requirements LabelSelectorRequirement[]",
    "SelfSubjectRulesReview": _WITH_SPEC.format(spec="SelfSubjectRulesReviewSpec"),
    "SelfSubjectRulesReviewSpec": "1 namespace text",
    "SelfSubjectReview": "1 metadata ObjectMeta, 2 status SelfSubjectReviewStatus",
    "SelfSubjectReviewStatus": "1 userInfo Nothing",
    "TokenReview": _WITH_SPEC.format(spec="TokenReviewSpec"),
    "TokenReviewSpec": "1 token text, 2 audiences text[]",
}
"""The messages of Kubernetes' API: number, name and type of each field.

`[]` is a list, `{}` a map from text; `?` is a field that is kept when it is empty or 0.
"""
