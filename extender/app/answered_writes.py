"""Answered writes: pods that Escher's calls were answered about, not yet confirmed by the watch.

A list is newer than every answer that came before it was requested, and may be older than later answers. What nothing
confirms for long may be of a time before a restore of etcd: only another list can tell.
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
        """When each was answered first, oldest first."""
        self._since_asked: dict[PodUid, bool] | None = None
        """Whether a watch or list had reported the pod before; None while no list is requested."""

    def note(self, uid: PodUid, *, told: bool = True) -> None:
        """A call about the pod was answered. `told`: a watch or list had reported the pod."""
        if self._since_asked is not None:
            self._since_asked.setdefault(uid, told)
        self._unheard.setdefault(uid, self._clock.steady())

    def heard(self, uid: PodUid) -> None:
        """The watch has reported the pod too, or the pod is gone."""
        self._unheard.pop(uid, None)

    def before_list(self) -> Callable[[], None]:
        """A list is requested: it contains all that was answered until now."""
        self._since_asked = {}
        return lambda: None

    def listed(self) -> dict[PodUid, bool]:
        """The list is there: pods that were answered meanwhile, and whether each was reported.

        The list may be older than the answer, and older than a pod that was not reported before."""
        found, self._since_asked = self._since_asked or {}, None
        self._unheard = {uid: since for uid, since in self._unheard.items() if uid in found}
        return found

    def is_doubtful(self) -> bool:
        """Whether an answer is unconfirmed for longer than a watch is late."""
        oldest = next(iter(self._unheard.values()), None)
        return oldest is not None and oldest <= self._clock.steady() - _LATE
