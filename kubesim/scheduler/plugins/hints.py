"""Hints: decide whether an event may make a pod schedulable that certain plugins have rejected.

Each plugin registers for events, with a function that decides whether an event can change its verdict. An extender
counts as interested in every event. As in kube-scheduler, a plugin that registers for new nodes but not for taints is
woken by every change of taints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from extender.kube.names import PODS
from kubesim.scheduler.plugins import filters
from kubesim.scheduler.plugins.filters import (
    FIT,
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    NODE_PORTS,
    NODE_UNSCHEDULABLE,
    TAINT_TOLERATION,
)
from kubesim.scheduler.plugins.topology_spread import MUST, TOPOLOGY_SPREAD, has_all_keys, spreads
from kubesim.scheduler.state.host_ports import clash
from kubesim.scheduler.state.news import ClusterEvent
from kubesim.scheduler.state.pod_affinity import matches_all
from kubesim.scheduler.state.seen import SeenNode, SeenPod

EXTENDER = "Extender"
SCHEDULING_GATES = "SchedulingGates"
DEFAULT_PREEMPTION = "DefaultPreemption"


class News(NamedTuple):
    """An event. `old` is None for an addition, `new` for a deletion."""

    event: ClusterEvent
    old: SeenPod | SeenNode | None = None
    new: SeenPod | SeenNode | None = None


Hint = Callable[[SeenPod, News], bool]


def worth_a_try(pod: SeenPod, rejectors: Iterable[str], news: News) -> bool:
    """Whether the event may change the verdict of a plugin that rejected the pod."""
    if news.event is ClusterEvent.TIMEOUT:
        return True
    if news.event is ClusterEvent.FORCED:
        return isinstance(news.new, SeenPod) and news.new.uid == pod.uid
    for plugin in rejectors:
        hint = _HINTS.get(plugin, _NONE).get(news.event)
        if hint is not None and hint(pod, news):
            return True
    return False


def hears_of(plugin: str, event: ClusterEvent) -> bool:
    """Whether the plugin registers for such events."""
    return event in _HINTS.get(plugin, _NONE)


def _always(_pod: SeenPod, _news: News) -> bool:
    return True


def _never(_pod: SeenPod, _news: News) -> bool:
    return False


def _own(pod: SeenPod, news: News) -> bool:
    return isinstance(news.new, SeenPod) and news.new.uid == pod.uid


def _nodes(news: News) -> tuple[SeenNode | None, SeenNode]:
    assert isinstance(news.new, SeenNode)
    return (news.old if isinstance(news.old, SeenNode) else None), news.new


def _uncordoned(_pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    return not new.rules.unschedulable and (old is None or old.rules.unschedulable)


def _cordon_tolerated(pod: SeenPod, news: News) -> bool:
    return _own(pod, news) and isinstance(news.new, SeenPod) and filters.tolerates_cordon(news.new)


def _untainted(pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    return filters.tolerates(new, pod) and (old is None or not filters.tolerates(old, pod))


def _selected(pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    return filters.selects(new, pod) and (old is None or not filters.selects(old, pod))


def _roomier(pod: SeenPod, news: News) -> bool:
    """The empty node could hold the pod, and has more of something the pod wants than before.

    Resources that the profile ignores count here, as in kube-scheduler.
    """
    old, new = _nodes(news)
    there = new.allocatable
    if any(units > there.get(resource, 0) for resource, units in pod.requests.items()):
        return False
    if old is None:
        return True
    before = old.allocatable
    return there.get(PODS, 0) > before.get(PODS, 0) or any(
        units > 0 and there.get(resource, 0) > before.get(resource, 0) for resource, units in pod.requests.items()
    )


def _room_left(pod: SeenPod, news: News) -> bool:
    """A pod left a node, or requests less of it."""
    old, new = news.old, news.new
    assert isinstance(old, SeenPod)
    if not isinstance(new, SeenPod):
        return bool(old.node or old.nominated)
    if new.uid == pod.uid:
        return True
    return bool(new.node) and any(
        units > 0 and old.requests.get(resource, 0) > new.requests.get(resource, 0)
        for resource, units in pod.requests.items()
    )


def _neighbour_changed(pod: SeenPod, news: News) -> bool:
    old = news.old if isinstance(news.old, SeenPod) else None
    new = news.new if isinstance(news.new, SeenPod) else None
    if old is not None and new is not None and new.uid == pod.uid:
        return True
    if any(each is not None and not each.node and not each.nominated for each in (old, new)):
        return False
    if old is not None and new is not None:
        wanted = not matches_all(pod.affinity, old) and matches_all(pod.affinity, new)
        return wanted or (matches_all(pod.anti_affinity, old) and not matches_all(pod.anti_affinity, new))
    if new is not None:
        return matches_all(pod.affinity, new)
    assert old is not None
    return matches_all(pod.anti_affinity, old) or matches_all(old.anti_affinity, pod)


def _topology_changed(pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    if old is None:
        return bool(pod.anti_affinity) or any(term.topology_key in new.labels for term in pod.affinity)
    for term in pod.affinity:
        value = new.labels.get(term.topology_key)
        if value is not None and value != old.labels.get(term.topology_key):
            return True
    for term in pod.anti_affinity:
        before = old.labels.get(term.topology_key)
        if before is not None and before != new.labels.get(term.topology_key):
            return True
    return False


def _port_freed(pod: SeenPod, news: News) -> bool:
    old = news.old
    return isinstance(old, SeenPod) and bool(old.node or old.nominated) and clash(pod.ports, old.ports)


def _spread_pods_changed(pod: SeenPod, news: News) -> bool:
    """A pod that counts for a constraint was added, removed or changed, or `pod` tolerates more."""
    old = news.old if isinstance(news.old, SeenPod) else None
    new = news.new if isinstance(news.new, SeenPod) else None
    if not all(_counts_for_spread(pod, each) for each in (old, new) if each is not None):
        return False
    wanted = spreads(pod, MUST)
    if old is not None and new is not None:
        more_tolerant = new.uid == pod.uid and new.rules.tolerations != old.rules.tolerations
        if more_tolerant and any(each.respects_taints for each in wanted):
            return True
        return any(each.includes(old.labels) != each.includes(new.labels) for each in wanted)
    changed = new or old
    return changed is not None and any(each.includes(changed.labels) for each in wanted)


def _counts_for_spread(pod: SeenPod, other: SeenPod) -> bool:
    if other.uid == pod.uid:
        return True
    return bool(other.node or other.nominated) and other.namespace == pod.namespace


def _spread_nodes_changed(pod: SeenPod, news: News) -> bool:
    old = news.old if isinstance(news.old, SeenNode) else None
    new = news.new if isinstance(news.new, SeenNode) else None
    wanted = spreads(pod, MUST)
    before = old is not None and has_all_keys(old.labels, wanted)
    after = new is not None and has_all_keys(new.labels, wanted)
    if old is None or new is None or before != after:
        return before or after
    if not after:
        return False
    keys = {each.topology_key for each in wanted}
    return old.rules.taints != new.rules.taints or any(old.labels[key] != new.labels[key] for key in keys)


_NONE: Mapping[ClusterEvent, Hint] = {}
_EVERY_POD = [event for event in ClusterEvent if "POD" in event.name]
_EVERY_NODE = [event for event in ClusterEvent if event.name.startswith("NODE")]
_HINTS: Mapping[str, Mapping[ClusterEvent, Hint]] = {
    EXTENDER: dict.fromkeys([*_EVERY_POD, *_EVERY_NODE], _always),
    SCHEDULING_GATES: {ClusterEvent.PENDING_POD_GATES: _own, ClusterEvent.ASSIGNED_POD_GATES: _own},
    DEFAULT_PREEMPTION: {ClusterEvent.ASSIGNED_POD_DELETE: _never},
    NODE_UNSCHEDULABLE: {
        ClusterEvent.NODE_ADD: _uncordoned,
        ClusterEvent.NODE_TAINT: _uncordoned,
        ClusterEvent.PENDING_POD_TOLERATION: _cordon_tolerated,
        ClusterEvent.ASSIGNED_POD_TOLERATION: _cordon_tolerated,
    },
    TAINT_TOLERATION: {
        ClusterEvent.NODE_ADD: _untainted,
        ClusterEvent.NODE_TAINT: _untainted,
        ClusterEvent.PENDING_POD_TOLERATION: _own,
        ClusterEvent.ASSIGNED_POD_TOLERATION: _own,
    },
    NODE_AFFINITY: {
        ClusterEvent.NODE_ADD: _selected,
        ClusterEvent.NODE_LABEL: _selected,
        ClusterEvent.NODE_TAINT: _always,
    },
    NODE_PORTS: {
        ClusterEvent.ASSIGNED_POD_DELETE: _port_freed,
        ClusterEvent.NODE_ADD: _always,
        ClusterEvent.NODE_TAINT: _always,
    },
    FIT: {
        ClusterEvent.ASSIGNED_POD_DELETE: _room_left,
        ClusterEvent.ASSIGNED_POD_SCALE_DOWN: _room_left,
        ClusterEvent.PENDING_POD_SCALE_DOWN: _room_left,
        ClusterEvent.NODE_ADD: _roomier,
        ClusterEvent.NODE_ALLOCATABLE: _roomier,
        ClusterEvent.NODE_TAINT: _always,
    },
    TOPOLOGY_SPREAD: {
        **dict.fromkeys(
            (
                ClusterEvent.ASSIGNED_POD_ADD,
                ClusterEvent.ASSIGNED_POD_DELETE,
                ClusterEvent.ASSIGNED_POD_LABEL,
                ClusterEvent.ASSIGNED_POD_TOLERATION,
                ClusterEvent.PENDING_POD_LABEL,
                ClusterEvent.PENDING_POD_TOLERATION,
            ),
            _spread_pods_changed,
        ),
        **dict.fromkeys(
            (ClusterEvent.NODE_ADD, ClusterEvent.NODE_DELETE, ClusterEvent.NODE_LABEL, ClusterEvent.NODE_TAINT),
            _spread_nodes_changed,
        ),
    },
    INTER_POD_AFFINITY: {
        ClusterEvent.ASSIGNED_POD_ADD: _neighbour_changed,
        ClusterEvent.ASSIGNED_POD_DELETE: _neighbour_changed,
        ClusterEvent.ASSIGNED_POD_LABEL: _neighbour_changed,
        ClusterEvent.PENDING_POD_LABEL: _neighbour_changed,
        ClusterEvent.NODE_ADD: _topology_changed,
        ClusterEvent.NODE_LABEL: _topology_changed,
        ClusterEvent.NODE_TAINT: _always,
    },
}
