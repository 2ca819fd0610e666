"""Waking: who was turned away and could go somewhere after a change is found, in slices of work.

What changed is noted and merged; once through the kinds of pods that wait, each is compared with the nodes that the
change concerns: the few that gained room, or all of them if policies of its namespace changed. What changes meanwhile
is for the next time through. A node is looked at as it is when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from extender.app.turned_away import Alike, TurnedAway
from extender.core.cluster import Pod
from extender.core.work import Work
from extender.kube.names import NodeName, PodUid

_SLICE = 1_000
"""Steps of some 5 us."""
_A_KIND = 5
"""Steps that a kind of pods costs, whatever nodes are looked at for it."""
_A_NODE = 0.5
"""Steps besides for each node that there is, if policies govern the pods: these look where others are."""
_AT_LEAST = 250
"""Nodes that are looked at for a kind before the slice may end, which is then begun with again."""


@dataclass(slots=True)
class _Changes:
    """`nodes`: those that gained room. `namespaces`: those of which pods may go to other nodes than before; whether
    also those that no policy governs. `pods`: those of which that is true by themselves."""

    nodes: dict[NodeName, None] = field(default_factory=dict)
    namespaces: dict[str, bool] = field(default_factory=dict)
    pods: dict[PodUid, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.namespaces or self.pods)


@dataclass(slots=True)
class _Look:
    """At pods that are alike. `only`: these alone, if not None. `left`: nodes that are still to be looked at, the first
    last; None: it has not begun."""

    alike: Alike
    only: Collection[PodUid] | None
    left: list[NodeName] | None = None


class Waking:
    """`passes`: whether the pod could go to a node now. `nodes`: all there are. `order`: where a pod stands among those
    that wait, the lower the earlier: who is found in one slice is woken in that order."""

    def __init__(
        self,
        turned_away: TurnedAway,
        passes: Callable[[Pod], Callable[[NodeName], bool]],
        nodes: Collection[NodeName],
        order: Callable[[list[Pod]], tuple[float, ...]],
    ) -> None:
        self._turned_away = turned_away
        self._passes = passes
        self._nodes = nodes
        self._order = order
        self._changes = _Changes()
        self._looked_for = _Changes()
        """What changed before this time through began."""
        self._looks: list[_Look] = []
        """What is left of it, the first last."""
        self.work = Work(_SLICE)

    @property
    def has_work(self) -> bool:
        """Whether there are changes that not all who wait were compared with."""
        return bool(self._looks or self._changes)

    def gained(self, nodes: Iterable[NodeName]) -> None:
        """These have more room than before."""
        self._changes.nodes |= dict.fromkeys(nodes)

    def stirred(self, namespace: str, *, all_kinds: bool) -> None:
        """Pods of the namespace may go where they could not. If not `all_kinds`: those that policies govern."""
        self._changes.namespaces[namespace] = all_kinds or self._changes.namespaces.get(namespace, False)

    def concerns(self, pods: Iterable[PodUid]) -> None:
        """These may go where they could not."""
        self._changes.pods |= dict.fromkeys(pods)

    def go_on(self) -> Iterator[Pod]:
        """Those that could go somewhere, of as many as the slice holds: they are not asleep any more."""
        moved = self._turned_away.take_moved()
        if self._looks:
            # Those whom they are alike from now on may have been looked at already.
            self.concerns(moved)
        while not self.work.is_over and self.has_work:
            if not self._looks:
                self._begin()
            found = list[_Look]()
            while self._looks and not self.work.is_over:
                if self._could_go(self._looks[-1]):
                    found.append(self._looks.pop())
                elif not self._looks[-1].left:
                    self._looks.pop()
            yield from self._woken(found)

    def _begin(self) -> None:
        self._looked_for, self._changes = self._changes, _Changes()
        self._looks = list(self._turned_away_for(self._looked_for))[::-1]

    def _turned_away_for(self, changes: _Changes) -> Iterator[_Look]:
        for alike in self._turned_away.kinds():
            if changes.nodes or self._is_stirred(next(iter(alike.values())), changes):
                yield _Look(alike, None)
        for alike, uids in self._turned_away.kinds_of(changes.pods):
            yield _Look(alike, uids)

    @staticmethod
    def _is_stirred(like: Pod, changes: _Changes) -> bool:
        all_kinds = changes.namespaces.get(like.namespace)
        return all_kinds is not None and (all_kinds or bool(like.governed))

    def _could_go(self, look: _Look) -> bool:
        """Whether those pods could go to one of the nodes that the slice still has steps for."""
        like = next(iter(look.alike.values()), None)
        if like is None:
            # They are not asleep any more; who is alike and has been turned away since was judged then.
            look.left = []
            return False
        self.work.take(_A_KIND + (int(_A_NODE * len(self._nodes)) if like.governed else 0))
        if look.left is None:
            anywhere = look.only is not None or self._is_stirred(like, self._looked_for)
            look.left = list(self._nodes if anywhere else self._looked_for.nodes)[::-1]
        passes = self._passes(like)
        for number in range(1, len(look.left) + 1):
            self.work.take(1)
            if passes(look.left.pop()):
                return True
            if number % _AT_LEAST == 0 and self.work.is_over:
                break
        return False

    def _woken(self, found: list[_Look]) -> Iterator[Pod]:
        first = ((self._order([next(iter(look.alike.values()))]), look) for look in found)
        for _, look in sorted(first, key=lambda each: each[0]):
            for uid, pod in list(look.alike.items()):
                if look.only is None or uid in look.only:
                    self._turned_away.drop(uid)
                    yield pod
