"""Hints: whether a piece of news may make a pod schedulable that certain plugins have rejected.

Each plugin says which events it wants to hear of, and about each of them whether this one could change its mind; an
extender is supposed to be interested in everything. As in kube-scheduler, a plugin that wants to hear of new nodes is
also woken by every change of taints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from extender.core.names import PODS
from extender.sim.scheduler import filters
from extender.sim.scheduler.filters import FIT, INTER_POD_AFFINITY, NODE_AFFINITY, NODE_UNSCHEDULABLE, TAINT_TOLERATION
from extender.sim.scheduler.news import Event
from extender.sim.scheduler.pod_affinity import matches_all
from extender.sim.scheduler.seen import SeenNode, SeenPod

EXTENDER = "Extender"
SCHEDULING_GATES = "SchedulingGates"
DEFAULT_PREEMPTION = "DefaultPreemption"


class News(NamedTuple):
    """`old` is None where something was added, `new` where it was deleted."""

    event: Event
    old: SeenPod | SeenNode | None = None
    new: SeenPod | SeenNode | None = None


Hint = Callable[[SeenPod, News], bool]


def worth_a_try(pod: SeenPod, rejectors: Iterable[str], news: News) -> bool:
    """Whether one of those who rejected the pod may think otherwise now."""
    if news.event is Event.TIMEOUT:
        return True
    if news.event is Event.FORCED:
        return isinstance(news.new, SeenPod) and news.new.uid == pod.uid
    for plugin in rejectors:
        hint = _HINTS.get(plugin, _NONE).get(news.event)
        if hint is not None and hint(pod, news):
            return True
    return False


def hears_of(plugin: str, event: Event) -> bool:
    """Whether the plugin wants to hear of such events at all."""
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
    return not new.core.unschedulable and (old is None or old.core.unschedulable)


def _cordon_tolerated(pod: SeenPod, news: News) -> bool:
    return _own(pod, news) and isinstance(news.new, SeenPod) and filters.tolerates_cordon(news.new)


def _untainted(pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    return filters.tolerates(new, pod) and (old is None or not filters.tolerates(old, pod))


def _selected(pod: SeenPod, news: News) -> bool:
    old, new = _nodes(news)
    return filters.selects(new, pod) and (old is None or not filters.selects(old, pod))


def _roomier(pod: SeenPod, news: News) -> bool:
    """The node has room for the pod, if it were empty, and more than before of something that the pod wants.

    Resources that the profile ignores count here, as they do there.
    """
    old, new = _nodes(news)
    there = new.core.allocatable
    if any(units > there.get(resource, 0) for resource, units in pod.requests.items()):
        return False
    if old is None:
        return True
    before = old.core.allocatable
    return there.get(PODS, 0) > before.get(PODS, 0) or any(
        units > 0 and there.get(resource, 0) > before.get(resource, 0) for resource, units in pod.requests.items()
    )


def _room_left(pod: SeenPod, news: News) -> bool:
    """A pod left a node, or takes less of it."""
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


_NONE: Mapping[Event, Hint] = {}
_EVERY_POD = [event for event in Event if "POD" in event.name]
_EVERY_NODE = [event for event in Event if event.name.startswith("NODE")]
_HINTS: Mapping[str, Mapping[Event, Hint]] = {
    EXTENDER: dict.fromkeys([*_EVERY_POD, *_EVERY_NODE], _always),
    SCHEDULING_GATES: {Event.PENDING_POD_GATES: _own, Event.ASSIGNED_POD_GATES: _own},
    DEFAULT_PREEMPTION: {Event.ASSIGNED_POD_DELETE: _never},
    NODE_UNSCHEDULABLE: {
        Event.NODE_ADD: _uncordoned,
        Event.NODE_TAINT: _uncordoned,
        Event.PENDING_POD_TOLERATION: _cordon_tolerated,
        Event.ASSIGNED_POD_TOLERATION: _cordon_tolerated,
    },
    TAINT_TOLERATION: {
        Event.NODE_ADD: _untainted,
        Event.NODE_TAINT: _untainted,
        Event.PENDING_POD_TOLERATION: _own,
        Event.ASSIGNED_POD_TOLERATION: _own,
    },
    NODE_AFFINITY: {Event.NODE_ADD: _selected, Event.NODE_LABEL: _selected, Event.NODE_TAINT: _always},
    FIT: {
        Event.ASSIGNED_POD_DELETE: _room_left,
        Event.ASSIGNED_POD_SCALE_DOWN: _room_left,
        Event.PENDING_POD_SCALE_DOWN: _room_left,
        Event.NODE_ADD: _roomier,
        Event.NODE_ALLOCATABLE: _roomier,
        Event.NODE_TAINT: _always,
    },
    INTER_POD_AFFINITY: {
        Event.ASSIGNED_POD_ADD: _neighbour_changed,
        Event.ASSIGNED_POD_DELETE: _neighbour_changed,
        Event.ASSIGNED_POD_LABEL: _neighbour_changed,
        Event.PENDING_POD_LABEL: _neighbour_changed,
        Event.NODE_ADD: _topology_changed,
        Event.NODE_LABEL: _topology_changed,
        Event.NODE_TAINT: _always,
    },
}
