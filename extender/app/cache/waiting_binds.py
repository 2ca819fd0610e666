"""Waiting binds: for room on their node that is about to come, or for what a policy waits for.

If a node is full as far as Escher knows, kube-scheduler and Escher know different things. Mostly kube-scheduler's watch
is ahead: a pod has left, and Escher hears of it in a moment. But a kube-scheduler that has just been started may be
behind, and not know which pods its predecessor has bound there: then two pods would have the same room. So such a bind
waits until the room is there, and is refused if it does not come.

Only a policy knows what it waits for: it is asked again whenever something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf

from extender.app.contracts.effects import BindAnswered
from extender.core.policy import Permit, Refuse, Wait
from extender.kube.names import NodeName, PodUid

OVERFULL = "the pod does not fit on the node, as far as Escher knows: it is tried again"
WAITS = 2.0
"""Seconds: news of the watch are late by milliseconds, or by a second on a busy machine."""


@dataclass(frozen=True, slots=True)
class WaitForRoom(Wait):
    """Waits until the node has room for the pod."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    node: NodeName
    wait: Wait

    @property
    def until(self) -> float:
        return inf if self.wait.until is None else self.wait.until


class WaitingBinds:
    """`ask`: whether the pod may be bound to the node now; if so, its units are held there."""

    def __init__(self, ask: Callable[[PodUid, NodeName], Permit]) -> None:
        self._ask = ask
        self._for_room: dict[PodUid, _Waiting] = {}
        """All wait equally long, so the first is overdue first."""
        self._at: dict[NodeName, dict[PodUid, None]] = {}
        """Binds that wait for room, by node."""
        self._for_policies: dict[PodUid, _Waiting] = {}

    def wait(self, uid: PodUid, node: NodeName, wait: Wait) -> None:
        self._forget(uid)
        if isinstance(wait, WaitForRoom):
            self._for_room[uid] = _Waiting(node, wait)
            self._at.setdefault(node, {})[uid] = None
        else:
            self._for_policies[uid] = _Waiting(node, wait)

    def _forget(self, uid: PodUid) -> _Waiting | None:
        if (waiting := self._for_room.pop(uid, None)) is None:
            return self._for_policies.pop(uid, None)
        there = self._at[waiting.node]
        del there[uid]
        if not there:
            del self._at[waiting.node]
        return waiting

    @property
    def for_policies(self) -> bool:
        """Whether a bind waits for a policy."""
        return bool(self._for_policies)

    def waiting(self) -> list[PodUid]:
        """The pods whose binds wait."""
        return [*self._for_room, *self._for_policies]

    def on_nodes(self, gains: Collection[NodeName]) -> Iterator[BindAnswered]:
        """Asks again about the binds to these nodes, which have gained room."""
        for uid in [uid for node in gains for uid in self._at.get(node, ())] if self._at else ():
            yield from self.on_pod(uid)

    def on_change(self) -> Iterator[BindAnswered]:
        """Asks again about the binds that wait for policies: something has changed."""
        for uid in list(self._for_policies):
            yield from self.on_pod(uid)

    def on_pod(self, uid: PodUid) -> Iterator[BindAnswered]:
        """Asks again about the pod's bind: the pod may have changed."""
        waiting = self._for_room.get(uid) or self._for_policies.get(uid)
        if waiting is None:
            return
        match self._ask(uid, waiting.node):
            case Wait(until=None):
                # The policy itself answers from now on.
                self._forget(uid)
            case Wait(reason=reason) as wait:
                if reason != waiting.wait.reason:
                    self.wait(uid, waiting.node, wait)
            case Refuse(reason):
                yield from self.end(uid, reason)
            case _:
                yield from self.end(uid, "")

    def end(self, uid: PodUid, refusal: str) -> Iterator[BindAnswered]:
        """The pod's bind waits no more."""
        if (waiting := self._forget(uid)) is not None:
            yield BindAnswered(uid, waiting.node, refusal)

    def overdue(self, now: float) -> Iterator[BindAnswered]:
        """Refuses the binds that have waited long enough."""
        for_room = takewhile(lambda each: each[1].until <= now, self._for_room.items())
        for_policies = (each for each in self._for_policies.items() if each[1].until <= now)
        for uid, waiting in [*for_room, *for_policies]:
            yield from self.end(uid, waiting.wait.reason)

    def next_deadline(self) -> float | None:
        if not (self._for_room or self._for_policies):
            return None
        first = islice(self._for_room.values(), 1)
        return min((each.until for each in (*first, *self._for_policies.values())), default=None)
