"""Answered: pods about which a call of ours was answered, and of which neither a watch nor a list has told since.

A list is newer than every answer that came before it was asked for, and may be older than those that came after. What
nothing confirms for long may be of a time that is no more, as after a restore of etcd: only another list can tell. Must
not know what was answered.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.app.contracts.ports import Clock
from extender.kube.names import PodUid

_LATE = 60.0


class Answered:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unheard: dict[PodUid, float] = {}
        """Since when, oldest first."""
        self._since_asked: dict[PodUid, bool] | None = None
        """Whether it had been told of before; None while no list is asked for."""

    def note(self, uid: PodUid, *, told: bool = True) -> None:
        """A call about the pod was answered now. `told`: a watch or a list had told of the pod."""
        if self._since_asked is not None:
            self._since_asked.setdefault(uid, told)
        self._unheard.setdefault(uid, self._clock.steady())

    def heard(self, uid: PodUid) -> None:
        """The watch has told of it too, or the pod is gone."""
        self._unheard.pop(uid, None)

    def before_list(self) -> Callable[[], None]:
        """A list is asked for: it tells of all that was answered until now."""
        self._since_asked = {}
        return lambda: None

    def listed(self) -> dict[PodUid, bool]:
        """The list is there. Those about which a call was answered meanwhile, and whether each had been told of before:
        the list may be older than the answer, and than a pod that had not."""
        found, self._since_asked = self._since_asked or {}, None
        self._unheard = {uid: since for uid, since in self._unheard.items() if uid in found}
        return found

    def is_doubtful(self) -> bool:
        """Whether something was answered of which nothing has told for longer than a watch is late."""
        oldest = next(iter(self._unheard.values()), None)
        return oldest is not None and oldest <= self._clock.steady() - _LATE
