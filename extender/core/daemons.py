"""Daemons: which bound pods return to their node when they leave, so that eviction frees no room.

A pod's owner reference is a claim, and any author of pods can write it. The claim is believed only if other objects
confirm it, which a tenant cannot write freely:

- a DaemonSet of that group, name and UID is in the pod's namespace and selects the pod. It is not being deleted, and
  wants one pod on that node, by the DaemonSet controller's rules. Of several pods only the oldest is believed, because
  the controller deletes the others.
- a mirror pod represents a static pod: its owner is the Node on which it is, by name and UID, and its namespace is
  kube-system. A tenant that may create pods can write all but the last.

Until the DaemonSets are known, all pods that claim one are believed. If Escher may not read DaemonSets, there are none,
and such pods may be evicted by priority, as with kube-scheduler. Changes are judged in slices, because a tenant may
edit a DaemonSet of many pods continually.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from extender.core.cluster import Node, Pod
from extender.core.ledger.audit import Violation
from extender.kube.label_match import Selector, matches
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import SelectorTerm, Toleration, accepts

STATIC_PODS = "kube-system"
"""The namespace whose mirror pods are believed. A tenant may have written those elsewhere."""
SLICE = 100
"""Node and owner pairs that are judged at once: less than a millisecond."""
_MOST_AT_A_PLACE = 64
"""Most pods of one owner on one node that are examined; others are not believed."""


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """Where a DaemonSet wants pods, and which pods it selects. `node`: the template's nodeName."""

    uid: str
    namespace: str
    name: str
    selector: Selector = None
    node: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[SelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations of the template, and those that the controller adds to each pod."""
    deleting: bool = False

    def wants(self, node: Node) -> bool:
        """Whether the DaemonSet controller creates a pod for the node where there is none."""
        return not self.deleting and self.node in ("", node.name) and accepts(node, self)

    def owns(self, pod: Pod) -> bool:
        """Whether the controller adopts the pod, which names this UID."""
        owner = pod.owner
        return (
            owner is not None
            and (self.namespace, self.name) == (pod.namespace, owner.name)
            and matches(self.selector, pod.labels)
        )


_Place = tuple[NodeName, str]
"""A node, and the UID of an owner."""


class Daemons:
    """`nodes`: the `Scheduler`'s table. `flipped` is called when the judgement of a pod changes."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self.known = True
        """Whether the DaemonSets have been listed, or may not be listed."""
        self.changes = 0
        """Grows whenever a pod becomes believed, or is no longer believed."""
        self.flipped: Callable[[Pod], None] = lambda pod: None
        self._nodes = nodes
        self._sets: dict[str, DaemonSet] = {}
        self._at: dict[_Place, dict[PodUid, Pod]] = {}
        self._nodes_of: dict[str, dict[NodeName, None]] = {}
        self._owners_on: dict[NodeName, dict[str, None]] = {}
        self._place_of: dict[PodUid, _Place] = {}
        self._believed: set[PodUid] = set()
        self._anew: dict[tuple[str, NodeName | None], None] = {}
        """Owners, by UID, and nodes that changed and were not yet judged."""
        self._round: deque[_Place] = deque()

    # -- facts ---------------------------------------------------------------------------------------------------

    def all(self) -> Iterable[DaemonSet]:
        return self._sets.values()

    def see(self, daemon_set: DaemonSet) -> None:
        """The DaemonSet exists in this state."""
        if self._sets.get(daemon_set.uid) != daemon_set:
            self._sets[daemon_set.uid] = daemon_set
            self._anew[daemon_set.uid, None] = None

    def lose(self, daemon_set: DaemonSet) -> None:
        if self._sets.pop(daemon_set.uid, None) is not None:
            self._anew[daemon_set.uid, None] = None

    def replace(self, daemon_sets: Iterable[DaemonSet]) -> None:
        """Only these DaemonSets exist."""
        self.known = True
        self._sets = {each.uid: each for each in daemon_sets}
        self._anew |= {(owner, None): None for owner in self._nodes_of}

    def node_changed(self, name: NodeName) -> None:
        """The node has changed, or is gone."""
        if name in self._owners_on:
            self._anew["", name] = None

    def observe(self, pod: Pod) -> None:
        """The unfinished pod exists in this state."""
        place = _claimed(pod)
        if place != self._place_of.get(pod.uid):
            self.forget(pod.uid)
        if place is None:
            return
        claimants = self._at.setdefault(place, {})
        if pod.uid not in claimants and len(claimants) >= _MOST_AT_A_PLACE:
            return
        claimants[pod.uid] = pod
        self._place_of[pod.uid] = place
        node, owner = place
        self._nodes_of.setdefault(owner, {})[node] = None
        self._owners_on.setdefault(node, {})[owner] = None
        self._judge(place)

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, has finished, or no longer claims an owner."""
        place = self._place_of.pop(uid, None)
        if place is None:
            return
        claimants, (node, owner) = self._at[place], place
        del claimants[uid]
        if uid in self._believed:
            self._believed.discard(uid)
            self.changes += 1
            self._judge(place)
        if not claimants:
            del self._at[place]
            _take_out(self._nodes_of, owner, node)
            _take_out(self._owners_on, node, owner)

    # -- judgement -----------------------------------------------------------------------------------------------

    def comes_again(self, pod: Pod) -> bool:
        """Whether the pod is recreated on its node when it leaves, by the judgement so far."""
        return pod.uid in self._believed

    @property
    def has_work(self) -> bool:
        return bool(self._round or self._anew)

    def settle(self) -> None:
        """Judges some of the changes; `has_work` says whether some are left."""
        for _ in range(SLICE):
            if not self._round:
                if not self._anew:
                    return
                owner, node = next(iter(self._anew))
                del self._anew[owner, node]
                if node is None:
                    self._round.extend((each, owner) for each in self._nodes_of.get(owner, ()))
                else:
                    self._round.extend((node, each) for each in self._owners_on.get(node, ()))
            else:
                self._judge(self._round.popleft())

    def violations(self) -> Iterator[Violation]:
        """Pods whose judgement differs from a fresh one, once all work is done. O(pods)."""
        if self.has_work:
            return
        anew = {uid for place, claimants in self._at.items() for uid in self._of(place, claimants)}
        for uid in sorted(anew ^ self._believed):
            yield Violation("daemons", f"{uid}: comes again {uid in self._believed}, recomputed {uid in anew}")

    def _judge(self, place: _Place) -> None:
        claimants = self._at.get(place)
        if not claimants:
            return
        believed = self._of(place, claimants)
        for uid, pod in claimants.items():
            if (uid in believed) != (uid in self._believed):
                self._believed ^= {uid}
                self.changes += 1
                self.flipped(pod)

    def _of(self, place: _Place, claimants: Mapping[PodUid, Pod]) -> set[PodUid]:
        """The claimants that return when they leave."""
        name, owner = place
        mirrors = {uid for uid, pod in claimants.items() if pod.mirror}
        node = self._nodes.get(name)
        if mirrors:
            return mirrors if node is not None and node.uid == owner else set()
        if not self.known:
            return set(claimants)
        daemon_set = self._sets.get(owner)
        if daemon_set is None or node is None or not daemon_set.wants(node):
            return set()
        theirs = [pod for pod in claimants.values() if not pod.deleting and daemon_set.owns(pod)]
        if not theirs:
            # The pod that is being deleted returns too, so that its units are no room.
            theirs = [pod for pod in claimants.values() if daemon_set.owns(pod)]
        return {min(theirs, key=lambda pod: (pod.created, pod.uid)).uid} if theirs else set()


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)


def _take_out(index: dict[_K, dict[_V, None]], key: _K, value: _V) -> None:
    del index[key][value]
    if not index[key]:
        del index[key]


def _claimed(pod: Pod) -> _Place | None:
    """The node and owner at which the pod claims to be recreated; None: no valid claim."""
    owner = pod.owner
    if pod.node is None or owner is None:
        return None
    if pod.mirror:
        is_one = (owner.group, owner.kind, owner.name) == ("", "Node", pod.node) and pod.namespace == STATIC_PODS
    else:
        is_one = (owner.group, owner.kind) == ("apps", "DaemonSet")
    return (pod.node, owner.uid) if is_one else None
