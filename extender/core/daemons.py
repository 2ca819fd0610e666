"""Daemons: which bound pods come again on their node as soon as they leave, so that evicting them makes no room.

What a pod says of its owner is a claim, and anyone who may create pods may write it. It is believed where other objects
agree, which a tenant cannot write at will:

- a DaemonSet of that group, name and UID is in the pod's namespace, selects the pod, is not being deleted, and wants a
  pod on that node, as the DaemonSet controller reckons. It wants one: of several only the oldest is believed, for the
  controller deletes the others.
- a mirror pod stands for a static pod: its owner is the Node on which it is, by name and UID, and its namespace is
  kube-system. A tenant who may create pods can write all but the last.

Until the DaemonSets are known all that claim to be theirs are believed. Where they may not be read, there are none, and
such pods leave by priority alone, as with kube-scheduler. What changes is judged anew in slices: a tenant may edit a
DaemonSet of many pods all the time. Must not know what follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from extender.core.audit import Violation
from extender.core.cluster import Node, Pod
from extender.kube.label_match import Selector, matches
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import SelectorTerm, Toleration, accepts

STATIC_PODS = "kube-system"
"""The namespace whose mirror pods are believed. Elsewhere a tenant might have written them."""
SLICE = 100
"""Places that are judged anew at once: less than a millisecond."""
_MOST_AT_A_PLACE = 64
"""Pods of one owner on one node that are looked at; any more are believed nothing."""


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """Which nodes a DaemonSet wants a pod on, and which pods it selects. `node`: the template's nodeName."""

    uid: str
    namespace: str
    name: str
    selector: Selector = None
    node: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[SelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    """Those of the template, and those that the controller adds to each pod."""
    deleting: bool = False

    def wants(self, node: Node) -> bool:
        """Whether the DaemonSet controller makes a pod for the node where there is none."""
        return not self.deleting and self.node in ("", node.name) and accepts(node, self)

    def owns(self, pod: Pod) -> bool:
        """Whether the controller takes the pod, which names the UID, for one of its own."""
        owner = pod.owner
        return (
            owner is not None
            and (self.namespace, self.name) == (pod.namespace, owner.name)
            and matches(self.selector, pod.labels)
        )


_Place = tuple[NodeName, str]
"""A node, and the UID of an owner."""


class Daemons:
    """`nodes`: the table of nodes, which is the `Scheduler`'s. `flipped` is told of each pod that is judged
    otherwise."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self.known = True
        """Whether the DaemonSets have been listed, or may not be."""
        self.changes = 0
        """Grows whenever another pod is believed, or one no more."""
        self.flipped: Callable[[Pod], None] = lambda pod: None
        self._nodes = nodes
        self._sets: dict[str, DaemonSet] = {}
        self._at: dict[_Place, dict[PodUid, Pod]] = {}
        self._nodes_of: dict[str, dict[NodeName, None]] = {}
        self._owners_on: dict[NodeName, dict[str, None]] = {}
        self._place_of: dict[PodUid, _Place] = {}
        self._believed: set[PodUid] = set()
        self._anew: dict[tuple[str, NodeName | None], None] = {}
        """Owners, by UID, and nodes of which something has changed that was not looked at since."""
        self._round: deque[_Place] = deque()

    # -- facts ---------------------------------------------------------------------------------------------------

    def all(self) -> Iterable[DaemonSet]:
        return self._sets.values()

    def see(self, daemon_set: DaemonSet) -> None:
        """It is there, and looks like this."""
        if self._sets.get(daemon_set.uid) != daemon_set:
            self._sets[daemon_set.uid] = daemon_set
            self._anew[daemon_set.uid, None] = None

    def lose(self, daemon_set: DaemonSet) -> None:
        """It is gone."""
        if self._sets.pop(daemon_set.uid, None) is not None:
            self._anew[daemon_set.uid, None] = None

    def replace(self, daemon_sets: Iterable[DaemonSet]) -> None:
        """These and no others exist."""
        self.known = True
        self._sets = {each.uid: each for each in daemon_sets}
        self._anew |= {(owner, None): None for owner in self._nodes_of}

    def node_changed(self, name: NodeName) -> None:
        """The node is another, or gone."""
        if name in self._owners_on:
            self._anew["", name] = None

    def observe(self, pod: Pod) -> None:
        """The pod is not finished, and looks like this."""
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
        """The pod is gone, or has finished, or claims nothing any more."""
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
        """Whether it is made anew on its node as soon as it is gone, as far as was looked."""
        return pod.uid in self._believed

    @property
    def has_work(self) -> bool:
        return bool(self._round or self._anew)

    def settle(self) -> None:
        """Some of what has changed is judged anew; `has_work` says whether that is all."""
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
        """Where a pod is believed, or is not, otherwise than its place judged anew; once all work is done. O(pods)."""
        if self.has_work:
            return
        anew = {uid for place, claimants in self._at.items() for uid in self._of(place, claimants)}
        for uid in sorted(anew ^ self._believed):
            yield Violation("daemons", f"{uid}: comes again {uid in self._believed}, judged anew {uid in anew}")

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
        """Those of them that come again."""
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
            # The one that leaves comes again, too: what it held is no room.
            theirs = [pod for pod in claimants.values() if daemon_set.owns(pod)]
        return {min(theirs, key=lambda pod: (pod.created, pod.uid)).uid} if theirs else set()


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)


def _take_out(index: dict[_K, dict[_V, None]], key: _K, value: _V) -> None:
    del index[key][value]
    if not index[key]:
        del index[key]


def _claimed(pod: Pod) -> _Place | None:
    """The place at which the pod says that it is made anew; None: it says nothing that could be so."""
    owner = pod.owner
    if pod.node is None or owner is None:
        return None
    if pod.mirror:
        is_one = (owner.group, owner.kind, owner.name) == ("", "Node", pod.node) and pod.namespace == STATIC_PODS
    else:
        is_one = (owner.group, owner.kind) == ("apps", "DaemonSet")
    return (pod.node, owner.uid) if is_one else None
