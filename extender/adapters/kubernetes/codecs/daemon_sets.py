"""DaemonSets (apps/v1): which nodes each DaemonSet wants a pod on.

With this, Escher tells a DaemonSet's pods from pods that only claim such an owner. A watch follows the DaemonSets: an
eviction sends no request for each owner. A tenant can name any number of owners, and no eviction waits for them.
"""

from __future__ import annotations

from msgspec import Struct

from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind, spec_within
from extender.adapters.translation.pod_constraints import read_selector
from extender.adapters.translation.pod_sizes import selected
from extender.core.daemons import DaemonSet
from extender.kube.client.requests import address
from extender.kube.node_match import Toleration
from extender.kube.objects import Affinity, LabelSelector, PodSpec, TolerationJson
from extender.kube.reading import required_terms, tolerations_of

GROUP, VERSION, PLURAL = "apps", "v1", "daemonsets"
_MOST = 256
"""Most values and tolerations in a DaemonSet's rules, which Escher often compares."""
_LONGEST = 2**18
"""Bytes: a longer spec is not decoded."""


class _Json(Struct, rename="camel", gc=False):
    pass


class DaemonSetMetadata(_Json):
    uid: str
    name: str
    namespace: str
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _PodSpec(_Json):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationJson] | None = None
    host_network: bool | None = None


class _Template(_Json):
    spec: _PodSpec


class DaemonSetSpec(_Json):
    template: _Template
    selector: LabelSelector | None = None


class DaemonSetJson(_Json):
    metadata: DaemonSetMetadata
    spec: DaemonSetSpec | None


_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_ON_HOST_NETWORK = ("network-unavailable", "NoSchedule")
"""Tolerations that the DaemonSet controller adds (AddOrUpdateDaemonPodTolerations, 1.36)."""


def to_daemon_set(found: DaemonSetJson) -> DaemonSet:
    """Converts the DaemonSet; one with more than `_MOST` rules wants no pod anywhere."""
    metadata = found.metadata
    none = DaemonSet(metadata.uid, metadata.namespace, metadata.name, deleting=True)
    if found.spec is None:
        return none
    pod = found.spec.template.spec
    added = (*_TOLERATED, _ON_HOST_NETWORK) if pod.host_network else _TOLERATED
    length = _length(pod.affinity) + selected(found.spec.selector) + len(pod.node_selector or ())
    length += len(pod.tolerations or ())
    if length > _MOST:
        return none
    return DaemonSet(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        selector=read_selector(found.spec.selector),
        node=pod.node_name or "",
        node_selector=pod.node_selector or {},
        affinity=required_terms(pod.affinity),
        tolerations=(
            *tolerations_of(PodSpec([], tolerations=pod.tolerations)),
            *(Toleration(f"node.kubernetes.io/{key}", "Exists", "", effect) for key, effect in added),
        ),
        deleting=metadata.deletion_timestamp is not None,
    )


def _length(affinity: Affinity | None) -> int:
    of_nodes = affinity and affinity.node_affinity
    required = of_nodes and of_nodes.required_during_scheduling_ignored_during_execution
    terms = (required and required.node_selector_terms) or ()
    lines = (each for term in terms for each in (*(term.match_expressions or ()), *(term.match_fields or ())))
    return len(terms) + sum(1 + len(each.values or ()) for each in lines)


def daemon_sets() -> WatchedKind[DaemonSet]:
    path = address("apis", GROUP, VERSION, PLURAL)
    return WatchedKind("daemonsets", path, DaemonSetJson, to_daemon_set, spec_within(_LONGEST, b"null"))
