"""Pod constraints: reads what a pod requires of other pods, volumes and devices.

Sources: component-helpers' and kube-scheduler's GetAffinityTerms, topologySpreadConstraint and GetHostPorts (1.36).
What Escher can evaluate becomes `core.affinity.constraints`. `read_unknown_asks` names the rest, constant for the same
pod. matchLabelKeys become requirements on the pod's own labels, as the API server does for those of pod affinity. Only
what is required is read: preferences and ScheduleAnyway never keep a pod from a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern

from extender.core.affinity.constraints import EVERY_ADDRESS, AffinityTerm, Constraints, HostPort, Peers, Spread
from extender.kube.label_match import LabelRequirement, Selector
from extender.kube.objects import (
    Anything,
    ContainerPort,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    SpreadConstraint,
    Volume,
)

_SHARED = 64
"""Most ports, terms, keys, values and namespaces of constraints that are shared."""
VOLUME_CLAIMS = "volume claims"
SHARED_DISKS = "disks that one node at a time may mount"
RESOURCE_CLAIMS = "resource claims"
_NO_DISKS = (None, None, None, None)
NAMESPACE_SELECTORS = "pod affinity with a namespace selector"


def read_constraints(
    namespace: str,
    labels: Mapping[str, str],
    ports: Sequence[ContainerPort],
    near: PodAffinity | None,
    apart: PodAffinity | None,
    spread: Sequence[SpreadConstraint],
    *,
    on_host_network: bool,
) -> Constraints | None:
    """None if the pod requires nothing of others. `ports`: of all containers that keep running."""
    host_ports = tuple(dict.fromkeys(_host_ports(ports, on_host_network=on_host_network)))
    if not host_ports and near is None and apart is None and not spread:
        # Most pods have ports, but few have host ports.
        return None
    found = Constraints(
        host_ports=host_ports,
        affinity=tuple(_terms(near, namespace, labels)),
        anti_affinity=tuple(_terms(apart, namespace, labels)),
        spread=tuple(_spread(each, namespace, labels) for each in spread if each.when_unsatisfiable == "DoNotSchedule"),
    )
    if not found:
        return None
    return _shared(found) if _few(found) else found


def read_unknown_asks(
    near: PodAffinity | None, apart: PodAffinity | None, volumes: Sequence[Volume], resource_claims: Sequence[Anything]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    if any(each.persistent_volume_claim is not None or each.ephemeral is not None for each in volumes):
        found[VOLUME_CLAIMS] = None
    if any(_is_shared_disk(each) for each in volumes):
        found[SHARED_DISKS] = None
    if resource_claims:
        found[RESOURCE_CLAIMS] = None
    if (near or apart) and any(_selects_namespaces(term) for term in (*_required(near), *_required(apart))):
        found[NAMESPACE_SELECTORS] = None
    return tuple(found)


def _is_shared_disk(volume: Volume) -> bool:
    return (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd) != _NO_DISKS


def _host_ports(ports: Sequence[ContainerPort], *, on_host_network: bool) -> Iterator[HostPort]:
    for each in ports:
        if number := each.host_port or (each.container_port if on_host_network else 0):
            yield HostPort(number, intern(each.protocol or "TCP"), intern(each.host_ip or EVERY_ADDRESS))


def _required(affinity: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return (affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None) or ()


def _selects_namespaces(term: PodAffinityTerm) -> bool:
    """Whether it depends on labels of namespaces, which are not read here. Empty selects all."""
    return term.namespace_selector is not None and bool(_requirements(term.namespace_selector))


def _terms(affinity: PodAffinity | None, namespace: str, labels: Mapping[str, str]) -> Iterator[AffinityTerm]:
    for term in _required(affinity):
        if term.namespace_selector is not None and not _selects_namespaces(term):
            namespaces = None
        else:
            # The namespaces that a selector adds are unknown: see `NAMESPACE_SELECTORS`.
            named = term.namespaces or (() if term.namespace_selector is not None else (namespace,))
            namespaces = frozenset(map(intern, named))
        selector = _selector(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
        yield AffinityTerm(Peers(namespaces, selector), intern(term.topology_key))


def _spread(constraint: SpreadConstraint, namespace: str, labels: Mapping[str, str]) -> Spread:
    selector = _selector(constraint.label_selector, labels, constraint.match_label_keys)
    return Spread(
        Peers(frozenset((intern(namespace),)), selector),
        intern(constraint.topology_key),
        constraint.max_skew,
        constraint.min_domains or 1,
        constraint.node_affinity_policy != "Ignore",
        constraint.node_taints_policy == "Honor",
    )


def _selector(
    selector: LabelSelector | None,
    own: Mapping[str, str],
    same: Sequence[str] | None,
    other: Sequence[str] | None = None,
) -> Selector:
    if selector is None:
        return None
    keys = (("In", same or ()), ("NotIn", other or ()))
    by_key = [LabelRequirement(key, op, (own[key],)) for op, named in keys for key in named if key in own]
    return tuple(dict.fromkeys((*_requirements(selector), *by_key)))


def read_selector(selector: LabelSelector | None) -> Selector:
    """Returns the selector's requirements, as they are written."""
    return _selector(selector, {}, None)


def _requirements(selector: LabelSelector) -> tuple[LabelRequirement, ...]:
    exact = [LabelRequirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    expressions = selector.match_expressions or ()
    return (*exact, *(LabelRequirement(each.key, each.operator, tuple(each.values or ())) for each in expressions))


def _few(found: Constraints) -> bool:
    """Whether the constraints are shared. Shared ones are kept, also when no pod has them now."""
    peers = [each.peers for each in (*found.affinity, *found.anti_affinity)] + [each.peers for each in found.spread]
    lines = [line for each in peers for line in each.selector or ()]
    named = sum(len(each.namespaces or ()) for each in peers) + sum(len(line.values) for line in lines)
    return len(found.host_ports) + len(peers) + len(lines) + named <= _SHARED


@lru_cache(maxsize=4096)
def _shared(constraints: Constraints) -> Constraints:
    """Returns one object for all equal constraints."""
    return constraints
