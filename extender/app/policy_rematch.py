"""After a change of policies, the pods of their namespace are known anew, in slices of work.

A slice is what may be done between two ticks of the `Scheduler`, for all namespaces together, which take turns. Each
pod becomes known by the policies that are in force when its turn comes, so changes that come meanwhile are merged.
Until the last pod is known by the last change, nothing is decided about the pods that policies of the namespace govern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.policy_matching import PolicyMatching
from extender.core.work_budget import Work
from extender.kube.names import PodUid

_SLICE = 750
"""Steps of some 4 us."""
_KNOWN_ANEW = 25
"""Steps that a pod costs, by policy, that is governed otherwise than before. One that is governed as before costs one,
and one by policy that is looked at if no pod like it was looked at since."""
_TURN = 250
"""Steps after which another namespace has its turn."""


@dataclass(slots=True)
class _Pass:
    """Once through the pods of a namespace. `left`: who is still to be looked at, the first last."""

    left: list[PodUid]
    again: bool = False
    """Whether policies have changed since it began."""
    changed: bool = False
    """Whether one of the pods is governed otherwise than before."""


class PolicyRematch:
    """`known`: the pods as they are known now. `know`: a pod, as told, is known by what governs it now."""

    def __init__(
        self, policy_matching: PolicyMatching, known: Callable[[PodUid], Pod | None], know: Callable[[Pod], None]
    ) -> None:
        self._policy_matching = policy_matching
        self._known = known
        self._know = know
        self._passes: dict[str, _Pass] = {}
        self._asked: dict[str, dict[PodUid, None]] = {}
        self.work = Work(_SLICE)

    @property
    def namespaces(self) -> Collection[str]:
        """Those of which not all pods are known by the policies that are in force."""
        return self._passes.keys()

    def changed(self, namespace: str) -> None:
        """Its policies have changed."""
        if (under_way := self._passes.get(namespace)) is not None:
            under_way.again = True
        else:
            self._passes[namespace] = self._begun(namespace)

    def _begun(self, namespace: str) -> _Pass:
        return _Pass(list(self._policy_matching.of_namespace(namespace))[::-1])

    def was_asked(self, pod: Pod) -> None:
        """The pod was turned away because its namespace is not known anew yet."""
        self._asked.setdefault(pod.namespace, {})[pod.uid] = None

    def go_on(self) -> Iterator[Done]:
        """What is left of the slice is used up, or all is done."""
        while self._passes and not self.work.is_over:
            namespace = next(iter(self._passes))
            yield from self._go_on_with(namespace, min(_TURN, self.work.limit - self.work.spent))
            if namespace in self._passes:
                self._passes[namespace] = self._passes.pop(namespace)

    def finish_soon(self, namespace: str, uid: PodUid) -> Iterator[Done]:
        """A verb asks about the pod: it is known anew at once, and so are the others if they fit into one slice."""
        under_way = self._passes.get(namespace)
        if under_way is None:
            return
        self._look_at(uid, under_way)
        if under_way.again and len(under_way.left) * _KNOWN_ANEW < self.work.limit:
            # All are looked at from the first, and so at once.
            under_way.left, under_way.again = self._begun(namespace).left, False
        if len(under_way.left) * _KNOWN_ANEW < self.work.limit:
            yield from self._go_on_with(namespace, self.work.limit)

    def _go_on_with(self, namespace: str, steps: int) -> Iterator[Done]:
        under_way, until = self._passes[namespace], self.work.spent + steps
        while under_way.left:
            if self.work.spent >= until:
                return
            self._look_at(under_way.left.pop(), under_way)
        if under_way.again:
            # It begins anew for all that has changed meanwhile, when this namespace has its next turn.
            under_way.left, under_way.again = self._begun(namespace).left, False
            self.work.take(1)
            return
        del self._passes[namespace]
        yield Done(namespace, under_way.changed, list(self._asked.pop(namespace, ())))

    def _look_at(self, uid: PodUid, under_way: _Pass) -> None:
        self.work.take(1)
        told, known = self._policy_matching.told_of(uid), self._known(uid)
        if told is None or known is None:
            return
        before = self._policy_matching.looked_at
        governed = self._policy_matching.policy_matching(told)
        self.work.take(self._policy_matching.looked_at - before)
        if governed != known.governed:
            under_way.changed = True
            self.work.take(_KNOWN_ANEW * max(1, len(governed), len(known.governed)))
            self._know(told)


@dataclass(frozen=True, slots=True)
class Done:
    """All pods of the namespace are known by the policies in force. `changed`: whether one is governed otherwise than
    before. `asked`: those that were turned away meanwhile."""

    namespace: str
    changed: bool
    asked: list[PodUid]
