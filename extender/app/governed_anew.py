"""After a change of policies, or of a PodGroup, the pods that it is about are known anew, in slices of work.

A slice is what may be done between two ticks of the keeper, for all namespaces together, which take turns. Each pod
becomes known by the policies, or by the PodGroup, that are there when its turn comes, so changes that come meanwhile
are merged. Until the last pod is known by the last change of policies, nothing is decided about the pods that policies
of the namespace govern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.pod_groups import PodGroups, name_of
from extender.core.governing import Governing
from extender.core.names import GangKey
from extender.core.work import Work
from extender.kube.names import PodUid

_SLICE = 750
"""Steps of some 4 us."""
_KNOWN_ANEW = 25
"""Steps that a pod costs, by policy, that is governed otherwise than before. One that is governed as before costs one,
and one by policy that is looked at if no pod like it was looked at since."""
_TURN = 250
"""Steps after which another namespace has its turn."""


@dataclass(frozen=True, slots=True)
class Done:
    """All pods of the namespace are known by the policies in force. `changed`: whether one is governed otherwise than
    before. `asked`: those that were turned away meanwhile."""

    namespace: str
    changed: bool
    asked: list[PodUid]


@dataclass(slots=True)
class _Pass:
    """Once through pods of a namespace. `left`: who is still to be looked at, the first last."""

    left: dict[PodUid, None]
    what: Collection[str]
    """For which changes."""
    again: dict[str, None] = field(default_factory=dict)
    """What has changed since it began."""
    changed: bool = False
    """Whether one of the pods is governed otherwise than before."""


class _InPasses(ABC):
    def __init__(self) -> None:
        self._passes: dict[str, _Pass] = {}
        self.work = Work(_SLICE)

    @property
    def namespaces(self) -> Collection[str]:
        """Those of which not all pods are known by what is there."""
        return self._passes.keys()

    def changed(self, namespace: str, what: Iterable[str] = ("",)) -> None:
        """Its policies have changed, or its PodGroups of these names."""
        if (under_way := self._passes.get(namespace)) is not None:
            under_way.again |= dict.fromkeys(what)
        else:
            self._passes[namespace] = _Pass(self._begun(namespace, what), dict.fromkeys(what))

    def go_on(self) -> Iterator[Done]:
        """What is left of the slice is used up, or all is done."""
        while self._passes and not self.work.is_over:
            namespace = next(iter(self._passes))
            yield from self._go_on_with(namespace, min(_TURN, self.work.limit - self.work.spent))
            if namespace in self._passes:
                self._passes[namespace] = self._passes.pop(namespace)

    def _go_on_with(self, namespace: str, steps: int) -> Iterator[Done]:
        under_way, until = self._passes[namespace], self.work.spent + steps
        while under_way.left:
            if self.work.spent >= until:
                return
            self._look_at(under_way.left.popitem()[0], under_way)
        if under_way.again:
            # It begins anew for all that has changed meanwhile, when this namespace has its next turn.
            self._begin_anew(namespace, under_way)
            self.work.take(1)
            return
        del self._passes[namespace]
        yield self._done(namespace, under_way)

    def _begin_anew(self, namespace: str, under_way: _Pass) -> None:
        under_way.what, under_way.again = under_way.again, {}
        under_way.left = self._begun(namespace, under_way.what)

    @abstractmethod
    def _begun(self, namespace: str, what: Iterable[str]) -> dict[PodUid, None]:
        """All who are to be looked at for these changes, the first last."""

    @abstractmethod
    def _look_at(self, uid: PodUid, under_way: _Pass) -> None: ...

    @abstractmethod
    def _done(self, namespace: str, under_way: _Pass) -> Done: ...


class Regrouped(_InPasses):
    """Pods whose PodGroup has changed, and that stay its gang's members. `understand`: a pod, as told, is understood by
    its group."""

    def __init__(self, groups: PodGroups, understand: Callable[[Pod], None]) -> None:
        super().__init__()
        self._groups = groups
        self._understand = understand

    def go_on_now(self) -> None:
        """As `go_on`: nobody waits for the end."""
        for _ in self.go_on():
            pass

    def concerns(self, gang: GangKey) -> bool:
        """Whether not all of the gang's members ask for what their PodGroup says yet."""
        under_way, name = self._passes.get(gang.namespace), name_of(gang)
        return under_way is not None and (name in under_way.what or name in under_way.again)

    def hurry(self, uid: PodUid) -> bool:
        """If the pod is still to be looked at, that is done at once; whether it was."""
        told = self._groups.told(uid)
        under_way = None if told is None else self._passes.get(told.namespace)
        if told is None or under_way is None:
            return False
        changed_since = isinstance(told.gang, GroupAsk) and told.gang.name in under_way.again
        waits = uid in under_way.left or changed_since
        if waits:
            under_way.left.pop(uid, None)
            self._look_at(uid, under_way)
            if not (under_way.left or under_way.again):
                del self._passes[told.namespace]
        return waits

    def _begun(self, namespace: str, what: Iterable[str]) -> dict[PodUid, None]:
        return dict.fromkeys(self._groups.members(namespace, what)[::-1])

    def _look_at(self, uid: PodUid, under_way: _Pass) -> None:
        self.work.take(_KNOWN_ANEW)
        if (told := self._groups.told(uid)) is not None:
            self._understand(told)

    def _done(self, namespace: str, under_way: _Pass) -> Done:
        return Done(namespace, changed=False, asked=[])


class GovernedAnew(_InPasses):
    """Pods of namespaces whose policies have changed. `known`: the pods as they are known now. `know`: a pod, as told,
    is known by what governs it now."""

    def __init__(
        self, governing: Governing, known: Callable[[PodUid], Pod | None], know: Callable[[Pod], None]
    ) -> None:
        super().__init__()
        self._governing = governing
        self._known = known
        self._know = know
        self._asked: dict[str, dict[PodUid, None]] = {}

    def was_asked(self, pod: Pod) -> None:
        """The pod was turned away because its namespace is not known anew yet."""
        self._asked.setdefault(pod.namespace, {})[pod.uid] = None

    def _begun(self, namespace: str, what: Iterable[str]) -> dict[PodUid, None]:
        return dict.fromkeys(list(self._governing.of_namespace(namespace))[::-1])

    def finish_soon(self, namespace: str, uid: PodUid) -> Iterator[Done]:
        """A verb asks about the pod: it is known anew at once, and so are the others if they fit into one slice."""
        under_way = self._passes.get(namespace)
        if under_way is None:
            return
        self._look_at(uid, under_way)
        if under_way.again and len(under_way.left) * _KNOWN_ANEW < self.work.limit:
            # All are looked at from the first, and so at once.
            self._begin_anew(namespace, under_way)
        if len(under_way.left) * _KNOWN_ANEW < self.work.limit:
            yield from self._go_on_with(namespace, self.work.limit)

    def _done(self, namespace: str, under_way: _Pass) -> Done:
        return Done(namespace, under_way.changed, list(self._asked.pop(namespace, ())))

    def _look_at(self, uid: PodUid, under_way: _Pass) -> None:
        self.work.take(1)
        told, known = self._governing.told_of(uid), self._known(uid)
        if told is None or known is None:
            return
        before = self._governing.looked_at
        governed = self._governing.governing(told)
        self.work.take(self._governing.looked_at - before)
        if governed != known.governed:
            under_way.changed = True
            self.work.take(_KNOWN_ANEW * max(1, len(governed), len(known.governed)))
            self._know(told)
