"""Policy rematch: after a change of policies, matches the namespace's pods again, in slices.

A slice is what may be done between two ticks of the `Scheduler`, for all namespaces together, which take turns. Each
pod is matched to the policies in force when its turn comes, so changes that come meanwhile are merged. Until the last
pod is matched to the last change, nothing is decided about pods that policies of the namespace match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.common.work_budget import Work
from extender.core.policies.policy_matching import PolicyMatching
from extender.kube.names import PodUid

_SLICE = 750
"""Steps of about 4 us."""
_KNOWN_ANEW = 25
"""Steps per policy of a pod that gets other policies; else 1, and 1 per policy looked at."""
_TURN = 250
"""Steps after which another namespace has its turn."""


@dataclass(slots=True)
class _Pass:
    """One pass through a namespace's pods. `left`: pods still to be looked at, the first last."""

    left: list[PodUid]
    again: bool = False
    """Whether policies have changed since the pass began."""
    changed: bool = False
    """Whether one of the pods is matched by other policies than before."""


class PolicyRematch:
    """`known`: the pod as it is known now. `know`: takes the reported pod in with its policies."""

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
        """Namespaces where not all pods are matched to the policies in force."""
        return self._passes.keys()

    def changed(self, namespace: str) -> None:
        """The policies of the namespace have changed."""
        if (under_way := self._passes.get(namespace)) is not None:
            under_way.again = True
        else:
            self._passes[namespace] = self._begun(namespace)

    def _begun(self, namespace: str) -> _Pass:
        return _Pass(list(self._policy_matching.of_namespace(namespace))[::-1])

    def was_asked(self, pod: Pod) -> None:
        """The pod was refused because its namespace is not matched again yet."""
        self._asked.setdefault(pod.namespace, {})[pod.uid] = None

    def go_on(self) -> Iterator[Done]:
        """Uses up what is left of the slice, or finishes."""
        while self._passes and not self.work.is_over:
            namespace = next(iter(self._passes))
            yield from self._go_on_with(namespace, min(_TURN, self.work.limit - self.work.spent))
            if namespace in self._passes:
                self._passes[namespace] = self._passes.pop(namespace)

    def finish_soon(self, namespace: str, uid: PodUid) -> Iterator[Done]:
        """A call asks about the pod: matches it at once, and the others if one slice holds them."""
        under_way = self._passes.get(namespace)
        if under_way is None:
            return
        self._look_at(uid, under_way)
        if under_way.again and len(under_way.left) * _KNOWN_ANEW < self.work.limit:
            # All pods are looked at from the first, and so one pass is enough.
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
            # The next turn of the namespace begins a new pass, for all that has changed meanwhile.
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
        governed = self._policy_matching.matching(told)
        self.work.take(self._policy_matching.looked_at - before)
        if governed != known.governed:
            under_way.changed = True
            self.work.take(_KNOWN_ANEW * max(1, len(governed), len(known.governed)))
            self._know(told)


@dataclass(frozen=True, slots=True)
class Done:
    """All pods of the namespace are matched. `changed`: one by other policies than before.

    `asked`: pods that were refused meanwhile."""

    namespace: str
    changed: bool
    asked: list[PodUid]
