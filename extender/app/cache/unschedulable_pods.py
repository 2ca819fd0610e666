"""Unschedulable pods: filters refused them on every node, and nothing has woken them since.

Pods that are alike are judged as one: see `wake_search`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from extender.core.cluster import Pod
from extender.core.fit.equivalence import equivalence_of
from extender.core.gang_ask import GangAsk
from extender.core.ledger.ledger import Ledger
from extender.core.tenancy.isolation import Counted, Isolation
from extender.kube.names import PodUid

Alike = dict[PodUid, Pod]
"""Pods of one kind: the same is true of all."""


class Group(NamedTuple):
    """Kinds in one pass: those within the quota of the namespace, or those beyond it."""

    namespace: str
    beyond: bool = False


class UnschedulablePods:
    def __init__(self, ledger: Ledger, isolation: Isolation) -> None:
        self._ledger = ledger
        self._isolation = isolation
        self._version = isolation.version
        self._kinds: dict[Group, dict[Hashable, Alike]] = {}
        self._may_have_room: dict[str, None] = {}
        """Namespaces that lost a kind while others were beyond the quota."""
        self._kind_of: dict[PodUid, tuple[str, Hashable]] = {}
        """The namespace, and what is the same for all pods of its kind."""
        self._moved: dict[PodUid, None] = {}
        self.unasked: dict[PodUid, None] = {}
        """Pods that an earlier run may have refused, and that this one has not looked at."""
        self._sampled: dict[PodUid, int] = {}
        """Wakes of each pod only to be offered other nodes, since anything has changed for it."""

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._kind_of

    def __iter__(self) -> Iterator[PodUid]:
        return iter(self._kind_of)

    def add(self, pod: Pod) -> None:
        """The pod sleeps, and looks like this."""
        kind = self._likeness(pod)
        before = self._kind_of.get(pod.uid)
        if before != kind:
            if before is not None:
                self._moved[pod.uid] = None
            self._take_out(pod.uid)
            self._kind_of[pod.uid] = kind
        self._kinds.setdefault(self._group(*kind), {}).setdefault(kind[1], {})[pod.uid] = pod

    def add_unasked(self, pod: Pod) -> None:
        """The pod sleeps as far as Escher knows, and there may be room for it already."""
        self.add(pod)
        self.unasked[pod.uid] = None

    def take_unasked(self) -> Collection[PodUid]:
        """The pods that `add_unasked` added since the last call, and that still sleep."""
        taken, self.unasked = self.unasked, {}
        return [uid for uid in taken if uid in self]

    def _group(self, namespace: str, kind: Hashable) -> Group:
        """The group of the kind, or that of a new kind."""
        within, beyond = Group(namespace), Group(namespace, beyond=True)
        if kind in self._kinds.get(within, ()):
            return within
        return beyond if kind in self._kinds.get(beyond, ()) or self._room(namespace) <= 0 else within

    def _room(self, namespace: str) -> int:
        """How many more kinds the quota of the namespace leaves."""
        limit = self._isolation.limit(namespace, Counted.WAITING_KINDS)
        return sys.maxsize if limit is None else limit - len(self._kinds.get(Group(namespace), ()))

    @property
    def has_news(self) -> bool:
        """Whether the next `take_may_have_room`, `take_moved` or `take_unasked` may return something."""
        return bool(self._may_have_room or self._moved or self.unasked) or self._version != self._isolation.version

    def take_may_have_room(self) -> Collection[str]:
        """Namespaces whose kinds beyond the quota may come within it, since the last call."""
        taken, self._may_have_room = self._may_have_room, {}
        if self._version != self._isolation.version:
            self._version = self._isolation.version
            return [namespace for namespace, beyond in self._kinds if beyond]
        return taken

    def bring_in(self, namespace: str) -> None:
        """Brings kinds beyond the quota within it, as many as it has room for, the oldest first."""
        beyond = self._kinds.get(Group(namespace, beyond=True), {})
        for kind in list(islice(beyond, max(0, self._room(namespace)))):
            self._kinds.setdefault(Group(namespace), {})[kind] = beyond.pop(kind)
        if not beyond:
            self._kinds.pop(Group(namespace, beyond=True), None)

    def counted(self, namespace: str) -> tuple[int, int]:
        """How many kinds are within the quota, and beyond it."""
        within, beyond = (self._kinds.get(Group(namespace, beyond=each), ()) for each in (False, True))
        return len(within), len(beyond)

    def _likeness(self, pod: Pod) -> tuple[str, Hashable]:
        """The pod's kind: its pods could all go to the same nodes, see `core.policy.Policy`."""
        gang = pod.gang.key if isinstance(pod.gang, GangAsk) else None
        # Only the pod itself may use what is held for it.
        alone = pod.uid if self._ledger.holding(pod.uid) is not None else None
        kind = (gang, pod.priority, equivalence_of(pod), frozenset(pod.annotations.items()), pod.governed, alone)
        return pod.namespace, kind

    def kinds_of_others(self, namespace: str) -> Iterator[Pod]:
        """One pod of each kind of the other namespaces."""
        for other, kinds in self._kinds.items():
            if other.namespace != namespace:
                yield from (next(iter(alike.values())) for alike in kinds.values())

    def drop(self, uid: PodUid) -> None:
        """The pod is woken or gone."""
        self._sampled.pop(uid, None)
        self._take_out(uid)

    def woken_for_a_sample(self, uid: PodUid, most: int) -> bool:
        """Wakes the pod because other nodes may be offered; False if `most` such wakes failed."""
        if self._sampled.get(uid, 0) >= most:
            return False
        self._sampled[uid] = self._sampled.get(uid, 0) + 1
        self._take_out(uid)
        return True

    def _take_out(self, uid: PodUid) -> None:
        if uid in self._kind_of:
            namespace, kind = self._kind_of.pop(uid)
            kinds = self._kinds[group := self._group(namespace, kind)]
            del kinds[kind][uid]
            if not kinds[kind]:
                del kinds[kind]
                if Group(namespace, beyond=True) in self._kinds:
                    self._may_have_room[namespace] = None
            if not kinds:
                del self._kinds[group]

    def woken_in(self, namespaces: Callable[[str], bool]) -> Iterator[Pod]:
        """Drops and yields the pods of these namespaces."""
        for kinds in [kinds for group, kinds in self._kinds.items() if namespaces(group.namespace)]:
            for pod in [pod for alike in kinds.values() for pod in alike.values()]:
                self.drop(pod.uid)
                yield pod

    def groups(self) -> Collection[Group]:
        """The groups that have sleeping pods."""
        return self._kinds.keys()

    def group_of(self, uid: PodUid) -> Group | None:
        """The group of the pod; None if it does not sleep."""
        return self._group(*self._kind_of[uid]) if uid in self._kind_of else None

    def kinds(self, group: Group) -> Collection[Alike]:
        """All kinds of the group."""
        return self._kinds.get(group, {}).values()

    def kinds_of(self, uids: Iterable[PodUid]) -> Iterator[tuple[Alike, Collection[PodUid]]]:
        """The kinds of these pods that sleep, each with those of these pods that are of it."""
        kinds: dict[tuple[str, Hashable], dict[PodUid, None]] = {}
        for uid in uids:
            if (kind := self._kind_of.get(uid)) is not None:
                kinds.setdefault(kind, {})[uid] = None
        return ((self._kinds[self._group(*kind)][kind[1]], of_kind) for kind, of_kind in kinds.items())

    def take_moved(self) -> Collection[PodUid]:
        """The pods whose kind has changed since the last call."""
        taken, self._moved = self._moved, {}
        return taken
