"""Wake search: finds the unschedulable pods that may fit after a change, in slices of work.

Namespaces take turns at each kind of their pods: one with many kinds, or with endless changes of policies, delays no
other. Changes are noted and merged. A pass compares each kind of a namespace with the nodes that the change concerns.
These are the few that gained room, or all that have room for it if policies of the namespace changed. What a policy
refuses to one kind is not asked again for others that are alike to it. Changes meanwhile are for the next pass. A node
is looked at as it is when its turn comes. Kinds beyond the quota of their namespace are gone through apart. They delay
those within it only by their turns, and come within it when it leaves room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Protocol

from extender.app.cache.unschedulable_pods import Alike, Group, UnschedulablePods
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.common.work_budget import Work
from extender.kube.names import NodeName, PodUid

_SLICE = 1_000
"""Steps of about 5 us."""
_A_KIND = 5
"""Steps for a kind of pods, whatever nodes are looked at for it."""
_A_NODE = 0.15
"""More steps for each node and each matching policy, because these look where other pods are."""
_AT_LEAST = 250
"""Steps taken for a kind before the slice may end; the kind goes on at its next turn."""
_FEW = 50
"""Up to this number, gained nodes are looked at directly, without a search for room."""
_POLICIES_A_STEP = 8
"""Policies that are asked about a node in one step."""
_SORTED_OUT_A_STEP = 40
"""Nodes looked up in one step among those known to be refused."""
_MOST_CLOSED = 128
"""Kinds of pods with policies whose refused nodes are kept: about 250 KB each for 5,000 nodes."""


@dataclass(slots=True)
class _Closed:
    """`nodes`: nodes that `refuses` has refused in this pass, for pods that are alike."""

    refuses: Callable[[NodeName], bool]
    nodes: set[NodeName] = field(default_factory=set)


@dataclass(slots=True)
class _Look:
    """One look at pods that are alike. `only`: if not None, these pods alone.

    `left`: nodes still to be looked at, the first last; None: not begun. `closed`: nodes known to be refused to these
    and others."""

    alike: Alike
    only: Collection[PodUid] | None
    left: list[NodeName] | None = None
    closed: _Closed | None = None


@dataclass(slots=True)
class _Through:
    """The pass over one group, and what the next pass has to look at.

    `mark`: the next pass looks at nodes that gained room after the gain with this number. `requeued`: policies changed,
    for matched pods alone (False) or for all pods (True). `pods`: pods that changed themselves."""

    mark: int
    requeued: bool | None = None
    pods: dict[PodUid, None] = field(default_factory=dict)
    gained: dict[NodeName, None] = field(default_factory=dict)
    anywhere: bool | None = None
    """As `requeued`, for the present pass."""
    look: _Look | None = None
    """The look under way or next; None: the pass has not begun, or is over."""
    left: Iterator[_Look] = field(default_factory=lambda: iter(()))
    """The looks after it."""

    def stir(self, *, all_kinds: bool) -> None:
        self.requeued = all_kinds or bool(self.requeued)

    def concerns_all_nodes(self, look: _Look, like: Pod) -> bool:
        return look.only is not None or self.anywhere or (self.anywhere is not None and bool(like.governed))


class Rule(Protocol):
    """Decides where pods could go now."""

    def passes(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether the pod could go to a node."""
        ...

    def with_room(self, pod: Pod, work: Work) -> list[NodeName]:
        """The nodes that may have room for the pod, no others can. Takes the cost from `work`."""
        ...

    def alike(self, pod: Pod) -> Hashable:
        """Pods with this value are refused alike by `refuses_alike`; None: it refuses none."""
        ...

    def refuses_alike(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether neither the pod nor any that is alike could go to the node."""
        ...


class WakeSearch:
    """`nodes`: all nodes. `order`: rank among waiting pods; lower ones of a slice wake first."""

    def __init__(
        self,
        unschedulable: UnschedulablePods,
        rule: Rule,
        nodes: Collection[NodeName],
        order: Callable[[list[Pod]], tuple[float, ...]],
    ) -> None:
        self._unschedulable = unschedulable
        self._rule = rule
        self._nodes = nodes
        self._order = order
        self._gains: dict[NodeName, int] = {}
        """The number of each node's last gain of room, the latest last."""
        self._count = 0
        self._due: dict[Group, _Through] = {}
        """Groups whose pods were not all compared with what changed, the next first."""
        self._closed: Bounded[tuple[Group, Hashable], _Closed] = Bounded(_MOST_CLOSED)
        """Nodes known to be refused, for the passes under way."""
        self.work = Work(_SLICE)

    @property
    def has_work(self) -> bool:
        """Whether there are changes that not all waiting pods were compared with."""
        return bool(self._due) or self._unschedulable.has_news

    def gained(self, nodes: Iterable[NodeName]) -> None:
        """These nodes have more room than before."""
        for group in self._unschedulable.groups():
            self._through(group)
        self._count += 1
        for node in nodes:
            self._gains.pop(node, None)
            self._gains[node] = self._count

    def requeue(self, namespace: str, *, all_kinds: bool) -> None:
        """Pods of the namespace may fit now. If not `all_kinds`: only pods that policies match."""
        for group in (Group(namespace), Group(namespace, beyond=True)):
            if group in self._unschedulable.groups():
                self._through(group).stir(all_kinds=all_kinds)

    def concerns(self, pods: Iterable[PodUid]) -> None:
        """These pods may fit now."""
        for uid in pods:
            if (group := self._unschedulable.group_of(uid)) is not None:
                self._through(group).pods[uid] = None

    def _through(self, group: Group) -> _Through:
        if not self._due:
            self._gains.clear()
            self._closed.clear()
        return self._due.setdefault(group, _Through(self._count))

    def go_on(self) -> Iterator[Pod]:
        """The pods that could go somewhere, as far as the slice reaches: they sleep no more."""
        for namespace in self._unschedulable.take_may_have_room():
            self._through(Group(namespace, beyond=True))
        self._on_moved()
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
            if through.look is not None or through.pods or through.requeued is not None or through.mark < self._count:
                self._due[group] = through
            elif group.beyond:
                # They were compared with all that has changed.
                self._unschedulable.bring_in(group.namespace)
        yield from self._woken(found)

    def _on_moved(self) -> None:
        """Looks at pods that moved between kinds: the pass may have missed them in both."""
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
        through.anywhere, through.requeued, through.mark = through.requeued, None, self._count
        kinds = self._unschedulable.kinds(group) if through.gained or through.anywhere is not None else ()
        of_pods = [_Look(alike, uids) for alike, uids in self._unschedulable.kinds_of(through.pods)]
        # There may be very many kinds, and this is one step.
        through.left = chain((_Look(alike, None) for alike in list(kinds)), of_pods)
        through.pods, through.look = {}, next(through.left, None)
        for key in [key for key in self._closed if key[0] == group]:
            del self._closed[key]
        if group.beyond:
            # This pass still has them; later changes concern them as others within the quota.
            self._unschedulable.bring_in(group.namespace)

    def _could_go(self, group: Group, through: _Through, look: _Look) -> bool:
        """Whether those pods could go to one of the nodes that the slice still has steps for."""
        like = next(iter(look.alike.values()), None)
        if like is None:
            # They sleep no more. Pods that are alike and were refused since were judged then.
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
        """The nodes known to be refused to pods that are alike; None: nothing can be known."""
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
