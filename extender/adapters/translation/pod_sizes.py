"""Pod sizes: limits how much of each field of a pod is read, whatever the API server accepts.

Nothing is kept of a field that exceeds its limit. A filter refuses a waiting pod with such a field, and names the
field, the size found and the size allowed. `outlined` checks the length of fields before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from extender.core.gang_ask import MalformedAsk, too_much
from extender.core.names import DOMAIN
from extender.core.policies.policy_matching import LONGEST_NAMES, POLICY
from extender.kube.names import LABEL_LIMIT
from extender.kube.nesting import Decoder
from extender.kube.objects import (
    Container,
    LabelSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodMetadata,
    PodSpec,
    SelectorRequirement,
    SpreadConstraint,
)

T = TypeVar("T")

POLICY_TEXT = f"annotation {POLICY}"
OURS = f"annotations of {DOMAIN}"
LABELS = "metadata.labels"
ANNOTATIONS = "metadata.annotations"
OWNERS = "metadata.ownerReferences"
GATES = "spec.schedulingGates"
NODE_SELECTOR = "spec.nodeSelector"
AFFINITY = "spec.affinity"
NODE_AFFINITY = "spec.affinity.nodeAffinity"
POD_AFFINITY = "spec.affinity.podAffinity"
POD_ANTI_AFFINITY = "spec.affinity.podAntiAffinity"
SPREAD = "spec.topologySpreadConstraints"
TOLERATIONS = "spec.tolerations"
CONTAINERS, INIT_CONTAINERS = "spec.containers", "spec.initContainers"
VOLUMES = "spec.volumes"
CLAIMS = "spec.resourceClaims"

_MOST = 256
_TERM, _LINE = 16, 4
"""Weights of a term about other pods, and of a key in it: each is compared with pods repeatedly."""
_TERMS = "terms, keys, values and namespaces"
MOST: Mapping[str, tuple[int, str]] = {
    POLICY_TEXT: (LONGEST_NAMES, "characters"),
    OURS: (8192, "characters"),
    LABELS: (_MOST, "labels"),
    ANNOTATIONS: (1000, "annotations"),
    OWNERS: (_MOST, "owners"),
    GATES: (64, "gates"),
    NODE_SELECTOR: (_MOST, "labels"),
    NODE_AFFINITY: (_MOST, _TERMS),
    POD_AFFINITY: (_MOST, _TERMS),
    POD_ANTI_AFFINITY: (_MOST, _TERMS),
    SPREAD: (_MOST, _TERMS),
    TOLERATIONS: (_MOST, "tolerations"),
    CONTAINERS: (1024, "containers, resources and ports"),
    INIT_CONTAINERS: (1024, "containers, resources and ports"),
    VOLUMES: (1000, "volumes"),
    CLAIMS: (_MOST, "claims"),
}
"""For each field: how much of it is read at most, and the unit of that number."""


_GLANCE = 30
"""Fields with at most this many items, in each container too, are within all limits."""
LONG = 2**17
"""Bytes of a pod from which on the length of its fields is checked before they are decoded."""
LONGEST: Mapping[str, int] = {
    **dict.fromkeys((LABELS, OWNERS, GATES, NODE_SELECTOR, AFFINITY, SPREAD, TOLERATIONS, VOLUMES, CLAIMS), 2**16),
    **dict.fromkeys((CONTAINERS, INIT_CONTAINERS), 2**18),
}
"""Most bytes of each field that are decoded. Those of containers include commands and variables."""


def outlined(pod: bytes | Raw) -> bytes | Raw:
    """Returns the pod's JSON without the fields that are too long, whose sizes are then in `cut`.

    Raises msgspec.DecodeError."""
    if len(memoryview(pod)) < LONG:
        return pod
    whole = _outlines.decode(pod)
    cut: dict[str, int] = {}
    for field, most in LONGEST.items():
        section, _, name = field.partition(".")
        of = getattr(whole, section)
        if (size := len(memoryview(getattr(of, name)))) > most:
            cut[field] = size
            setattr(of, name, _EMPTY if field == CONTAINERS else _ABSENT)
    if not cut:
        return pod
    return msgspec.json.encode({"metadata": whole.metadata, "spec": whole.spec, "status": whole.status, "cut": cut})


_ABSENT, _EMPTY = Raw(b"null"), Raw(b"[]")


def _outline_of(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Returns a type with the same fields, all of them undecoded."""
    names = [each.encode_name for each in msgspec.structs.fields(shape)]
    return msgspec.defstruct(f"{shape.__name__}Outline", [(name, Raw, _ABSENT) for name in names])


_Metadata, _Spec = _outline_of(PodMetadata), _outline_of(PodSpec)


class _Outline(msgspec.Struct):
    metadata: _Metadata  # type: ignore[valid-type]
    spec: _Spec  # type: ignore[valid-type]
    status: Raw = _ABSENT


_outlines: Decoder[Any] = Decoder(_Outline)


def excess(pod: Pod, ours: Mapping[str, str]) -> MalformedAsk | None:
    """The first field above its limit, or None. `ours`: the annotations that policies read."""
    if _is_small(pod, ours):
        return None
    if cut := next(((each, found) for each, found in (pod.cut or {}).items() if each in LONGEST), None):
        return too_much(*cut, LONGEST[cut[0]], "bytes")
    return next(
        (too_much(each, found, *MOST[each]) for each, found in _found(pod, ours) if found > MOST[each][0]), None
    )


