"""Waking: who was turned away and could go somewhere after a change is found, in slices of work.

Each namespace is gone through by itself, and namespaces take turns at each kind of their pods: one that has many kinds,
or changes its policies without end, keeps no other waiting. What changed is noted and merged; once through the kinds of
a namespace, each is compared with the nodes that the change concerns: the few that gained room, or all that have room
for it if policies of the namespace changed; what a policy refuses to one kind is not asked again for others that are
alike to it. What changes meanwhile is for the next time through. A node is looked at as it is when its turn comes.
Kinds beyond the quota of their namespace are gone through apart, as if they were of another one: they keep those within
it no longer than by their turns, and come within it when it leaves room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Protocol

from extender.app.cache.unschedulable_pods import Alike, Group, UnschedulablePods
from extender.core.bounded import Bounded
from extender.core.cluster import Pod
from extender.core.work_budget import Work
from extender.kube.names import NodeName, PodUid

_SLICE = 1_000
"""Steps of some 5 us."""
_A_KIND = 5
"""Steps that a kind of pods costs, whatever nodes are looked at for it."""
_A_NODE = 0.15
"""Steps besides for each node that there is and each policy that governs the pods: these look where others are."""
_AT_LEAST = 250
"""Steps that are taken for a kind before the slice may end, which is then begun with again."""
_FEW = 50
"""So many nodes are sooner looked at than those with room are found among all."""
_POLICIES_A_STEP = 8
"""So many policies say of a node in one step whether they refuse it."""
_SORTED_OUT_A_STEP = 40
"""Of so many nodes it is looked up in one step whether they are known to be refused."""
_MOST_CLOSED = 128
"""Of so many kinds of governed pods it is kept which nodes are refused to them: of 5,000 nodes some 250 KB each."""


@dataclass(slots=True)
class _Closed:
    """`nodes`: those of which this pass has seen that `refuses` says so, for pods that are alike."""

    refuses: Callable[[NodeName], bool]
    nodes: set[NodeName] = field(default_factory=set)


@dataclass(slots=True)
class _Look:
    """At pods that are alike. `only`: these alone, if not None. `left`: nodes that are still to be looked at, the first
    last; None: it has not begun. `closed`: what is known of nodes for these and others; None: nothing."""

    alike: Alike
    only: Collection[PodUid] | None
    left: list[NodeName] | None = None
    closed: _Closed | None = None


@dataclass(slots=True)
class _Through:
    """The pass over one group, and what the next pass has to look at: nodes that gained room after the gain
    numbered `mark`; `stirred`: policies changed, for governed pods alone (False) or for all pods (True); `pods`: pods
    that changed by themselves."""

    mark: int
    stirred: bool | None = None
    pods: dict[PodUid, None] = field(default_factory=dict)
    gained: dict[NodeName, None] = field(default_factory=dict)
    anywhere: bool | None = None
    """As `stirred`, for this time through."""
    look: _Look | None = None
    """The one that is under way, or the next; None: it has not begun, or is over."""
    left: Iterator[_Look] = field(default_factory=lambda: iter(()))
    """Those after it."""

    def stir(self, *, all_kinds: bool) -> None:
        self.stirred = all_kinds or bool(self.stirred)

    def concerns_all_nodes(self, look: _Look, like: Pod) -> bool:
        return look.only is not None or self.anywhere or (self.anywhere is not None and bool(like.governed))


class Rule(Protocol):
    """Where pods could go now."""

    def passes(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether the pod could go to a node."""
        ...

    def with_room(self, pod: Pod, work: Work) -> list[NodeName]:
        """It could go to none but these. What it costs to know is taken from `work`."""
        ...

    def alike(self, pod: Pod) -> Hashable:
        """Pods of which this is the same are refused alike by `refuses_alike`; None: it refuses none of them."""
        ...

    def refuses_alike(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether the pod could not go to the node, nor could any that is alike."""
        ...


class WakeSearch:
    """`nodes`: all there are. `order`: where a pod stands among those that wait, the lower the earlier: who is found in
    one slice is woken in that order."""

    def __init__(
        self,
        turned_away: UnschedulablePods,
        rule: Rule,
        nodes: Collection[NodeName],
        order: Callable[[list[Pod]], tuple[float, ...]],
    ) -> None:
        self._unschedulable = turned_away
        self._rule = rule
        self._nodes = nodes
        self._order = order
        self._gains: dict[NodeName, int] = {}
        """The number of each node's last gain of room, the latest last."""
        self._count = 0
        self._due: dict[Group, _Through] = {}
        """Groups of which pods were not all compared with what changed, the next first."""
        self._closed: Bounded[tuple[Group, Hashable], _Closed] = Bounded(_MOST_CLOSED)
        """Of the passes that are under way."""
        self.work = Work(_SLICE)

    @property
    def has_work(self) -> bool:
        """Whether there are changes that not all who wait were compared with."""
        return bool(self._due) or self._unschedulable.may_have_room

    def gained(self, nodes: Iterable[NodeName]) -> None:
        """These have more room than before."""
        for group in self._unschedulable.groups():
            self._through(group)
        self._count += 1
        for node in nodes:
            self._gains.pop(node, None)
            self._gains[node] = self._count

    def stirred(self, namespace: str, *, all_kinds: bool) -> None:
        """Pods of the namespace may go where they could not. If not `all_kinds`: those that policies govern."""
        for group in (Group(namespace), Group(namespace, beyond=True)):
            if group in self._unschedulable.groups():
                self._through(group).stir(all_kinds=all_kinds)

    def concerns(self, pods: Iterable[PodUid]) -> None:
        """These may go where they could not."""
        for uid in pods:
            if (group := self._unschedulable.group_of(uid)) is not None:
                self._through(group).pods[uid] = None

    def _through(self, group: Group) -> _Through:
        if not self._due:
            self._gains.clear()
            self._closed.clear()
        return self._due.setdefault(group, _Through(self._count))

    def go_on(self) -> Iterator[Pod]:
        """Those that could go somewhere, of as many as the slice holds: they are not asleep any more."""
        for namespace in self._unschedulable.take_may_have_room():
            self._through(Group(namespace, beyond=True))
        self._heed_moved()
        if self._unschedulable.unasked:
            self.concerns(self._unschedulable.take_unasked())
        found = list[_Look]()
        while self._due and not self.work.is_over:
            group = next(iter(self._due))
            through = self._due.pop(group)
            if through.look is None:
                self._begin(group, through)
            if (look := through.look) is not None:
                if could_go := self._could_go(group, through, look):
                    found.append(look)
                if could_go or not look.left:
                    through.look = next(through.left, None)
            if through.look is not None or through.pods or through.stirred is not None or through.mark < self._count:
                self._due[group] = through
            elif group.beyond:
                # They were compared with all that has changed.
                self._unschedulable.bring_in(group.namespace)
        yield from self._woken(found)

    def _heed_moved(self) -> None:
        """A pass may have looked already at the kind to which these pods belong now, and not yet at the one to which
        they belonged."""
        groups = self._unschedulable.groups()
        missed = {
            group.namespace
            for group, through in self._due.items()
            if through.look is not None or group.beyond or Group(group.namespace, beyond=True) in groups
        }
        for uid in self._unschedulable.take_moved():
            if (group := self._unschedulable.group_of(uid)) is not None and group.namespace in missed:
                self.concerns([uid])

    def _begin(self, group: Group, through: _Through) -> None:
        later = takewhile(lambda gain: gain[1] > through.mark, reversed(self._gains.items()))
        through.gained = {node: None for node, _ in later}
        through.anywhere, through.stirred, through.mark = through.stirred, None, self._count
        kinds = self._unschedulable.kinds(group) if through.gained or through.anywhere is not None else ()
        of_pods = [_Look(alike, uids) for alike, uids in self._unschedulable.kinds_of(through.pods)]
        # There may be very many kinds, and this is one step.
        through.left = chain((_Look(alike, None) for alike in list(kinds)), of_pods)
        through.pods, through.look = {}, next(through.left, None)
        for key in [key for key in self._closed if key[0] == group]:
            del self._closed[key]
        if group.beyond:
            # This pass has them still; what comes later is for them as for others within the quota.
            self._unschedulable.bring_in(group.namespace)

    def _could_go(self, group: Group, through: _Through, look: _Look) -> bool:
        """Whether those pods could go to one of the nodes that the slice still has steps for."""
        like = next(iter(look.alike.values()), None)
        if like is None:
            # They are not asleep any more; who is alike and has been turned away since was judged then.
            look.left = []
            return False
        if look.left is None:
            self._begin_look(group, through, look, like)
        if not look.left:
            self.work.take(1)
            return False
        self.work.take(_A_KIND)
        return self._passes_one(look.left, like, look.closed)

    def _begin_look(self, group: Group, through: _Through, look: _Look, like: Pod) -> None:
        everywhere = through.concerns_all_nodes(look, like)
        if not everywhere and len(through.gained) <= _FEW:
            look.left = list(through.gained)
            return
        left = self._rule.with_room(like, self.work)
        look.closed = self._closed_to(group, like) if left else None
        closed = look.closed.nodes if look.closed is not None else ()
        self.work.take(len(left) // _SORTED_OUT_A_STEP)
        look.left = [node for node in left if node not in closed and (everywhere or node in through.gained)]

    def _passes_one(self, left: list[NodeName], like: Pod, closed: _Closed | None) -> bool:
        began, passes = self.work.spent, None
        while left and not (self.work.is_over and self.work.spent - began >= _AT_LEAST):
            self.work.take(1 + len(like.governed) // _POLICIES_A_STEP)
            node = left.pop()
            if closed is not None and closed.refuses(node):
                closed.nodes.add(node)
                continue
            if passes is None:
                self._take_for_policies(like)
                passes = self._rule.passes(like)
            if passes(node):
                return True
        return False

    def _closed_to(self, group: Group, like: Pod) -> _Closed | None:
        """What is known of nodes for pods that are alike; None: nothing can be."""
        if (alike := self._rule.alike(like)) is None:
            return None
        closed = self._closed.get((group, alike))
        if closed is None:
            self._take_for_policies(like)
            closed = _Closed(self._rule.refuses_alike(like))
        self._closed[group, alike] = closed
        return closed

    def _take_for_policies(self, like: Pod) -> None:
        self.work.take(int(_A_NODE * len(self._nodes) * len(like.governed)))

    def _woken(self, found: list[_Look]) -> Iterator[Pod]:
        first = ((self._order([next(iter(look.alike.values()))]), look) for look in found)
        for _, look in sorted(first, key=lambda each: each[0]):
            for uid, pod in list(look.alike.items()):
                if look.only is None or uid in look.only:
                    self._unschedulable.drop(uid)
                    yield pod