def within(pod: Pod) -> Pod:
    """Returns the pod without the fields above their limits; of containers the first are kept."""
    over = {each for each, found in _found(pod, {}) if found > MOST[each][0]}
    spec: dict[str, Any] = {name: None for name, each in _DROPPED.items() if each in over}
    if (affinity := pod.spec.affinity) is not None:
        spec["affinity"] = replace(affinity, **{name: None for name, each in _AFFINITY.items() if each in over})
    for name, each, there in (
        ("containers", CONTAINERS, pod.spec.containers),
        ("init_containers", INIT_CONTAINERS, pod.spec.init_containers or []),
    ):
        if each in over:
            spec[name] = list(_first(there))
    labels = None if LABELS in over else pod.metadata.labels
    return replace(pod, metadata=replace(pod.metadata, labels=labels), spec=replace(pod.spec, **spec))


_DROPPED = {"node_selector": NODE_SELECTOR, "topology_spread_constraints": SPREAD, "tolerations": TOLERATIONS}
_AFFINITY = {"node_affinity": NODE_AFFINITY, "pod_affinity": POD_AFFINITY, "pod_anti_affinity": POD_ANTI_AFFINITY}


def _first(containers: Iterable[Container]) -> Iterator[Container]:
    left = MOST[CONTAINERS][0]
    for each in containers:
        left -= _size_of(each)
        if left < 0:
            return
        yield each


def _is_small(pod: Pod, ours: Mapping[str, str]) -> bool:
    """Whether a cheap check shows that no field exceeds its limit, as for nearly all pods."""
    metadata, spec = pod.metadata, pod.spec
    if ours or spec.affinity is not None or spec.topology_spread_constraints or pod.cut:
        return False
    for each in (
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        spec.scheduling_gates,
        spec.node_selector,
        spec.tolerations,
        spec.init_containers,
        spec.volumes,
        spec.resource_claims,
        spec.containers,
    ):
        if each and len(each) > _GLANCE:
            return False
    for container in spec.containers + spec.init_containers if spec.init_containers else spec.containers:
        if _size_of(container) > _GLANCE:
            return False
    return True


# -- what the pod has ---------------------------------------------------------------------------------------------


def _found(pod: Pod, ours: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    metadata, spec = pod.metadata, pod.spec
    if ours:
        yield POLICY_TEXT, len(ours.get(POLICY, ""))
        yield OURS, sum(map(len, chain.from_iterable(ours.items())))
    if metadata.labels:
        yield LABELS, len(metadata.labels)
    if metadata.annotations:
        yield ANNOTATIONS, len(metadata.annotations)
    if metadata.owner_references:
        yield OWNERS, len(metadata.owner_references)
    if spec.scheduling_gates:
        yield GATES, len(spec.scheduling_gates)
    if spec.node_selector:
        yield NODE_SELECTOR, len(spec.node_selector)
    if (affinity := spec.affinity) is not None:
        required = affinity.node_affinity and affinity.node_affinity.required_during_scheduling_ignored_during_execution
        yield NODE_AFFINITY, _total((required and required.node_selector_terms) or (), _on_nodes)
        yield POD_AFFINITY, _around(affinity.pod_affinity)
        yield POD_ANTI_AFFINITY, _around(affinity.pod_anti_affinity)
    if spec.topology_spread_constraints:
        yield SPREAD, _total(spec.topology_spread_constraints, _spread)
    if spec.tolerations:
        yield TOLERATIONS, len(spec.tolerations)
    yield CONTAINERS, _total(spec.containers, _size_of, MOST[CONTAINERS][0])
    if spec.init_containers:
        yield INIT_CONTAINERS, _total(spec.init_containers, _size_of, MOST[INIT_CONTAINERS][0])
    if spec.volumes:
        yield VOLUMES, len(spec.volumes)
    if spec.resource_claims:
        yield CLAIMS, len(spec.resource_claims)


def _size_of(container: Container) -> int:
    asks = container.resources
    amounts = 0 if asks is None else len(asks.requests or ()) + len(asks.limits or ())
    return 1 + amounts + len(container.ports or ())


def _total(things: Sequence[T], size: Callable[[T], int], most: int = _MOST) -> int:
    """Returns the size of all things; for more than `most` only their number."""
    return len(things) if len(things) > most else sum(map(size, things))


def _on_nodes(term: NodeSelectorTerm) -> int:
    return 1 + _lines(term.match_expressions or ()) + _lines(term.match_fields or ())


def _lines(requirements: Sequence[SelectorRequirement]) -> int:
    return _total(requirements, _line)


def _line(requirement: SelectorRequirement) -> int:
    """Counts the requirement and its values; a value longer than a label may be counts for more."""
    values = requirement.values or ()
    return 1 + len(values) + sum(map(len, values)) // (LABEL_LIMIT + 1)


def _around(affinity: PodAffinity | None) -> int:
    return _total((affinity and affinity.required_during_scheduling_ignored_during_execution) or (), _term)


def _term(each: PodAffinityTerm) -> int:
    named = len(each.namespaces or ()) + _LINE * (
        len(each.match_label_keys or ()) + len(each.mismatch_label_keys or ())
    )
    return _TERM + named + selected(each.label_selector, _LINE) + selected(each.namespace_selector, _LINE)


def _spread(each: SpreadConstraint) -> int:
    return _TERM + selected(each.label_selector, _LINE) + _LINE * len(each.match_label_keys or ())


def selected(selector: LabelSelector | None, line: int = 1) -> int:
    """Returns how many labels and values the selector names. `line`: weight of each label."""
    if selector is None:
        return 0
    lines = _total(selector.match_expressions or (), lambda each: line + len(each.values or ()))
    return line * len(selector.match_labels or ()) + lines
